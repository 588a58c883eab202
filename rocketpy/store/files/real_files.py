"""File system of the machine: the implementation of `StoreFiles` in production.

Changes of directory entries (creations, renames, deletions) are collected by directory and synced
together. A change made during a sync belongs to the next one, and a second sync waits for the
first: when it returns, everything before its call is on disk.

A file is either mapped completely (`RealRegion`) or opened for a short time (`RealFile`).
"""

import contextlib
import errno
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from rocketpy.errors import StoreFormatError
from rocketpy.store.files.descriptor_reserve import (
    DescriptorReserve,
    process_reserve,
    shortage_refused,
)
from rocketpy.store.files.file_lock import lock_directory, lock_file
from rocketpy.store.files.store_files import DiskUsage, FileLock

_CHUNK_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK_BYTES)
"""Made once: at each start megabytes after the end of the log are compared with it."""
_WARM_BYTES: Final = 1 << 18
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14; the mmap module does not name it


class RealRegion:
    """Implements `Region` on the file system of the machine.

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
        """Map an open file; the region takes over the descriptor.

        Args:
            path: of the file.
            fd: opened for reading and writing.
            size_bytes: length of the file.
            reserve: descriptors for reopening.
            sync_directories: syncs the file's name together with its first flush.

        Raises:
            OSError: the system gave no mapping.
        """
        self.size_bytes: int = size_bytes
        self.buffer: mmap.mmap
        # Older versions keep a duplicate descriptor for each mapping.
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
        """See `Region.allocate`."""
        with shortage_refused("allocate file blocks"), self._descriptor() as fd:
            # A store into an unallocated page of a full disk would be a signal instead of an error.
            os.posix_fallocate(fd, start, end - start)

    def populate(self, start: int, end: int) -> None:
        """See `Region.populate`."""
        if not self._can_populate:
            return
        start -= start % mmap.PAGESIZE
        try:
            # 1 us per page; the page fault of a first write costs 7 us, under the append lock.
            self.buffer.madvise(_MADV_POPULATE_WRITE, start, end - start)
        except (OSError, ValueError):  # an older kernel, or another system
            self._can_populate = False

    def read_ahead(self, start: int, end: int) -> None:
        """See `Region.read_ahead`; other threads run during the wait."""
        if sys.platform == "darwin":
            return
        with contextlib.suppress(OSError), self._descriptor_to_read() as fd:
            os.posix_fadvise(fd, start, end - start, os.POSIX_FADV_WILLNEED)

    def warm(self, start: int, end: int) -> None:
        """See `Region.warm`.

        It reads the bytes, which the system does in large pieces: pages mapped and written behind
        that cost half as much as with `posix_fadvise`.
        """
        if not self._can_populate:
            return
        scratch = memoryview(bytearray(_WARM_BYTES))
        with contextlib.suppress(OSError), self._descriptor_to_read() as fd:
            for position in range(start, end, _WARM_BYTES):
                # The bytes are discarded: only the page cache matters.
                os.preadv(fd, [scratch[: end - position]], position)

    @contextlib.contextmanager
    def _descriptor_to_read(self) -> Iterator[int]:
        """Open the file again, because the region's descriptor may be released meanwhile.

        It never takes a descriptor of the reserve, which is for necessary work only.
        """
        fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def first_hole(self) -> int:
        """See `Region.first_hole`."""
        with self._descriptor() as fd:
            return _next_hole(fd, 0, self.size_bytes)

    def erase(self, start: int, end: int) -> bool:
        """See `Region.erase`."""
        found = False
        with self._descriptor() as fd:
            for position, stop in _data_ranges(fd, start, end, self.size_bytes):
                # Pages that are zero already stay clean, so that erasing writes nothing.
                zeros = _ZEROS[: stop - position]
                if bytes(self.view[position:stop]) != zeros:
                    self.buffer[position:stop] = zeros
                    found = True
        return found

    def flush(self) -> None:
        """See `Region.flush`."""
        if self._is_closed:
            return
        with self._descriptor() as fd:
            if self._is_new:
                # The first flush also has to make the length and the name durable.
                os.fsync(fd)
                self._sync_directories()
                self._is_new = False
            else:
                # Not `mmap.flush`: that holds the GIL during the whole write.
                os.fdatasync(fd)

    def rest(self) -> None:
        """See `Region.rest`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """See `Region.close`."""
        self._is_closed = True
        self.rest()


