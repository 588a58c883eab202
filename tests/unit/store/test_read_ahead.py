"""Entries that one read of a queue's file brought are there for the next pulls."""

from typing import cast

from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.read_ahead import ReadAhead


class Queue:
    """A hundred entries on disk, or more, then those in memory; counts what is read."""

    def __init__(self, on_disk: int = 100) -> None:
        self.reads = 0
        self.on_disk = on_disk

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


def window(ahead: ReadAhead, queue: Queue, queue_offset: int, count: int) -> memoryview | None:
    return ahead.window(cast("ConsumeQueue", queue), queue_offset, count * ENTRY_BYTES)


def test_a_queue_that_is_drained_is_read_from_disk_once_for_many_pulls() -> None:
    ahead, queue = ReadAhead(), Queue()
    assert numbers(window(ahead, queue, 0, 50)) == list(range(50))
    for start in (4, 8, 43):
        assert numbers(window(ahead, queue, start, 50)) == list(range(start, 50))
    assert queue.reads == 1
    assert numbers(window(ahead, queue, 50, 80)) == list(range(50, 100))
    assert numbers(window(ahead, queue, 60, 2)) == [60, 61]
    assert queue.reads == 2
    assert numbers(window(ahead, queue, 49, 1)) == [49], "what lies before is read again"


def test_the_last_entries_of_a_read_are_read_again_with_those_that_follow() -> None:
    ahead, queue = ReadAhead(), Queue()
    window(ahead, queue, 0, 50)
    assert numbers(window(ahead, queue, 45, 50)) == list(range(45, 95))
    assert queue.reads == 2
    for start in range(94, 100):
        assert numbers(window(ahead, queue, start, 50)) == list(range(start, 100))
    assert queue.reads == 2, "nothing follows on the disk"


def test_what_is_in_memory_is_asked_for_each_time() -> None:
    ahead, queue = ReadAhead(), Queue()
    for _ in range(2):
        assert numbers(window(ahead, queue, 110, 50)) == list(range(110, 120))
    assert queue.reads == 2
    assert window(ahead, queue, 120, 1) is None


def test_groups_that_read_at_different_places_do_not_push_each_other_out() -> None:
    ahead, queue = ReadAhead(), Queue()
    for at in range(0, 14, 2):
        for group in (0, 20, 40, 60):
            assert numbers(window(ahead, queue, group + at, 16)) == list(
                range(group + at, group + 16)
            )
    assert queue.reads == 4


def test_a_group_close_behind_another_reads_nothing() -> None:
    ahead, queue = ReadAhead(), Queue()
    for start in range(0, 56, 14):
        window(ahead, queue, start, 16)
    assert queue.reads == 2, "the second reads on, and further"
    for start in range(56):
        assert numbers(window(ahead, queue, start, 1)) == [start]
    assert queue.reads == 2


def test_a_queue_keeps_only_so_many_reads() -> None:
    ahead, queue = ReadAhead(max_queue_reads=2), Queue()
    for start in (0, 20, 40):
        window(ahead, queue, start, 16)
    window(ahead, queue, 21, 1)
    assert queue.reads == 3
    window(ahead, queue, 1, 1)
    assert queue.reads == 4, "the oldest one went"


def test_only_so_many_reads_are_remembered() -> None:
    ahead = ReadAhead(max_kept_bytes=2 * 50 * ENTRY_BYTES)
    queues = [Queue() for _ in range(3)]
    for queue in queues:
        window(ahead, queue, 0, 50)
    for queue in reversed(queues):
        window(ahead, queue, 10, 5)
    assert [queue.reads for queue in queues] == [2, 1, 1]


def test_who_reads_on_gets_more_with_each_read() -> None:
    ahead, queue = ReadAhead(), Queue(on_disk=10_000)
    for start in range(0, 9_600, 32):
        found = window(ahead, queue, start, 800)
        assert numbers(found) == list(range(start, min(start + len(found or ()) // 20, 10_000)))
        assert 100 < len(numbers(found)) <= 800
    # 700 of the first, then 3,100 of 3,200 each.
    assert queue.reads == 4


def test_who_begins_elsewhere_gets_what_is_asked_for() -> None:
    ahead, queue = ReadAhead(), Queue(on_disk=100_000)
    for start in range(0, 90_000, 5_000):
        window(ahead, queue, start, 800)
    kept = ahead.kept[cast("ConsumeQueue", queue)]
    assert {len(read.entries) for read in kept} == {800 * ENTRY_BYTES}


def test_reading_on_does_not_push_out_others_when_much_is_kept() -> None:
    ahead = ReadAhead(max_kept_bytes=12 * 800 * ENTRY_BYTES)
    queues = [Queue(on_disk=10_000) for _ in range(10)]
    for start in range(0, 9_600, 32):
        for queue in queues:
            assert window(ahead, queue, start, 800) is not None
    kept_bytes = sum(len(read.entries) for reads in ahead.kept.values() for read in reads)
    assert kept_bytes == ahead._kept_bytes <= 12 * 800 * ENTRY_BYTES
    assert max(queue.reads for queue in queues) <= 9_600 // 700 + 3, "each read serves many pulls"
