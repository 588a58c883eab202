"""Files of the machine: mapped as a whole (`RealRegion`), or open for a moment (`RealFile`)."""

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from rocketpy.store.descriptors import DescriptorReserve, shortage_refused

_CHUNK_BYTES: Final = 1 << 20
_WARM_BYTES: Final = 1 << 18
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; the mmap module does not name it


class RealRegion:
    """Satisfies `rocketpy.store.files.Region`.

    It holds one descriptor while the file is being written, and another that CPython before 3.13
    keeps for each mapping; `rest` gives up the first.
    """

    __slots__ = (
        "_can_populate",
        "_fd",
        "_is_closed",
        "_is_new",
        "_path",
        "_reserve",
        "_sync_directories",
        "buffer",
        "size_bytes",
        "view",
    )

    def __init__(
        self,
        path: Path,
        fd: int,
        size_bytes: int,
        reserve: DescriptorReserve,
        sync_directories: Callable[[], None],
    ) -> None:
        """Map an open file; the descriptor belongs to the region from then on.

        Args:
            path: of the file.
            fd: opened for reading and writing.
            size_bytes: length of the file.
            reserve: lends descriptors.
            sync_directories: brings the file's name to disk, with its first flush.

        Raises:
            OSError: the system gave no mapping.
        """
        self.size_bytes: int = size_bytes
        self.buffer: mmap.mmap
        if sys.version_info >= (3, 13):
            self.buffer = mmap.mmap(fd, size_bytes, trackfd=False)
        else:
            self.buffer = reserve.run(lambda: mmap.mmap(fd, size_bytes))
        self.view: memoryview[int] = memoryview(self.buffer)
        self._path = path
        self._fd = fd
        self._reserve = reserve
        self._sync_directories = sync_directories
        self._is_new = True  # a killed process may have left the name unsynced
        self._is_closed = False
        self._can_populate = sys.platform == "linux"

    @contextlib.contextmanager
    def _descriptor(self) -> Iterator[int]:
        if self._fd >= 0:
            yield self._fd
            return
        with shortage_refused(f"open {self._path}"):
            fd = self._reserve.open(self._path, os.O_RDWR)
        try:
            yield fd
        finally:
            os.close(fd)

    def allocate(self, start: int, end: int) -> None:
        """See `rocketpy.store.files.Region.allocate`."""
        with shortage_refused("allocate file blocks"), self._descriptor() as fd:
            os.posix_fallocate(fd, start, end - start)

    def populate(self, start: int, end: int) -> None:
        """See `rocketpy.store.files.Region.populate`."""
        if not self._can_populate:
            return
        start -= start % mmap.PAGESIZE
        try:
            self.buffer.madvise(_MADV_POPULATE_WRITE, start, end - start)
        except (OSError, ValueError):  # an older kernel, or another system
            self._can_populate = False

    def read_ahead(self, start: int, end: int) -> None:
        """See `rocketpy.store.files.Region.read_ahead`; while it waits other threads run."""
        if sys.platform == "darwin":
            return
        with contextlib.suppress(OSError), self._descriptor_to_read() as fd:
            os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_WILLNEED)

    def warm(self, start: int, end: int) -> None:
        """See `rocketpy.store.files.Region.warm`.

        By reading, which the system does in large pieces: mapped and written to behind that, they
        cost half of what they do when they are asked for ahead (`posix_fadvise`).
        """
        if not self._can_populate:
            return
        scratch = memoryview(bytearray(_WARM_BYTES))
        with contextlib.suppress(OSError), self._descriptor_to_read() as fd:
            for position in range(start, end, _WARM_BYTES):
                os.preadv(fd, [scratch[: end - position]], position)

    @contextlib.contextmanager
    def _descriptor_to_read(self) -> Iterator[int]:
        """Open the file once more: the region's descriptor may be given up meanwhile.

        None of those that are kept back for what has to be done.
        """
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def first_hole(self) -> int:
        """See `rocketpy.store.files.Region.first_hole`."""
        with self._descriptor() as fd:
            return _next_hole(fd, 0, self.size_bytes)

    def erase(self, start: int, end: int) -> bool:
        """See `rocketpy.store.files.Region.erase`."""
        found = False
        with self._descriptor() as fd:
            for position, stop in _data_ranges(fd, start, end, self.size_bytes):
                if bytes(self.view[position:stop]) != bytes(stop - position):
                    self.buffer[position:stop] = bytes(stop - position)
                    found = True
        return found

    def flush(self) -> None:
        """See `rocketpy.store.files.Region.flush`."""
        if self._is_closed:
            return
        with self._descriptor() as fd:
            if self._is_new:
                os.fsync(fd)
                self._sync_directories()
                self._is_new = False
            else:
                os.fdatasync(fd)

    def rest(self) -> None:
        """See `rocketpy.store.files.Region.rest`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """See `rocketpy.store.files.Region.close`."""
        self._is_closed = True
        self.rest()


class RealFile:
    """Satisfies `rocketpy.store.files.PlainFile`."""

    __slots__ = ("_fd", "size_bytes")

    def __init__(self, fd: int) -> None:
        """Take over an open descriptor."""
        self._fd = fd
        self.size_bytes: int = os.fstat(fd).st_size

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `rocketpy.store.files.PlainFile.read`."""
        return os.pread(self._fd, size_bytes, position)

    def write(self, position: int, data: bytes | memoryview) -> None:
        """See `rocketpy.store.files.PlainFile.write`."""
        left = memoryview(data)
        with shortage_refused("write to a file"):
            while left:
                count = os.pwrite(self._fd, left, position)
                position += count
                left = left[count:]

    def first_hole(self) -> int:
        """See `rocketpy.store.files.PlainFile.first_hole`."""
        return _next_hole(self._fd, 0, self.size_bytes)

    def has_data(self, start: int, end: int) -> bool:
        """See `rocketpy.store.files.PlainFile.has_data`."""
        return any(
            os.pread(self._fd, stop - position, position) != bytes(stop - position)
            for position, stop in _data_ranges(self._fd, start, end, self.size_bytes)
        )

    def erase(self, start: int, end: int) -> bool:
        """See `rocketpy.store.files.PlainFile.erase`."""
        found = False
        for position, stop in _data_ranges(self._fd, start, end, self.size_bytes):
            zeros = bytes(stop - position)
            if os.pread(self._fd, stop - position, position) != zeros:
                self.write(position, zeros)
                found = True
        return found

    def flush(self) -> None:
        """See `rocketpy.store.files.PlainFile.flush`."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """See `rocketpy.store.files.PlainFile.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _data_ranges(fd: int, start: int, end: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that may hold more than zeros; a hole must not be brought into memory."""
    position = start
    while position < end:
        position = max(position, _next_data(fd, position, size_bytes))
        stop = min(position + _CHUNK_BYTES, end, _next_hole(fd, position, size_bytes))
        if position >= stop:
            return
        yield position, stop
        position = stop


def _next_hole(fd: int, position: int, size_bytes: int) -> int:
    try:
        return os.lseek(fd, position, os.SEEK_HOLE)
    except OSError:
        return size_bytes


def _next_data(fd: int, position: int, size_bytes: int) -> int:
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        return size_bytes if error.errno == errno.ENXIO else position
