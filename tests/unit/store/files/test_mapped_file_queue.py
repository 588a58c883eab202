"""Files that follow one another without a hole: found, read, made, truncated and deleted."""

import logging
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.store.files.mapped_file import PAGE_BYTES
from rocketpy.store.files.mapped_file_queue import MappedFileQueue, file_name
from rocketpy.store.files.real_files import RealFiles
from rocketpy.testing.sim_files import SimFiles

LOG = Path("/log")


def queue(files: SimFiles | RealFiles, directory: Path = LOG) -> MappedFileQueue:
    return MappedFileQueue(directory, PAGE_BYTES, files, step_bytes=PAGE_BYTES)


def with_three_files(files: SimFiles) -> list[Path]:
    made = queue(files)
    for number in range(3):
        made.create(number * PAGE_BYTES)
    made.close()
    return [LOG / file_name(number * PAGE_BYTES) for number in range(3)]


def test_reader_keeps_the_memory_of_a_file_that_is_deleted(tmp_path: Path) -> None:
    made = queue(RealFiles(), tmp_path)
    mapped = made.create(0)
    made.create(PAGE_BYTES)
    mapped.buffer[:3] = b"abc"
    made.remove_first()
    assert bytes(mapped.view[:3]) == b"abc"  # a reader that found the file before
    made.close()
    assert bytes(mapped.view[:3]) == b"abc"
    assert not mapped.path.exists()


def test_only_an_empty_last_file_is_removed() -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[2], b"")
    made = queue(files)
    made.load()
    assert [each.path for each in made.files] == paths[:2]
    assert not files.exists(paths[2])


@pytest.mark.parametrize("number", [0, 1])
def test_empty_file_before_data_refuses_the_start_and_nothing_is_deleted(number: int) -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[number], b"")
    files.write_bytes(paths[2], b"data".ljust(PAGE_BYTES, b"\0"))
    with pytest.raises(StoreFormatError, match=rf"{paths[number].name}"):
        queue(files).load()
    assert all(files.exists(path) for path in paths)
    assert files.open_count <= number  # those that were mapped before


def test_missing_file_is_named() -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.remove(paths[1])
    with pytest.raises(StoreFormatError, match=rf"{paths[1].name} is missing"):
        queue(files).load()


def test_files_are_named_by_their_first_byte() -> None:
    assert file_name(0) == "0" * 20
    assert file_name(1 << 40) == "00000001099511627776"
    made = queue(SimFiles())
    assert (made.first, made.last, made.files) == (None, None, ())
    made.create(3 * PAGE_BYTES)  # the first one may begin anywhere
    made.create(4 * PAGE_BYTES)
    assert made.first is made.files[0]
    assert made.last is made.files[1]
    assert [each.path.name for each in made.files] == [
        file_name(3 * PAGE_BYTES),
        file_name(4 * PAGE_BYTES),
    ]


def test_loaded_files_count_as_completely_written() -> None:
    files = SimFiles()
    with_three_files(files)
    made = queue(files)
    made.load()
    assert [each.base_offset for each in made.files] == [0, PAGE_BYTES, 2 * PAGE_BYTES]
    assert {each.write_position for each in made.files} == {PAGE_BYTES}
    assert {each.flushed for each in made.files} == {PAGE_BYTES}


def test_directory_that_is_not_there_holds_nothing() -> None:
    made = queue(SimFiles(), Path("/none"))
    made.load()
    assert made.files == ()


def test_only_the_last_file_keeps_its_descriptor() -> None:
    files = SimFiles()
    with_three_files(files)
    assert files.open_count == 0
    queue(files).load()
    assert files.open_count == 1


@pytest.mark.parametrize("name", ["x", "0" * 19, "0" * 21, "0" * 19 + "x", "lock"])
def test_file_with_foreign_name_is_rejected(name: str) -> None:
    files = SimFiles()
    with_three_files(files)
    files.write_bytes(LOG / name, b"not ours")
    with pytest.raises(StoreFormatError, match="not named by a 20-digit offset"):
        queue(files).load()
    assert files.read_bytes(LOG / name) == b"not ours"


@pytest.mark.parametrize("size_bytes", [1, PAGE_BYTES - 1, PAGE_BYTES + 1])
def test_file_of_another_length_is_refused_and_both_lengths_are_named(size_bytes: int) -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[1], bytes(size_bytes))
    reason = f"has {size_bytes} bytes, the configuration says {PAGE_BYTES}"
    with pytest.raises(StoreFormatError, match=reason):
        queue(files).load()


def test_directory_in_the_place_of_a_file_is_refused() -> None:
    files = SimFiles()
    with_three_files(files)
    made = queue(files)
    for name in ("sub", "0" * 19, "x" * 20):
        files.make_directories(LOG / name)
    made.check_no_directories()
    files.make_directories(LOG / file_name(3 * PAGE_BYTES))
    with pytest.raises(StoreFormatError, match="is a directory, not a log file"):
        made.check_no_directories()


