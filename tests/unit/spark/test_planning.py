"""Plans: disjoint and complete ranges, Kafka's split rule, fair limits."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.planning import (
    ranges_between,
    ranges_cut,
    shared_limit,
    split_present,
    split_ranges,
)

QUEUES = [MessageQueue("T", "a", queue_id) for queue_id in range(8)]


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [QueueRange("T", "a", number, 7, 7 + size) for number, size in enumerate(sizes)]


def test_ranges_between_skips_queues_of_one_position() -> None:
    start = {QUEUES[0]: 5, QUEUES[1]: 9, QUEUES[2]: 4, QUEUES[3]: 2}
    end = {QUEUES[0]: 8, QUEUES[1]: 9, QUEUES[2]: 1, QUEUES[4]: 50}

    assert ranges_between(start, end) == [QueueRange("T", "a", 0, 5, 8)]
    assert ranges_cut(start, end) == [QueueRange("T", "a", 2, 1, 4)]


@given(
    st.lists(st.integers(1, 1_000), min_size=1, max_size=8),
    st.none() | st.integers(1, 64),
    st.none() | st.integers(1, 500),
)
@settings(max_examples=300, deadline=None)
def test_split_ranges_are_disjoint_and_complete(
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


def test_split_present_keeps_lost_messages_in_one_part() -> None:
    ranges = [
        QueueRange("T", "a", 0, 0, 30),
        QueueRange("T", "a", 1, 0, 30),
        QueueRange("T", "a", 2, 5, 25),
    ]
    firsts = {QUEUES[0]: 10, QUEUES[1]: 40, QUEUES[2]: 0}
    assert split_present(ranges, firsts, max_records=10) == [
        QueueRange("T", "a", 0, 0, 20),
        QueueRange("T", "a", 0, 20, 30),
        QueueRange("T", "a", 1, 0, 30),
        QueueRange("T", "a", 2, 5, 15),
        QueueRange("T", "a", 2, 15, 25),
    ]
    assert split_present(ranges[1:2], firsts, min_partitions=8) == ranges[1:2]


@pytest.mark.parametrize("wanted", range(1, 65))
def test_split_ranges_gives_about_min_partitions(wanted: int) -> None:
    even = split_ranges(ranges_of([1_000] * 8), wanted)
    # Each of the eight ranges rounds its share.
    assert abs(len(even) - max(8, wanted)) <= 4
    assert len(split_ranges(ranges_of([64_000]), wanted)) == wanted


def test_split_ranges_splits_only_large_ranges() -> None:
    parts = split_ranges(ranges_of([10, 10, 980]), 10)

    assert [part.size for part in parts[:2]] == [10, 10]
    assert len(parts) == 10


def test_split_ranges_of_single_messages_are_unchanged() -> None:
    assert len(split_ranges(ranges_of([3]), 64)) == 3


@given(st.integers(1, 500), st.lists(st.integers(0, 1_000), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_shared_limit_is_used_and_kept(limit: int, sizes: list[int]) -> None:
    waiting = dict(zip(QUEUES, sizes, strict=False))
    taken = shared_limit(limit, waiting, turn=3)

    assert sum(taken.values()) == min(limit, sum(sizes))
    assert all(0 < count <= waiting[queue] for queue, count in taken.items())


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_shared_limit_does_not_starve_small_queues(limit: int) -> None:
    waiting = dict(zip(QUEUES, [1_000_000, *[1] * 7], strict=True))
    served: set[MessageQueue] = set()
    for turn in range(8):
        served |= shared_limit(limit, waiting, turn).keys()

    assert served >= set(QUEUES[1:])


def test_shared_limit_is_proportional() -> None:
    taken = shared_limit(40, {QUEUES[0]: 300, QUEUES[1]: 100}, turn=0)

    assert taken == {QUEUES[0]: 30, QUEUES[1]: 10}
