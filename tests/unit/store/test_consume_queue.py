from pathlib import Path

import pytest

from rocketpy.errors import QueueGapError
from rocketpy.store.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from rocketpy.testing.sim_files import SimFiles

DIRECTORY = Path("/store/consumequeue/T/0")
PER_FILE = 10
SIZE = 100


def queue(files: SimFiles) -> ConsumeQueue:
    return ConsumeQueue("T", 0, DIRECTORY, PER_FILE * ENTRY_BYTES, files)


def filled(count: int, files: SimFiles | None = None, start: int = 0) -> ConsumeQueue:
    """Entries whose messages lie every hundred bytes."""
    made = queue(files or SimFiles())
    made.next_offset = start
    for number in range(start, start + count):
        made.reserve()
        made.next_offset = number + 1
        made.put(number, number * SIZE, SIZE, number % 3)
    return made


def test_entries_come_back_over_files_and_a_restart() -> None:
    files = SimFiles()
    made = filled(25, files)
    assert made.file_count == 3
    assert [made.entry(n) for n in (0, 9, 10, 24)] == [
        (0, SIZE, 0), (900, SIZE, 0), (1000, SIZE, 1), (2400, SIZE, 0)
    ]  # fmt: skip
    made.flush()
    made.close()
    again = queue(files)
    again.load()
    assert (again.min_offset, again.max_offset, again.next_offset) == (0, 25, 25)
    assert again.max_phy_end == 2500
    assert again.entry(25) is None


def test_entries_are_big_endian_as_in_apaches_files() -> None:
    files = SimFiles()
    filled(2, files).flush()
    data = files.read_bytes(DIRECTORY / ("0" * 20))
    assert len(data) == PER_FILE * ENTRY_BYTES
    assert ENTRY.unpack_from(data, ENTRY_BYTES) == (100, SIZE, 1)


def test_only_the_next_entry_is_taken() -> None:
    made = filled(3)
    made.reserve(2)
    for wrong in (2, 4):
        with pytest.raises(QueueGapError):
            made.put(wrong, 0, 1, 0)
    with pytest.raises(QueueGapError):
        made.put_recovered(4, 400, SIZE, 0)


def test_a_window_ends_with_its_file() -> None:
    made = filled(25)
    window = made.window(7, 1 << 20)
    assert window is not None
    assert len(window) == 3 * ENTRY_BYTES
    assert made.next_file_offset(7) == 10
    small = made.window(20, 2 * ENTRY_BYTES)
    assert small is not None
    assert len(small) == 2 * ENTRY_BYTES
    assert made.window(25, 100) is None
    assert made.window(99, 100) is None


def test_a_queue_may_begin_late() -> None:
    files = SimFiles()
    made = filled(3, files, start=14)
    assert (made.min_offset, made.max_offset) == (14, 17)
    made.flush()
    again = queue(files)
    again.load()
    assert again.max_offset == 17
    again.correct_min_offset(1_500)
    assert again.min_offset == 15


def test_an_entry_is_corrected_only_where_it_differs() -> None:
    made = filled(5)
    made.flush()
    assert not made.put_recovered(2, 200, SIZE, 2)
    assert made.dirty_bytes == 0
    assert made.put_recovered(2, 201, SIZE, 2)
    assert made.entry(2) == (201, SIZE, 2)
    assert made.dirty_bytes == 3 * ENTRY_BYTES
    assert made.put_recovered(5, 500, SIZE, 0)
    assert (made.max_offset, made.next_offset) == (6, 6)


def test_cutting_erases_what_is_not_trusted() -> None:
    files = SimFiles()
    made = filled(25, files)
    assert made.cut(1_250) == 12
    assert (made.max_offset, made.next_offset, made.max_phy_end) == (13, 13, 1_300)
    again = queue(files)
    again.load()
    assert again.max_offset == 13
    assert made.put_recovered(13, 5_000, SIZE, 0)


def test_old_files_go_but_never_the_last() -> None:
    made = filled(25)
    assert made.delete_expired(1_000) == 1
    assert made.min_offset == 10
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


def test_starting_anew_at_an_offset() -> None:
    made = filled(12)
    made.restart_at(40)
    assert (made.min_offset, made.max_offset, made.file_count) == (40, 40, 0)
    assert made.put_recovered(40, 9_000, SIZE, 0)
    assert made.entry(40) == (9_000, SIZE, 0)