class RealFile:
    """Implements `PlainFile` on the file system of the machine."""

    __slots__ = ("_fd", "size_bytes")

    def __init__(self, fd: int) -> None:
        """Take over an open descriptor."""
        self._fd = fd
        self.size_bytes: int = os.fstat(fd).st_size

    def read(self, position: int, size_bytes: int) -> bytes:
        """See `PlainFile.read`."""
        return os.pread(self._fd, size_bytes, position)

    def read_once(self, position: int, size_bytes: int) -> bytes | bytearray:
        """See `PlainFile.read_once`."""
        if sys.platform != "linux":
            return self.read(position, size_bytes)
        # Read-ahead would bring in pages that the next call takes for those of others.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)
        data, found = bytearray(size_bytes), 0
        with contextlib.suppress(OSError):  # nothing in memory
            found = os.preadv(self._fd, [data], position, os.RWF_NOWAIT)
        if found < size_bytes:
            count = os.preadv(self._fd, [memoryview(data)[found:]], position + found)
            os.posix_fadvise(self._fd, position + found, count, os.POSIX_FADV_DONTNEED)
            found += count
        return data[:found]

    def write(self, position: int, data: bytes | memoryview) -> None:
        """See `PlainFile.write`."""
        left = memoryview(data)
        with shortage_refused("write to a file"):
            while left:
                count = os.pwrite(self._fd, left, position)
                position += count
                left = left[count:]

    def first_hole(self) -> int:
        """See `PlainFile.first_hole`."""
        return _next_hole(self._fd, 0, self.size_bytes)

    def has_data(self, start: int, end: int) -> bool:
        """See `PlainFile.has_data`."""
        return any(
            os.pread(self._fd, stop - position, position) != _ZEROS[: stop - position]
            for position, stop in _data_ranges(self._fd, start, end, self.size_bytes)
        )

    def erase(self, start: int, end: int) -> bool:
        """See `PlainFile.erase`."""
        found = False
        for position, stop in _data_ranges(self._fd, start, end, self.size_bytes):
            zeros = _ZEROS[: stop - position]
            if os.pread(self._fd, stop - position, position) != zeros:
                self.write(position, zeros)
                found = True
        return found

    def flush(self) -> None:
        """See `PlainFile.flush`."""
        os.fdatasync(self._fd)

    def close(self) -> None:
        """See `PlainFile.close`."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _data_ranges(fd: int, start: int, end: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges that may hold non-zero bytes, without faulting in holes of the file."""
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
        # File systems without holes report the end of the file.
        return os.lseek(fd, position, os.SEEK_HOLE)
    except OSError:
        return size_bytes


def _next_data(fd: int, position: int, size_bytes: int) -> int:
    try:
        return os.lseek(fd, position, os.SEEK_DATA)
    except OSError as error:
        return size_bytes if error.errno == errno.ENXIO else position


_T = TypeVar("_T")
_R = TypeVar("_R")

_MANY: Final = 32
# Eight concurrent flushes took 0.2 ms per new file, sequential ones 3.4 ms (ext4).
_FLUSH_THREADS: Final = 8
# Files that a thread handles at a time; handing over single files cost 0.1 ms of CPU time.
_PIECE: Final = 16
# A longer wait means that reads came from the disk; a piece in memory takes under 1 ms.
_WAITED_S: Final = 0.002


