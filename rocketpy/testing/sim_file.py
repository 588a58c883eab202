"""File of a simulated disk."""

import random
from collections.abc import Iterator
from typing import Final

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096


class SimNode:
    """Content of a file: in memory, and on the disk.

    Attributes:
        memory: content for programs.
        disk: content after a power cut.
        length_synced: whether its length is on the disk.
        modified_ms: time of the last write.
        pages: numbers of the allocated pages.
        written: numbers of the pages written since the last flush; None if not tracked.
    """

    __slots__ = ("disk", "length_synced", "memory", "modified_ms", "pages", "written")

    def __init__(self, memory: bytearray, modified_ms: int) -> None:
        self.memory: bytearray = memory
        self.disk: bytearray = bytearray(len(memory))
        self.length_synced: bool = False
        self.modified_ms: int = modified_ms
        self.pages: set[int] = set()
        self.written: set[int] | None = None

    def sync(self) -> None:
        """Flush it to the disk."""
        if self.written is None:
            self.disk[:] = self.memory
        else:
            for page in self.written:
                where = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
                self.disk[where] = self.memory[where]
            self.written.clear()
        self.length_synced = True

    def dirty_sectors(self) -> Iterator[slice]:
        """Yield the sectors that differ between disk and memory."""
        memory, disk = memoryview(self.memory), memoryview(self.disk)
        pages = range(-(-len(memory) // PAGE_BYTES))
        for number in pages if self.written is None else sorted(self.written):
            page = number * PAGE_BYTES
            end = page + PAGE_BYTES
            if bytes(memory[page:end]) == bytes(disk[page:end]):
                continue
            for start in range(page, min(end, len(memory)), SECTOR_BYTES):
                stop = min(start + SECTOR_BYTES, len(memory))
                if memory[start:stop] != disk[start:stop]:
                    yield slice(start, stop)

    def lose_power(self, rng: random.Random, *, lost_length: bool) -> None:
        """Keep the content on the disk, and a subset of the sectors that are not.

        Args:
            rng: chooses the subset.
            lost_length: makes the file empty if its length was never flushed.
        """
        for sector in self.dirty_sectors():
            if rng.random() < 0.5:
                self.disk[sector] = self.memory[sector]
        if lost_length and not self.length_synced:
            self.disk = bytearray()
        self.memory = bytearray(self.disk)
        self.length_synced = True
        if self.written is not None:
            self.written.clear()
