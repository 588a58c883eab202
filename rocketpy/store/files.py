"""The only door from the store to the file system.

`RealFiles` is the production side; ``rocketpy.testing.sim_files.SimFiles`` is the same seam on
byte arrays, with power cuts, full disks and failing flushes.

Three rules the rest of the store relies on:
    - bytes are allocated (`Region.allocate`) before they are written, so that a full disk is a
      `DiskFullError` and never a signal;
    - `Region.flush` returns when the bytes, the length and the directory entry are on disk.
      It calls ``fdatasync``, which lets other threads run; flushing the mapping would not;
    - a `Region` that is closed while a reader still holds a view stays readable for that reader.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocketpy.errors import DiskFullError, StoreFormatError, StoreLockedError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_CHUNK_BYTES = 1 << 20
_MADV_POPULATE_WRITE = 23  # Linux 5.14; the mmap module does not name it


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path, in bytes."""

    total_bytes: int
    used_bytes: int
    free_bytes: int

    @property
    def used_ratio(self) -> float:
        """Part in use, 0.0 to 1.0, of what ordinary users may use."""
        usable_bytes = self.used_bytes + self.free_bytes
        return self.used_bytes / usable_bytes if usable_bytes else 0.0


class Region(Protocol):
    """One whole file in memory, of fixed length."""

    @property
    def size_bytes(self) -> int:
        """Length of the file; never changes."""
        ...

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The bytes, for ``struct.pack_into`` and slice assignment."""
        ...

    @property
    def view(self) -> memoryview:
        """The bytes, for slicing without a copy."""
        ...

    def allocate(self, start: int, end: int) -> None:
        """Make sure that the bytes from ``start`` to ``end`` can be written.

        Raises:
            DiskFullError: there is no space; nothing changed.
        """
        ...

    def populate(self, start: int, end: int) -> None:
        """Bring allocated bytes into memory, ready to be written; changes nothing in them.

        Only a matter of speed: where the system cannot, nothing happens.
        """
        ...

    def first_hole(self) -> int:
        """Return where the first bytes without blocks begin; they are zeros.

        Reading them through the mapping would allocate on some file systems (tmpfs), which
        kills the process when there is no space.
        """
        ...

    def erase(self, start: int, end: int) -> bool:
        """Set bytes to zero where they are not; return whether there were any."""
        ...

    def flush(self) -> None:
        """Return once everything written before the call is on disk, name included.

        Raises:
            OSError: the disk failed; what is on it is unknown.
        """
        ...

    def close(self) -> None:
        """Let go of the file; views that readers hold stay valid."""
        ...


class FileLock(Protocol):
    """A lock on a file, held by this process."""

    def close(self) -> None:
        """Release the lock."""
        ...


class StoreFiles(Protocol):
    """Files and directories, as far as a store needs them."""

    def create(self, path: Path, size_bytes: int) -> Region:
        """Create a file of zeros (and its directories) and map it.

        Raises:
            DiskFullError: no space for the file.
            FileExistsError: there is one already.
        """
        ...

    def open(self, path: Path) -> Region:
        """Map an existing file, whatever its length.

        Raises:
            StoreFormatError: the file is empty.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or directory is there."""
        ...

    def size_bytes(self, path: Path) -> int:
        """Length of a file."""
        ...

    def list_files(self, directory: Path) -> list[str]:
        """Names of the files in a directory, sorted; empty when there is none.

        Raises:
            StoreFormatError: something else has its name.
        """
        ...

    def list_directories(self, directory: Path) -> list[str]:
        """Names of the directories in a directory, sorted; empty when there is none."""
        ...

    def make_directories(self, directory: Path) -> None:
        """Create a directory and its parents where missing."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file; nothing happens when there is none."""
        ...

    def remove_tree(self, directory: Path) -> None:
        """Delete a directory with all it holds; nothing happens when there is none."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename atomically, replacing the target."""
        ...

    def read_bytes(self, path: Path) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def write_bytes(self, path: Path, data: bytes) -> None:
        """Create or replace a file in place, and flush it with its directory entry.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        ...

    def sync_directories(self) -> None:
        """Bring creations, renames and deletions made here to disk.

        Raises:
            OSError: the disk failed.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """When a file was last changed, ms since 1970."""
        ...

    def disk_usage(self, path: Path) -> DiskUsage:
        """Space of the file system that holds an existing path."""
        ...

    def boot_id(self) -> str:
        """Return what changes when the machine starts anew; empty when that is unknown."""
        ...

    def lock(self, path: Path) -> FileLock:
        """Take the lock that Apache takes: byte 0, length 1, exclusive; write ``lock``.

        Raises:
            StoreLockedError: another process has it.
        """
        ...


