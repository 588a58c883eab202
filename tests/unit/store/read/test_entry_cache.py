"""Entries that one read of a queue's file brought are there for the next pulls."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.read.entry_cache import EntryCache


class Queue:
    """A hundred entries on disk, or more, then those in memory; counts what is read."""

    def __init__(self, on_disk: int = 100) -> None:
        self.reads = 0
        self.on_disk = on_disk
        self.life = object()

    def is_in_memory(self, queue_offset: int) -> bool:
        return queue_offset >= self.on_disk

    def window(self, queue_offset: int, max_bytes: int) -> memoryview | None:
        self.reads += 1
        end = self.on_disk + 20 * self.is_in_memory(queue_offset)
        numbers = range(queue_offset, min(queue_offset + max_bytes // ENTRY_BYTES, end))
        return memoryview(b"".join(ENTRY.pack(n, 1, 0) for n in numbers)) if numbers else None


def numbers(window: memoryview | None) -> list[int]:
    assert window is not None
    return [phy_offset for phy_offset, _, _ in ENTRY.iter_unpack(window)]


def window(ahead: EntryCache, queue: Queue, queue_offset: int, count: int) -> memoryview | None:
    return ahead.window(cast("ConsumeQueue", queue), queue_offset, count * ENTRY_BYTES)


def test_queue_that_is_drained_is_read_from_disk_once_for_many_pulls() -> None:
    ahead, queue = EntryCache(), Queue()
    assert numbers(window(ahead, queue, 0, 50)) == list(range(50))
    for start in (4, 8, 43):
        assert numbers(window(ahead, queue, start, 50)) == list(range(start, 50))
    assert queue.reads == 1
    assert numbers(window(ahead, queue, 50, 80)) == list(range(50, 100))
    assert numbers(window(ahead, queue, 60, 2)) == [60, 61]
    assert queue.reads == 2
    assert numbers(window(ahead, queue, 49, 1)) == [49], "what lies before is read again"


def test_last_entries_of_a_read_are_read_again_with_those_that_follow() -> None:
    ahead, queue = EntryCache(), Queue()
    window(ahead, queue, 0, 50)
    assert numbers(window(ahead, queue, 45, 50)) == list(range(45, 95))
    assert queue.reads == 2
    for start in range(94, 100):
        assert numbers(window(ahead, queue, start, 50)) == list(range(start, 100))
    assert queue.reads == 2, "nothing follows on the disk"


def test_entries_in_memory_are_not_cached() -> None:
    ahead, queue = EntryCache(), Queue()
    for _ in range(2):
        assert numbers(window(ahead, queue, 110, 50)) == list(range(110, 120))
    assert queue.reads == 2
    assert window(ahead, queue, 120, 1) is None


def test_groups_that_read_at_different_places_do_not_push_each_other_out() -> None:
    ahead, queue = EntryCache(), Queue()
    for at in range(0, 14, 2):
        for group in (0, 20, 40, 60):
            assert numbers(window(ahead, queue, group + at, 16)) == list(
                range(group + at, group + 16)
            )
    assert queue.reads == 4


def test_group_close_behind_another_reads_little() -> None:
    ahead, queue = EntryCache(), Queue(on_disk=10_000)
    for start in range(0, 9_000, 4):
        for group_start in (start, max(0, start - 200)):
            found = window(ahead, queue, group_start, 80)
            assert numbers(found)[0] == group_start
    # 320 of each but the first for the one before; now and then 80 for the other.
    assert queue.reads < 2 * 9_000 // 310 + 4


def test_queue_keeps_only_so_many_reads() -> None:
    ahead, queue = EntryCache(max_queue_reads=2), Queue()
    for start in (0, 20, 40):
        window(ahead, queue, start, 16)
    window(ahead, queue, 21, 1)
    assert queue.reads == 3
    window(ahead, queue, 1, 1)
    assert queue.reads == 4, "the oldest one went"


def test_only_so_many_reads_are_remembered() -> None:
    ahead = EntryCache(max_reads=2)
    queues = [Queue() for _ in range(3)]
    for queue in queues:
        window(ahead, queue, 0, 50)
    for queue in reversed(queues):
        window(ahead, queue, 10, 5)
    assert [queue.reads for queue in queues] == [2, 1, 1]


def test_only_so_many_bytes_are_remembered() -> None:
    ahead = EntryCache(max_kept_bytes=100 * ENTRY_BYTES)
    queues = [Queue() for _ in range(3)]
    for queue in queues:
        window(ahead, queue, 0, 50)
    for queue in reversed(queues):
        window(ahead, queue, 10, 5)
    assert [queue.reads for queue in queues] == [2, 1, 1]


def test_many_queues_at_rest_take_no_more_than_so_many_reads() -> None:
    ahead = EntryCache()
    for queue in [Queue(on_disk=2) for _ in range(5_000)]:
        window(ahead, queue, 0, 800)
    assert len(ahead.kept) == len(ahead._made) == 256


def test_restarted_queue_invalidates_cache() -> None:
    ahead, queue = EntryCache(), Queue()
    window(ahead, queue, 0, 50)
    queue.life = object()
    assert numbers(window(ahead, queue, 0, 50)) == list(range(50))
    assert queue.reads == 2


def test_sequential_reads_grow_in_size() -> None:
    ahead, queue = EntryCache(), Queue(on_disk=10_000)
    for start in range(0, 9_600, 32):
        found = window(ahead, queue, start, 800)
        assert numbers(found) == list(range(start, min(start + len(found or ()) // 20, 10_000)))
        assert 100 < len(numbers(found)) <= 800
    # 700 of the first, then 3,100 of 3,200 each.
    assert queue.reads == 4
    assert len(ahead.kept[queue.life]) == 1, "what was read through is given up"


def test_random_read_returns_requested_size() -> None:
    ahead, queue = EntryCache(), Queue(on_disk=100_000)
    for start in range(0, 90_000, 5_000):
        window(ahead, queue, start, 800)
    kept = ahead.kept[queue.life]
    assert {len(read.entries) for read in kept} == {800 * ENTRY_BYTES}


def test_one_queue_after_another_is_drained_in_large_reads() -> None:
    ahead = EntryCache()
    for queue in [Queue(on_disk=30_000) for _ in range(100)]:
        for start in range(0, 30_000, 32):
            window(ahead, queue, start, 800)
        assert queue.reads == 11


@pytest.mark.parametrize(("count", "most"), [(1, 4), (8, 4), (31, 4), (60, 15), (200, 15)])
def test_concurrent_drains_do_not_evict_each_other(count: int, most: int) -> None:
    ahead = EntryCache()
    queues = [Queue(on_disk=10_000) for _ in range(count)]
    for start in range(0, 9_600, 32):
        for queue in queues:
            assert window(ahead, queue, start, 800) is not None
    assert max(queue.reads for queue in queues) <= most
    assert_counted(ahead)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300), st.integers(1, 40))))
def test_cached_bytes_match_the_count(pulls: list[tuple[int, int, int]]) -> None:
    ahead = EntryCache(max_reads=8, max_queue_reads=3, max_kept_bytes=200 * ENTRY_BYTES)
    queues = [Queue(on_disk=100 * number + 1) for number in range(5)]
    for number, start, count in pulls:
        queue = queues[number]
        if start < queue.on_disk + 20:
            found = numbers(window(ahead, queue, start, count))
            assert found == list(range(start, start + len(found)))
            assert 0 < len(found) <= count
        assert_counted(ahead)


def assert_counted(ahead: EntryCache) -> None:
    kept = [(life, read) for life, reads in ahead.kept.items() for read in reads]
    assert {(life, read.start) for life, read in kept} == ahead._made.keys()
    assert sum(len(read.entries) for _, read in kept) == ahead._kept_bytes
    assert len(kept) == len(ahead._made) <= ahead._max_reads
    assert len(ahead.kept) == 1 or ahead._kept_bytes <= ahead._max_kept_bytes
