"""A consume queue keeps its entries, in memory or on disk; putting touches no file."""

import random
import threading

import pytest

from rocketpy.errors import QueueGapError, ResourceShortError
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.consume_queue.tail_memory import TailMemory
from rocketpy.testing.sim_files import SimFiles
from tests.unit.store.queue_kit import (
    DIRECTORY,
    FIRST_FILE,
    PER_FILE,
    SIZE,
    filled,
    loaded,
    make_queue,
    put_entries,
)


def entries(queue: ConsumeQueue, start: int = 0) -> list[tuple[int, int, int]]:
    """All entries, as a reader finds them window by window."""
    found: list[tuple[int, int, int]] = []
    while True:
        window = queue.window(start + len(found), 3 * ENTRY_BYTES)
        if window is None:
            return found
        found += ENTRY.iter_unpack(window)


def expected(count: int, start: int = 0) -> list[tuple[int, int, int]]:
    return [(n * SIZE, SIZE, n % 3) for n in range(start, start + count)]


def test_entries_come_back_over_files_and_a_restart() -> None:
    files = SimFiles()
    made = filled(25, files)
    assert entries(made) == expected(25)
    assert files.list_files(DIRECTORY) == []
    made.flush()
    assert made.file_count == 3
    assert entries(made) == expected(25)
    made.close()
    again = loaded(files)
    assert (again.min_offset, again.max_offset, again.next_offset) == (0, 25, 25)
    assert again.max_phy_end == 2500
    assert entries(again) == expected(25)
    assert again.entry(25) is None
    assert again.entry(-1) is None
    assert files.open_files == 0


def test_entries_are_big_endian_as_in_apaches_files() -> None:
    files = SimFiles()
    filled(2, files).flush()
    data = files.read_bytes(FIRST_FILE)
    assert len(data) == PER_FILE * ENTRY_BYTES
    assert ENTRY.unpack_from(data, ENTRY_BYTES) == (100, SIZE, 1)


def test_only_the_next_entry_is_taken() -> None:
    made = filled(3)
    made.reserve(2)
    for wrong in (2, 4):
        with pytest.raises(QueueGapError):
            made.put(wrong, 0, 1, 0)
        with pytest.raises(QueueGapError):
            made.put_run(wrong, [0], [1], [0])
        with pytest.raises(QueueGapError):
            made.put_recovered(wrong, wrong * SIZE, SIZE, 77)


def test_run_is_put_as_single_entries_are() -> None:
    made = filled(3)
    made.reserve(9)
    made.next_offset = 12
    numbers = range(3, 12)
    made.put_run(3, [n * SIZE for n in numbers], [SIZE] * 9, [n % 3 for n in numbers])
    assert (made.max_offset, made.max_phy_end) == (12, 1200)
    assert entries(made) == expected(12)


def test_room_that_was_promised_is_there_however_often_the_memory_moves() -> None:
    """With SYNC_FLUSH a message is appended long before its entry is put."""
    made = make_queue(SimFiles())
    for _ in range(40):
        if made.next_offset >= made.reserved_offset:
            made.reserve()
        made.next_offset += 1
        if made.next_offset % 7 == 0:
            for number in range(made.max_offset, made.next_offset):
                made.put(number, number * SIZE, SIZE, number % 3)
            made.flush()
            assert made.settle()
    for number in range(made.max_offset, made.next_offset):
        made.put(number, number * SIZE, SIZE, number % 3)
    assert entries(made) == expected(40)


def test_reader_keeps_its_window_while_the_memory_moves() -> None:
    made = filled(5)
    window = made.window(0, 5 * ENTRY_BYTES)
    assert window is not None
    put_entries(made, 100)
    made.flush()
    assert made.settle()
    assert list(ENTRY.iter_unpack(window)) == expected(5)


def test_window_goes_from_disk_to_memory() -> None:
    made = filled(12)
    made.flush()
    assert made.settle()
    put_entries(made, 3)
    assert entries(made) == expected(15)
    assert made.next_file_offset(7) == 10
    assert made.window(15, 100) is None
    assert made.window(99, 100) is None
    assert made.window(3, ENTRY_BYTES - 1) is None


def test_queue_at_rest_holds_no_memory() -> None:
    space = TailMemory(threading.Lock())
    made = make_queue(SimFiles(), space=space)
    put_entries(made, 3)
    assert not made.settle()
    assert space.queues() == [made]
    assert space.used_bytes > 0
    made.flush()
    space.settle()
    assert (space.queues(), space.used_bytes, made.dirty_bytes) == ([], 0, 0)
    put_entries(made, 1)
    assert space.queues() == [made]
    assert entries(made) == expected(4)


def test_memory_of_all_queues_is_bounded_and_room_comes_back_with_the_disk() -> None:
    space = TailMemory(threading.Lock(), limit_bytes=64 * ENTRY_BYTES)
    made = make_queue(SimFiles(), space=space)
    with pytest.raises(ResourceShortError, match="that are not flushed yet"):
        put_entries(made, 100)
    count = made.max_offset
    assert 0 < count <= 64
    assert space.used_bytes <= 64 * ENTRY_BYTES
    made.flush()
    put_entries(made, 1)
    assert entries(made) == expected(count + 1)


