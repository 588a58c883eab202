"""The search for the end of a queue reads few entries, for any bytes that follow."""

import random
import threading
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.consume_queue.tail_memory import TailMemory
from rocketpy.store.files.real_files import RealFiles
from rocketpy.testing.sim_files import SimFiles
from tests.sampling import sample
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


def memory_of(files: SimFiles, path: Path = FIRST_FILE) -> bytearray:
    node = files._names[path]
    assert node is not None
    return node.memory


@pytest.mark.parametrize("count", [0, 1, 2, 205, 255, 256, 257, 4_000, 4_999, 5_000])
def test_end_is_found_with_few_reads(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimFiles()
    made = make_queue(files, per_file=5_000)
    put_entries(made, count)
    made.flush()
    reads: list[int] = []
    real_open = files.open_file

    def open_file(path: Path) -> object:
        file = real_open(path)
        real_read = file.read

        def read(position: int, size_bytes: int) -> bytes:
            reads.append(size_bytes)
            return real_read(position, size_bytes)

        file.read = read  # type: ignore[method-assign]
        return file

    monkeypatch.setattr(files, "open_file", open_file)
    again = loaded(files, per_file=5_000)
    assert (again.max_offset, again.max_phy_end) == (count, count * SIZE)
    assert not again._disk.has_stray_bytes
    assert len(reads) < 10


@pytest.mark.parametrize("seed", sample(range(30), 2))
def test_bytes_after_trusted_entries_are_ignored(seed: int) -> None:
    """After a power cut the sectors behind the last flush may be old, new or in between."""
    rng = random.Random(seed)
    files = SimFiles()
    made = make_queue(files, per_file=2_000)
    count = rng.randint(1, 1_500)
    put_entries(made, count)
    made.flush()
    torn = b"".join(ENTRY.pack(n * SIZE, SIZE, n) for n in range(count, 2_000))
    memory = memory_of(files)
    for sector in range(count * ENTRY_BYTES // 512, len(memory) // 512):
        start = max(sector * 512, count * ENTRY_BYTES)
        if rng.random() < 0.5:
            at = start - count * ENTRY_BYTES
            memory[start : (sector + 1) * 512] = torn[at : at + (sector + 1) * 512 - start]
    again = loaded(files, per_file=2_000)
    again.cut(count * SIZE)
    assert again.max_offset == count
    assert not any(memory_of(files)[count * ENTRY_BYTES :])


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_without_a_file_in_the_middle_those_behind_it_say_how_long_the_queue_is(
    number: int, is_empty: bool
) -> None:
    files = SimFiles()
    filled(35, files).flush()
    path = DIRECTORY / f"{number * PER_FILE * ENTRY_BYTES:020d}"
    files.remove(path)
    if is_empty:
        files.write_bytes(path, b"")
    again = loaded(files)
    if number == 0 and not is_empty:  # as retention leaves it
        assert not again.has_gap
        assert (again.min_offset, again.max_offset) == (10, 35)
    else:
        assert again.has_gap
        assert (again.min_offset, again.max_offset) == ((number + 1) * PER_FILE, 35)
        again.restart_at(0)
        assert files.list_files(DIRECTORY) == []
        assert not again.has_gap


def test_file_of_a_wrong_name_is_refused() -> None:
    files = SimFiles()
    filled(5, files).flush()
    files.write_bytes(DIRECTORY / "notes.txt", b"x")
    with pytest.raises(StoreFormatError, match=r"notes.txt is not named by an offset"):
        loaded(files)


def test_file_of_another_length_is_refused() -> None:
    files = SimFiles()
    filled(5, files).flush()
    files.write_bytes(FIRST_FILE, files.read_bytes(FIRST_FILE) + b"\0")
    with pytest.raises(StoreFormatError, match="has 201 bytes, the configuration says 200"):
        loaded(files)


def test_empty_last_file_is_removed() -> None:
    files = SimFiles()
    filled(10, files).flush()
    files.write_bytes(DIRECTORY / f"{PER_FILE * ENTRY_BYTES:020d}", b"")
    again = loaded(files)
    assert (again.max_offset, again.file_count) == (10, 1)
    put_entries(again, 3)
    again.flush()
    assert loaded(files).max_offset == 13


def test_full_disk_keeps_the_entries_in_memory_and_a_later_flush_works() -> None:
    files = SimFiles()
    made = filled(15, files)
    files.capacity_bytes = 4096
    with pytest.raises(DiskFullError):
        made.flush()
    assert made.entry(14) == (1_400, SIZE, 2)
    put_entries(made, 1)
    files.capacity_bytes = None
    made.flush()
    assert loaded(files).max_offset == 16


def test_queue_that_begins_late_survives_a_full_disk_too() -> None:
    files = SimFiles()
    made = filled(2, files, start=7)
    files.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        made.flush()
    files.capacity_bytes = None
    made.flush()
    again = loaded(files)
    assert again.max_offset == 9
    assert again.entry(7) == (700, SIZE, 1)


def delete(queue: ConsumeQueue, files: SimFiles) -> None:
    """Rename a queue's topic away and mark the queue, as deleting its topic does."""
    files.make_directories(Path("/store/deleted"))
    if files.exists(DIRECTORY.parent):
        files.rename(DIRECTORY.parent, Path("/store/deleted/1"))
    queue.mark_deleted()


def test_deleted_queue_writes_nothing_and_its_name_is_free_at_once() -> None:
    files = SimFiles()
    old = filled(5, files)
    old.flush()
    assert old.settle()
    put_entries(old, 2)
    delete(old, files)
    new = make_queue(files)
    new.put_recovered(0, 77, SIZE, 9)
    new.flush()
    old.flush()
    assert old.entry(0) is None
    assert loaded(files).max_offset == 1
    assert loaded(files).entry(0) == (77, SIZE, 9)


def test_queue_deleted_before_its_first_file_makes_none() -> None:
    files = SimFiles()
    old = filled(5, files)
    delete(old, files)
    old.flush()
    assert not files.exists(FIRST_FILE)
    assert old.settle()


@pytest.mark.parametrize("has_file", [False, True])
def test_queue_deleted_while_it_is_flushed(has_file: bool) -> None:
    """The deletion comes between the look at the queue and the opening of its file."""
    files = SimFiles()
    space = TailMemory(threading.Lock())
    old = make_queue(files, space=space)
    put_entries(old, 5)
    if has_file:
        old.flush()
        put_entries(old, 2)

    class DeletingLock:
        """A concurrent creation or read sees the completed deletion."""

        def __enter__(self) -> None:
            old.mark_deleted()

        def __exit__(self, *_: object) -> None:
            pass

    old._disk._file_creation_lock = DeletingLock()  # type: ignore[assignment]
    if has_file:
        files.rename(DIRECTORY.parent, Path("/store/deleted/1"))
    old.flush()
    assert not files.exists(DIRECTORY)


def test_on_the_machines_own_files(tmp_path: Path) -> None:
    files = RealFiles()
    made = make_queue(files, per_file=300_000, directory=tmp_path / "T" / "0")
    put_entries(made, 1_000)
    made.flush()
    path = tmp_path / "T" / "0" / ("0" * 20)
    assert path.stat().st_size == 6_000_000
    assert path.stat().st_blocks * 512 < 100_000
    again = make_queue(files, per_file=300_000, directory=tmp_path / "T" / "0")
    again.load()
    assert again.max_offset == 1_000
    assert not again._disk.has_stray_bytes
    assert again.cut(50_000) == 500
    assert again.entry(499) == (49_900, SIZE, 1)
    again.flush()
    files.sync_directories()
    assert ENTRY.unpack_from(path.read_bytes(), 500 * ENTRY_BYTES) == (0, 0, 0)