class _RealRegion:
    __slots__ = ("_buffer", "_can_populate", "_fd", "_files", "_new", "_view", "size_bytes")

    def __init__(self, files: "RealFiles", fd: int, size_bytes: int, *, new: bool) -> None:
        self._files = files
        self._fd = fd
        self._new = new
        self._can_populate = sys.platform == "linux"
        self.size_bytes = size_bytes
        if sys.version_info >= (3, 13):
            self._buffer = mmap.mmap(fd, size_bytes, trackfd=False)
        else:
            self._buffer = mmap.mmap(fd, size_bytes)
        self._view = memoryview(self._buffer)

    @property
    def buffer(self) -> mmap.mmap:
        return self._buffer

    @property
    def view(self) -> memoryview:
        return self._view

    def allocate(self, start: int, end: int) -> None:
        try:
            os.posix_fallocate(self._fd, start, end - start)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise DiskFullError("no space to allocate file blocks") from error
            raise

    def populate(self, start: int, end: int) -> None:
        if not self._can_populate:
            return
        start -= start % mmap.PAGESIZE
        try:
            self._buffer.madvise(_MADV_POPULATE_WRITE, start, end - start)
        except (OSError, ValueError):  # an older kernel, or another system
            self._can_populate = False

    def first_hole(self) -> int:
        return self._next_hole(0)

    def _next_hole(self, position: int) -> int:
        try:
            return os.lseek(self._fd, position, os.SEEK_HOLE)
        except OSError:
            return self.size_bytes

    def erase(self, start: int, end: int) -> bool:
        found = False
        position = start
        while position < end:
            position = max(position, self._next_data(position))
            stop = min(position + _CHUNK_BYTES, end, self._next_hole(position))
            if position < stop and bytes(self._view[position:stop]) != bytes(stop - position):
                self._buffer[position:stop] = bytes(stop - position)
                found = True
            position = stop if position < stop else end
        return found

    def _next_data(self, position: int) -> int:
        """Skip holes, which are zeros that must not be brought into memory."""
        try:
            return os.lseek(self._fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size_bytes
            return position

    def flush(self) -> None:
        if self._new:
            os.fsync(self._fd)
            self._files.sync_directories()
            self._new = False
        else:
            os.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        with contextlib.suppress(BufferError):  # a reader has a view: it unmaps when done
            self._view.release()
            self._buffer.close()


def _is_directory(path: Path) -> bool:
    """Whether there is a directory.

    Raises:
        StoreFormatError: there is something else.
    """
    if path.is_dir():
        return True
    if path.exists():
        raise StoreFormatError(f"{path} is not a directory")
    return False


_locked_here: set[Path] = set()
_locked_mutex = threading.Lock()


class _RealLock:
    """A record lock; those do not see each other within one process, so a set does."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with _locked_mutex:
                _locked_here.discard(self._path)


class RealFiles:
    """The machine's file system. Safe to use from several threads."""

    def __init__(self) -> None:
        self._unsynced: set[Path] = set()
        self._mutex = threading.Lock()

    def create(self, path: Path, size_bytes: int) -> Region:
        """See `StoreFiles.create`."""
        self.make_directories(path.parent)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise DiskFullError(f"no space to create {path}") from error
            raise
        self._touched(path.parent)
        try:
            os.ftruncate(fd, size_bytes)
            return _RealRegion(self, fd, size_bytes, new=True)
        except OSError as error:
            os.close(fd)
            path.unlink(missing_ok=True)
            if error.errno in _NO_SPACE:
                raise DiskFullError(f"no space to create {path}") from error
            raise

    def open(self, path: Path) -> Region:
        """See `StoreFiles.open`."""
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        size_bytes = os.fstat(fd).st_size
        if size_bytes == 0:
            os.close(fd)
            raise StoreFormatError(f"{path} is empty")
        self._touched(path.parent)  # a killed process may have left the name unsynced
        return _RealRegion(self, fd, size_bytes, new=True)

    def exists(self, path: Path) -> bool:
        """See `StoreFiles.exists`."""
        return path.exists()

    def size_bytes(self, path: Path) -> int:
        """See `StoreFiles.size_bytes`."""
        return path.stat().st_size

    def list_files(self, directory: Path) -> list[str]:
        """See `StoreFiles.list_files`."""
        if not _is_directory(directory):
            return []
        return sorted(each.name for each in directory.iterdir() if each.is_file())

    def list_directories(self, directory: Path) -> list[str]:
        """See `StoreFiles.list_directories`."""
        if not _is_directory(directory):
            return []
        return sorted(each.name for each in directory.iterdir() if each.is_dir())

    def make_directories(self, directory: Path) -> None:
        """See `StoreFiles.make_directories`."""
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        for each in reversed(missing):
            try:
                each.mkdir(exist_ok=True)
            except OSError as error:
                if error.errno in _NO_SPACE:
                    raise DiskFullError(f"no space to create {each}") from error
                raise
            self._touched(each.parent)

    def remove(self, path: Path) -> None:
        """See `StoreFiles.remove`."""
        path.unlink(missing_ok=True)
        self._touched(path.parent)

    def remove_tree(self, directory: Path) -> None:
        """See `StoreFiles.remove_tree`."""
        if directory.is_dir():
            shutil.rmtree(directory)
            self._touched(directory.parent)

    def rename(self, source: Path, target: Path) -> None:
        """See `StoreFiles.rename`."""
        source.rename(target)
        self._touched(source.parent)
        self._touched(target.parent)

    def read_bytes(self, path: Path) -> bytes:
        """See `StoreFiles.read_bytes`."""
        return path.read_bytes()

    def write_bytes(self, path: Path, data: bytes) -> None:
        """See `StoreFiles.write_bytes`."""
        self.make_directories(path.parent)
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise DiskFullError(f"no space to write {path}") from error
            raise
        self._touched(path.parent)
        self.sync_directories()

    def sync_directories(self) -> None:
        """See `StoreFiles.sync_directories`."""
        with self._mutex:
            directories = list(self._unsynced)
        for directory in directories:
            try:
                fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:  # deleted since: its parent is in the set as well
                fd = -1
            if fd >= 0:
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        with self._mutex:
            self._unsynced.difference_update(directories)

    def modified_ms(self, path: Path) -> int:
        """See `StoreFiles.modified_ms`."""
        return path.stat().st_mtime_ns // 1_000_000

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `StoreFiles.disk_usage`."""
        usage = shutil.disk_usage(path)
        return DiskUsage(usage.total, usage.used, usage.free)

    def boot_id(self) -> str:
        """See `StoreFiles.boot_id`."""
        path = Path("/proc/sys/kernel/random/boot_id")
        return path.read_text(encoding="ascii").strip() if path.exists() else ""

    def lock(self, path: Path) -> FileLock:
        """See `StoreFiles.lock`."""
        self.make_directories(path.parent)
        path = path.resolve()
        with _locked_mutex:
            if path in _locked_here:  # not even opened: closing it would free the lock
                raise StoreLockedError(f"this process uses the store already: {path}")
            _locked_here.add(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as error:
            os.close(fd)
            with _locked_mutex:
                _locked_here.discard(path)
            raise StoreLockedError(f"another process uses the store: {path} is locked") from error
        os.pwrite(fd, b"lock", 0)
        return _RealLock(fd, path)

    def _touched(self, directory: Path) -> None:
        with self._mutex:
            self._unsynced.add(directory)
