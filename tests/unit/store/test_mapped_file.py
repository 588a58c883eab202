"""Mapped files: space is allocated once whoever asks, and memory outlives the file's end."""

import threading
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.mapped_file import PAGE_BYTES, MappedFile
from rocketpy.store.mapped_file_queue import MappedFileQueue, file_name
from rocketpy.store.real_files import RealFiles
from rocketpy.testing.sim_files import SimFiles

FILE_BYTES = 64 * PAGE_BYTES


def test_two_threads_may_allocate() -> None:
    """The ranges given to the system follow one another and are never negative."""
    for _ in range(100):
        region = SimFiles().create(Path("/log"), FILE_BYTES)
        ranges: list[tuple[int, int]] = []
        region.allocate = lambda start, end, ranges=ranges: ranges.append((start, end))  # type: ignore[method-assign,misc]
        mapped = MappedFile(Path("/log"), 0, region)
        start = threading.Barrier(2)

        def run(first: int, mapped: MappedFile = mapped, start: threading.Barrier = start) -> None:
            start.wait()
            for page in range(first, 64, 2):
                mapped.allocate(page * PAGE_BYTES + 1, PAGE_BYTES)

        threads = [threading.Thread(target=run, args=(first,)) for first in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mapped.allocated == FILE_BYTES
        assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]


def queue(files: SimFiles | RealFiles, directory: Path = Path("/log")) -> MappedFileQueue:
    return MappedFileQueue(directory, PAGE_BYTES, files, step_bytes=PAGE_BYTES)


def with_three_files(files: SimFiles) -> list[Path]:
    made = queue(files)
    for number in range(3):
        made.create(number * PAGE_BYTES)
    made.close()
    return [Path("/log") / file_name(number * PAGE_BYTES) for number in range(3)]


def test_a_reader_keeps_the_memory_of_a_file_that_is_deleted(tmp_path: Path) -> None:
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
def test_an_empty_file_before_data_refuses_the_start_and_nothing_is_deleted(number: int) -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.write_bytes(paths[number], b"")
    files.write_bytes(paths[2], b"data".ljust(PAGE_BYTES, b"\0"))
    with pytest.raises(StoreFormatError, match=rf"{paths[number].name}"):
        queue(files).load()
    assert all(files.exists(path) for path in paths)


def test_a_missing_file_is_named() -> None:
    files = SimFiles()
    paths = with_three_files(files)
    files.remove(paths[1])
    with pytest.raises(StoreFormatError, match=rf"{paths[1].name} is missing"):
        queue(files).load()