def test_several_unwritten_files_are_removed_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of two made one after the other a power cut may keep the length of the later one only."""
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[1], b"")
    made = queue(files)
    with caplog.at_level(logging.WARNING):
        made.load()
    assert [each.path for each in made.files] == paths[:1]
    assert not files.exists(paths[1])
    assert not files.exists(paths[2])
    assert caplog.text.count("unwritten file removed") == 2


def test_rebuildable_files_are_removed_from_first_empty_one() -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[1], b"")
    files.write_bytes(paths[2], b"entries".ljust(PAGE_BYTES, b"\0"))
    made = queue(files)
    made.load(rebuildable=True)
    assert [each.path for each in made.files] == paths[:1]
    assert files.list_files(LOG) == [paths[0].name]


def test_byte_is_found_in_the_file_that_holds_it() -> None:
    made = queue(SimFiles())
    assert made.find(0) is None
    first, second = made.create(PAGE_BYTES), made.create(2 * PAGE_BYTES)
    assert made.find(PAGE_BYTES - 1) is None
    assert made.find(PAGE_BYTES) is made.find(2 * PAGE_BYTES - 1) is first
    assert made.find(2 * PAGE_BYTES) is made.find(3 * PAGE_BYTES - 1) is second
    assert made.find(3 * PAGE_BYTES) is None


def test_written_part_excludes_unwritten_bytes() -> None:
    made = queue(SimFiles())
    mapped = made.create(PAGE_BYTES)
    mapped.buffer[:3] = b"abc"
    mapped.write_position = 3
    memory, begin, end = made.written_part(PAGE_BYTES + 1)
    assert (bytes(memory[: end - begin]), begin, end) == (b"abc", PAGE_BYTES, PAGE_BYTES + 3)
    memory, begin, end = made.written_part(0)
    assert (len(memory), begin, end) == (0, 0, 0)


def test_written_bytes_are_read_by_a_system_call_and_no_others() -> None:
    files = SimFiles()
    made = queue(files)
    mapped = made.create(PAGE_BYTES)
    mapped.buffer[:4] = b"abcd"
    mapped.write_position = 4
    found = made.read(PAGE_BYTES + 1, 3)
    assert found is not None
    assert bytes(found) == b"bcd"
    assert made.read(PAGE_BYTES + 2, 3) is None, "one byte further than what is written"
    assert made.read(0, 1) is None
    files.remove(mapped.path)
    assert made.read(PAGE_BYTES, 1) is None, "retention was quicker"
    assert files.open_files == 0


def test_file_for_which_there_is_no_space_leaves_nothing_behind() -> None:
    files = SimFiles(capacity_bytes=0)
    made = queue(files)
    with pytest.raises(DiskFullError):
        made.create(0)
    assert made.files == ()
    assert files.list_files(LOG) == []
    assert files.open_count == 0
    files.capacity_bytes = None
    made.create(0)
    assert len(made.files) == 1


def test_file_is_made_beside_the_queue_and_added_later() -> None:
    made = queue(SimFiles())
    mapped = made.make(0)
    assert len(made.files) == 0
    assert mapped.allocated == PAGE_BYTES
    made.add(mapped)
    assert list(made.files) == [mapped]


def test_files_go_one_by_one_from_either_end() -> None:
    files = SimFiles()
    with_three_files(files)
    made = queue(files)
    made.load()
    kept = made.files
    made.remove_first()
    made.remove_last()
    assert [each.base_offset for each in made.files] == [PAGE_BYTES]
    assert files.list_files(LOG) == [file_name(PAGE_BYTES)]
    assert len(kept) == 3, "who looked before keeps what it saw"
    made.remove_all()
    assert made.files == ()
    assert files.list_files(LOG) == []


@pytest.mark.parametrize(
    ("offset", "left", "position"),
    [
        (0, 1, 0),
        (10, 1, 10),
        (PAGE_BYTES, 1, PAGE_BYTES),
        (PAGE_BYTES + 1, 2, 1),
        (3 * PAGE_BYTES, 3, PAGE_BYTES),
    ],
)
def test_truncated_bytes_are_zeroed_durably(offset: int, left: int, position: int) -> None:
    files = SimFiles()
    made = queue(files)
    for number in range(3):
        mapped = made.create(number * PAGE_BYTES)
        mapped.buffer[:] = b"x" * PAGE_BYTES
    made.flush()
    made.truncate(offset)
    assert len(made.files) == left
    last = made.last
    assert last is not None
    assert last.write_position == position
    assert bytes(last.view) == b"x" * position + bytes(PAGE_BYTES - position)
    assert all(each.write_position == PAGE_BYTES for each in made.files[:-1])
    made.close()
    files.kill()
    again = queue(files)
    again.load()
    assert len(again.files) == left
    assert bytes(again.files[-1].view[position:]) == bytes(PAGE_BYTES - position)


def test_first_file_stays_because_its_name_says_where_everything_begins() -> None:
    made = queue(SimFiles())
    made.create(2 * PAGE_BYTES)
    made.create(3 * PAGE_BYTES)
    made.truncate(0)
    assert [each.base_offset for each in made.files] == [2 * PAGE_BYTES]
    assert made.files[0].write_position == 0
    empty = queue(SimFiles())
    empty.truncate(0)
    assert empty.files == ()


def test_only_files_that_were_written_since_are_flushed() -> None:
    files = SimFiles()
    made = queue(files)
    one, other = made.create(0), made.create(PAGE_BYTES)
    before = files.flush_count
    made.flush()
    assert files.flush_count == before
    one.write_position = PAGE_BYTES
    other.write_position = 5
    made.flush()
    assert files.flush_count == before + 2
    assert (one.flushed, other.flushed) == (PAGE_BYTES, 5)
    made.flush()
    assert files.flush_count == before + 2


def test_failed_flush_raises_and_advances_nothing() -> None:
    files = SimFiles()
    made = queue(files)
    mapped = made.create(0)
    mapped.write_position = 5
    files.fail_flushes()
    with pytest.raises(OSError, match="simulated disk failure"):
        made.flush()
    assert mapped.flushed == 0


def test_closed_queue_releases_its_files() -> None:
    files = SimFiles()
    with_three_files(files)
    made = queue(files)
    made.load()
    made.close()
    assert made.files == ()
    assert files.open_count == 0
    assert len(files.list_files(LOG)) == 3