def test_queue_may_begin_late() -> None:
    files = SimFiles()
    made = filled(3, files, start=14)
    assert (made.min_offset, made.max_offset) == (14, 17)
    made.correct_min_offset(0)
    assert made.min_offset == 14
    made.flush()
    again = loaded(files)
    assert again.max_offset == 17
    assert entries(again, 14) == expected(3, 14)
    again.correct_min_offset(0)
    assert again.min_offset == 14
    again.correct_min_offset(1_500)
    assert again.min_offset == 15


def test_recovered_entry_is_put_once() -> None:
    made = filled(5)
    made.flush()
    assert not made.put_recovered(2, 200, SIZE, 2)
    assert made.dirty_bytes == 0
    with pytest.raises(QueueGapError):
        made.put_recovered(2, 201, SIZE, 2)
    assert made.put_recovered(5, 500, SIZE, 2)
    assert (made.max_offset, made.next_offset) == (6, 6)
    assert entries(made) == expected(6)


def test_recovery_brings_entries_to_disk_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketpy.store.consume_queue.tail_memory._RELIEF_BYTES", 20 * ENTRY_BYTES)
    space = TailMemory(threading.Lock(), limit_bytes=80 * ENTRY_BYTES)
    made = make_queue(SimFiles(), space=space)
    for number in range(500):
        made.put_recovered(number, number * SIZE, SIZE, number % 3)
    assert entries(made) == expected(500)
    assert made.flushed_offset > 400


# -- cutting -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 9, 10, 13, 24, 25])
def test_cutting_drops_what_is_not_trusted(kept: int, is_flushed: bool) -> None:
    files = SimFiles()
    made = filled(25, files)
    if is_flushed:
        made.flush()
    assert made.cut(kept * SIZE) == 25 - kept
    assert (made.max_offset, made.next_offset) == (kept, kept)
    assert made.max_phy_end == kept * SIZE
    assert entries(made) == expected(kept)
    made.flush()
    assert loaded(files).max_offset == kept
    put_entries(made, 3)
    assert entries(made) == expected(kept + 3)


def test_cutting_within_memory_keeps_what_is_on_disk() -> None:
    files = SimFiles()
    made = filled(12, files)
    made.flush()
    put_entries(made, 6)
    assert made.cut(1_500) == 3
    assert entries(made) == expected(15)
    assert made.cut(700) == 8
    assert entries(made) == expected(7)


def test_stale_entries_are_gone_from_the_disk_before_the_checkpoint_may_move() -> None:
    files = SimFiles()
    filled(25, files).flush()
    again = loaded(files)
    again.cut(500)
    flushes = files.flush_count
    assert not again.settle()
    again.flush()
    assert files.flush_count == flushes + 1
    assert again.settle()
    data = files.read_bytes(FIRST_FILE)
    assert not any(data[5 * ENTRY_BYTES :])
    assert files.list_files(DIRECTORY) == [FIRST_FILE.name]


def test_cutting_a_clean_queue_touches_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimFiles()
    filled(25, files).flush()
    again = loaded(files)
    monkeypatch.setattr(files, "open_file", None)
    assert again.cut(2_500) == 0


# -- retention and time --------------------------------------------------------------------


def test_old_files_go_but_never_the_last() -> None:
    made = filled(25)
    assert made.delete_expired(1_000) == 0
    made.flush()
    assert made.settle()
    assert made.delete_expired(1_000) == 1
    assert made.min_offset == 10
    assert made.entry(3) is None
    assert made.delete_expired(1 << 40) == 1
    assert (made.file_count, made.max_offset) == (1, 25)


@pytest.mark.parametrize(
    ("time_ms", "first_not_before", "last_not_after"),
    [(-1, 0, 0), (0, 0, 1), (5, 2, 1), (10, 2, 3), (41, 9, 8), (99, 9, 8)],
)
def test_offsets_by_time(time_ms: int, first_not_before: int, last_not_after: int) -> None:
    made = filled(9)

    def time_of(phy_offset: int, _size: int) -> int:
        return phy_offset // 200 * 10  # two messages every ten milliseconds

    assert made.offset_by_time(time_ms, time_of, upper=False) == first_not_before
    assert made.offset_by_time(time_ms, time_of, upper=True) == last_not_after


def test_queue_restarts_at_offset() -> None:
    files = SimFiles()
    made = filled(12, files)
    made.flush()
    made.restart_at(40)
    assert (made.min_offset, made.max_offset, made.file_count) == (40, 40, 0)
    assert files.list_files(DIRECTORY) == []
    assert made.put_recovered(40, 9_000, SIZE, 0)
    assert made.entry(40) == (9_000, SIZE, 0)
    made.flush()
    assert loaded(files).max_offset == 41


def test_erasure_of_killed_process_is_on_disk_after_next_flush() -> None:
    """Its zeros are in memory only: a power cut would bring stale entries back."""
    files = SimFiles()
    filled(25, files).flush()
    files.sync_directories()
    killed = loaded(files)
    killed.cut(500)
    files.kill()
    space = TailMemory(threading.Lock())
    again = make_queue(files, space=space)
    again.load(after_crash=True)
    assert (again.max_offset, space.queues()) == (5, [again])
    assert not again.settle()
    again.flush()
    files.sync_directories()
    assert again.settle()
    files.power_cut(random.Random(1))
    after = loaded(files)
    assert after.max_offset == 5
    assert not after._disk.has_stray_bytes
