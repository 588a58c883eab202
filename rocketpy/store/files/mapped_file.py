"""Mapped file of fixed size, written front to back and read in place.

Positions are bytes within the file; `base_offset` converts them to log offsets. Four
positions only increase::

    0 ...... flushed ...... write_position ...... allocated ...... size_bytes
      on disk       in memory          may be written      would need space first

Source: DefaultMappedFile (5.4.0).
"""

import mmap
import threading
from pathlib import Path

from rocketpy.store.files.store_files import Region

PAGE_BYTES = 4096


class MappedFile:
    """Mapped file and its write position; the owner serialises writers.

    `allocate` is safe from any thread: the appending one, and the one that allocates ahead of it.
    """

    __slots__ = (
        "_allocate_mutex",
        "_warm_to",
        "allocated",
        "base_offset",
        "buffer",
        "data_end",
        "flushed",
        "path",
        "region",
        "size_bytes",
        "view",
        "write_position",
    )

    def __init__(self, path: Path, base_offset: int, region: Region) -> None:
        self._allocate_mutex = threading.Lock()
        self._warm_to = 0
        self.path: Path = path
        self.base_offset: int = base_offset
        self.region: Region = region
        self.size_bytes: int = region.size_bytes
        self.buffer: mmap.mmap | bytearray = region.buffer
        self.view: memoryview = region.view
        self.write_position: int = 0
        self.flushed: int = 0
        self.allocated: int = 0
        self.data_end: int = region.size_bytes  # while loading: only zeros follow

    @property
    def end_offset(self) -> int:
        """Log offset of the byte after this file."""
        return self.base_offset + self.size_bytes

    def allocate(self, position: int, step_bytes: int) -> None:
        """Allocate the bytes before `position`, and up to one step more.

        Raises:
            DiskFullError: no space; nothing changed.
        """
        if position <= self.allocated:
            return
        with self._allocate_mutex:
            end = min(-(-position // step_bytes) * step_bytes, self.size_bytes)
            if end > self.allocated:  # unless another thread has done it meanwhile
                self.region.allocate(self.allocated, end)
                self.allocated = end

    def warm(self) -> None:
        """Fault in the pages that are written next; called by another thread than the writer."""
        start = max(self._warm_to, self.write_position)
        if start < self.allocated:
            end = self.allocated
            self.region.warm(start, end)
            self._warm_to = end

    def flush(self) -> None:
        """Flush all written bytes to disk.

        Raises:
            OSError: the disk failed.
        """
        write_position = self.write_position
        if write_position > self.flushed:
            self.region.flush()
            self.flushed = write_position
            if write_position == self.size_bytes:
                self.region.rest()

    def close(self) -> None:
        """Close the file; its memory stays valid for readers that hold it."""
        self.region.close()
