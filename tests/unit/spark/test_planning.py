"""Plans: ranges are disjoint and cover, splits follow Kafka's rule, limits starve nobody."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.planning import ranges_between, ranges_cut, shared_limit, split_ranges

QUEUES = [MessageQueue("T", "a", queue_id) for queue_id in range(8)]


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [QueueRange("T", "a", number, 7, 7 + size) for number, size in enumerate(sizes)]


def test_between_two_positions_lies_what_both_know() -> None:
    start = {QUEUES[0]: 5, QUEUES[1]: 9, QUEUES[2]: 4, QUEUES[3]: 2}
    end = {QUEUES[0]: 8, QUEUES[1]: 9, QUEUES[2]: 1, QUEUES[4]: 50}

    assert ranges_between(start, end) == [QueueRange("T", "a", 0, 5, 8)]
    assert ranges_cut(start, end) == [QueueRange("T", "a", 2, 1, 4)]


@given(
    st.lists(st.integers(1, 10_000), min_size=1, max_size=8),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, 5_000),
)
@settings(max_examples=300, deadline=None)
def test_parts_are_disjoint_and_cover(
    sizes: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = ranges_of(sizes)
    parts = split_ranges(ranges, min_partitions, max_records)

    for whole in ranges:
        own = [part for part in parts if part.queue == whole.queue]
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(one.end == next_.start for one, next_ in itertools.pairwise(own))
    assert all(part.size > 0 for part in parts)
    if max_records is not None:
        assert max(part.size for part in parts) <= max_records


@pytest.mark.parametrize("wanted", range(1, 65))
def test_as_many_partitions_as_asked_for_within_rounding(wanted: int) -> None:
    even = split_ranges(ranges_of([1_000] * 8), wanted)
    # Each of the eight rounds its share.
    assert abs(len(even) - max(8, wanted)) <= 4
    assert len(split_ranges(ranges_of([64_000]), wanted)) == wanted


def test_small_ranges_stay_whole_and_large_ones_are_split() -> None:
    parts = split_ranges(ranges_of([10, 10, 980]), 10)

    assert [part.size for part in parts[:2]] == [10, 10]
    assert len(parts) == 10


def test_nobody_splits_a_message() -> None:
    assert len(split_ranges(ranges_of([3]), 64)) == 3


@given(st.integers(1, 500), st.lists(st.integers(0, 1_000), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_a_limit_is_never_passed_and_always_used(limit: int, sizes: list[int]) -> None:
    waiting = dict(zip(QUEUES, sizes, strict=False))
    taken = shared_limit(limit, waiting, turn=3)

    assert sum(taken.values()) == min(limit, sum(sizes))
    assert all(0 < count <= waiting[queue] for queue, count in taken.items())


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_no_queue_waits_for_ever_beside_a_large_one(limit: int) -> None:
    waiting = dict(zip(QUEUES, [1_000_000, *[1] * 7], strict=True))
    served: set[MessageQueue] = set()
    for turn in range(8):
        served |= shared_limit(limit, waiting, turn).keys()

    assert served >= set(QUEUES[1:])


def test_shares_are_proportional() -> None:
    taken = shared_limit(40, {QUEUES[0]: 300, QUEUES[1]: 100}, turn=0)

    assert taken == {QUEUES[0]: 30, QUEUES[1]: 10}