def _names(directory: Path, *, directories: bool) -> list[str]:
    """Return the sorted names of the files or of the directories in a directory.

    Raises:
        StoreFormatError: something else has the directory's name.
    """
    try:
        with process_reserve().run(lambda: os.scandir(directory)) as entries:
            if directories:
                return sorted([each.name for each in entries if each.is_dir()])
            return sorted([each.name for each in entries if each.is_file()])
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        raise StoreFormatError(f"{directory} is not a directory") from None


def _waited_s() -> float:
    # Elapsed time without CPU time is time spent waiting.
    return time.monotonic() - time.thread_time()


def _remove_tree(directory: Path) -> None:
    import shutil  # noqa: PLC0415 - brings bz2 and lzma; few servers ever remove a directory

    shutil.rmtree(directory)


class RealFiles:
    """File system of the machine. Safe to use from several threads."""

    def __init__(self, waited_s: Callable[[], float] | None = None) -> None:
        """Create the interface without touching the file system.

        Args:
            waited_s: time that the calling thread spent waiting, in seconds since an arbitrary
                start; the machine's when None.
        """
        self._waited_s = waited_s or _waited_s
        self._reserve = process_reserve()
        self._unsynced: set[Path] = set()
        self._mutex = threading.Lock()
        self._sync_mutex = threading.Lock()

    def create(self, path: Path, size_bytes: int) -> RealRegion:
        """See `StoreFiles.create`."""
        self.make_directories(path.parent)
        with shortage_refused(f"create {path}"):
            # Exclusive: an existing file of the log must never be overwritten.
            fd = self._reserve.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            # Recorded before the file is usable: a later failure costs only a needless sync.
            self._touched(path.parent)
            try:
                os.ftruncate(fd, size_bytes)
                return self._region(path, fd, size_bytes)
            except OSError:
                os.close(fd)
                # A file without its length would fail the next start.
                path.unlink(missing_ok=True)
                raise

    def open(self, path: Path) -> RealRegion:
        """See `StoreFiles.open`."""
        with shortage_refused(f"open {path}"):
            fd = self._reserve.open(path, os.O_RDWR)
            size_bytes = os.fstat(fd).st_size
            if size_bytes == 0:
                os.close(fd)
                raise StoreFormatError(f"{path} is empty")
            self._touched(path.parent)  # a killed process may have left the name unsynced
            try:
                return self._region(path, fd, size_bytes)
            except OSError:
                os.close(fd)
                raise

    def _region(self, path: Path, fd: int, size_bytes: int) -> RealRegion:
        return RealRegion(path, fd, size_bytes, self._reserve, self.sync_directories)

    def create_file(self, path: Path, size_bytes: int) -> RealFile:
        """See `StoreFiles.create_file`."""
        self.make_directories(path.parent)
        with shortage_refused(f"create {path}"):
            fd = self._reserve.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._touched(path.parent)
            try:
                os.ftruncate(fd, size_bytes)
                return RealFile(fd)
            except OSError:
                os.close(fd)
                path.unlink(missing_ok=True)
                raise

    def open_file(self, path: Path) -> RealFile:
        """See `StoreFiles.open_file`."""
        with shortage_refused(f"open {path}"):
            return RealFile(self._reserve.open(path, os.O_RDWR))

    def exists(self, path: Path) -> bool:
        """See `StoreFiles.exists`."""
        return path.exists()

    def size_bytes(self, path: Path) -> int:
        """See `StoreFiles.size_bytes`."""
        return path.stat().st_size

    def list_files(self, directory: Path) -> list[str]:
        """See `StoreFiles.list_files`."""
        return _names(directory, directories=False)

    def list_directories(self, directory: Path) -> list[str]:
        """See `StoreFiles.list_directories`."""
        return _names(directory, directories=True)

    def make_directories(self, directory: Path) -> None:
        """See `StoreFiles.make_directories`."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for each in reversed(missing):
            with shortage_refused(f"create {each}"):
                each.mkdir(exist_ok=True)
            self._touched(each.parent)

    def remove(self, path: Path) -> None:
        """See `StoreFiles.remove`."""
        path.unlink(missing_ok=True)
        self._touched(path.parent)

    def remove_tree(self, directory: Path) -> None:
        """See `StoreFiles.remove_tree`."""
        if directory.is_dir():
            self._reserve.run(lambda: _remove_tree(directory))
            self._touched(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        """See `StoreFiles.rename`."""
        source.rename(target)
        self._touched(source.parent)
        self._touched(target.parent)

    def read_bytes(self, path: Path) -> bytes:
        """See `StoreFiles.read_bytes`."""
        with open(path, "rb", opener=self._reserve.open) as file:
            return file.read()

    def write_bytes(self, path: Path, data: bytes) -> None:
        """See `StoreFiles.write_bytes`."""
        self.make_directories(path.parent)
        with (
            shortage_refused(f"write {path}"),
            open(path, "wb", buffering=0, opener=self._reserve.open) as file,
        ):
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        self._touched(path.parent)
        self.sync_directories()

    def sync_directories(self) -> None:
        """See `StoreFiles.sync_directories`."""
        with self._sync_mutex:
            with self._mutex:
                # Changes from now on belong to the next sync, whose caller waits for this one.
                directories, self._unsynced = self._unsynced, set()
            try:
                self.each(self._sync_directory, sorted(directories))
            except BaseException:  # unknown which ones failed, so all are synced again
                with self._mutex:
                    self._unsynced |= directories
                raise

    def touch_directory(self, directory: Path) -> None:
        """See `StoreFiles.touch_directory`."""
        self._touched(directory)

    def each(
        self, operation: Callable[[_T], _R], items: Sequence[_T], *, reads: bool = False
    ) -> list[_R]:
        """See `StoreFiles.each`."""
        # Starting threads costs more than a few flushes.
        if len(items) < _MANY:
            return [operation(item) for item in items]
        done: list[_R] = []
        if reads:
            done = self._each_in_memory(operation, items)
        pieces = [items[at : at + _PIECE] for at in range(len(done), len(items), _PIECE)]
        if not pieces:
            return done
        with ThreadPoolExecutor(_FLUSH_THREADS, thread_name_prefix="flush") as pool:
            rest = pool.map(lambda piece: [operation(item) for item in piece], pieces)
            return done + [result for results in rest for result in results]

    def _each_in_memory(self, operation: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
        """Apply the operation sequentially until a piece had to wait for the disk."""
        done: list[_R] = []
        for at in range(0, len(items), _PIECE):
            before_s = self._waited_s()
            done += [operation(item) for item in items[at : at + _PIECE]]
            if self._waited_s() - before_s > _WAITED_S:
                break
        return done

    def _sync_directory(self, directory: Path) -> None:
        try:
            with shortage_refused(f"open {directory}"):
                fd = self._reserve.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # deleted since: its parent is in the set as well
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: Path) -> int:
        """See `StoreFiles.modified_ms`."""
        return path.stat().st_mtime_ns // 1_000_000

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `StoreFiles.disk_usage`."""
        disk = os.statvfs(path)
        used = disk.f_blocks - disk.f_bfree
        return DiskUsage(*(disk.f_frsize * n for n in (disk.f_blocks, used, disk.f_bavail)))

    def boot_id(self) -> str:
        """See `StoreFiles.boot_id`."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return self.read_bytes(path).decode().strip() if path.exists() else ""

    def lock(self, path: Path) -> FileLock:
        """See `StoreFiles.lock`."""
        self.make_directories(path.parent)
        return lock_file(path.resolve(), self._reserve)

    def lock_directory(self, path: Path) -> FileLock:
        """See `StoreFiles.lock_directory`."""
        self.make_directories(path)
        return lock_directory(path.resolve(), self._reserve)

    def _touched(self, directory: Path) -> None:
        with self._mutex:
            self._unsynced.add(directory)
