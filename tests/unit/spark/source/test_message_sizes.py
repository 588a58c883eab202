"""Limits of bytes are exact and shared, and never stop a stream."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.source.message_sizes import PAGE, within_bytes

QUEUES = [MessageQueue("T", "a", number) for number in range(5)]


class Entries:
    """Sizes of messages, and the requested counts."""

    def __init__(self, sizes: list[list[int]]) -> None:
        self.sizes = dict(zip(QUEUES, sizes, strict=False))
        self.asked = 0

    async def __call__(self, queue: MessageQueue, start: int, count: int) -> list[int]:
        assert count <= PAGE
        self.asked += count
        return self.sizes[queue][start : start + count]

    def reach(self, limit: int, turn: int = 0) -> dict[MessageQueue, int]:
        begins = dict.fromkeys(self.sizes, 0)
        ends = {queue: len(each) for queue, each in self.sizes.items()}
        return asyncio.run(within_bytes(limit, begins, ends, self, turn))

    def bytes_until(self, reach: dict[MessageQueue, int]) -> int:
        return sum(sum(self.sizes[queue][:end]) for queue, end in reach.items())


@given(
    st.lists(st.lists(st.integers(1, 2_000), max_size=40), min_size=1, max_size=5),
    st.integers(1, 30_000),
    st.integers(0, 9),
)
@settings(max_examples=200, deadline=None)
def test_within_bytes_uses_and_keeps_the_limit(
    sizes: list[list[int]], limit: int, turn: int
) -> None:
    entries = Entries(sizes)
    reach = entries.reach(limit, turn)
    used = entries.bytes_until(reach)
    total = sum(map(sum, sizes))
    following = [
        each[reach[queue]] for queue, each in entries.sizes.items() if reach[queue] < len(each)
    ]

    if used > limit:  # one message, larger than the limit
        assert sum(reach.values()) == 1
    elif used < total:
        assert all(used + size > limit for size in following)
    if total:
        assert sum(reach.values()) > 0


def test_within_bytes_loads_pages_up_to_the_limit() -> None:
    entries = Entries([[100] * 10_000])

    assert entries.reach(100 * 3_500) == {QUEUES[0]: 3_500}
    assert entries.asked <= 4 * PAGE


@pytest.mark.parametrize("turn", range(5))
def test_within_bytes_large_messages_take_turns(turn: int) -> None:
    entries = Entries([[1_000]] * 5)

    assert entries.reach(10, turn)[QUEUES[turn]] == 1


def test_within_bytes_divides_by_backlog() -> None:
    reach = Entries([[100] * 300, [100] * 100]).reach(4_000)

    assert reach == {QUEUES[0]: 30, QUEUES[1]: 10}


@pytest.mark.parametrize("size", [900, 5_000])
def test_within_bytes_large_message_beside_a_busy_queue_is_read(size: int) -> None:
    """The busy queue has a thousand times the backlog, and would use the complete limit."""
    position = {QUEUES[0]: 0, QUEUES[1]: 0}
    entries = Entries([[10] * 100_000, [size] * 3])

    for turn in range(1, 7):
        ends = {QUEUES[0]: 100_000, QUEUES[1]: 3}
        position = asyncio.run(within_bytes(1_000, position, ends, entries, turn))

    assert position[QUEUES[1]] == 3
    assert position[QUEUES[0]] > 100
