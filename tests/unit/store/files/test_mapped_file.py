"""Mapped files allocate space once, and their memory outlives the file."""

import threading
from pathlib import Path

from rocketpy.store.files.mapped_file import PAGE_BYTES, MappedFile
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
