"""Interface between the store and the file system, as protocols.

`RealFiles` implements it in production, `SimFiles` in simulations: on byte arrays, with power
cuts, full disks and failing flushes.

A `Region` is a completely mapped file that is written continuously and read in place. A
`PlainFile` is open for a short time: many small files need neither mappings nor descriptors.

The rest of the store relies on these guarantees:
    - bytes of a region are allocated (`Region.allocate`) before they are written, so that a full
      disk is a `DiskFullError` and never a signal;
    - `Region.flush` returns when the bytes, the length and the directory entry are on disk.
      It calls `fdatasync`, which lets other threads run; flushing the mapping would not;
    - memory is never taken from a reader: a closed region stays readable, and its mapping ends
      with the last reference to it;
    - a resource that runs short raises `ResourceShortError`; every other OSError is a failure.
"""

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Space of the file system that holds a path, in bytes."""

    total_bytes: int
    used_bytes: int
    free_bytes: int

    @property
    def used_ratio(self) -> float:
        """Part in use, 0.0 to 1.0, of the space that ordinary users may use."""
        usable_bytes = self.used_bytes + self.free_bytes
        return self.used_bytes / usable_bytes if usable_bytes else 0.0


class Region(Protocol):
    """Mapped file of fixed length."""

    @property
    def size_bytes(self) -> int:
        """Length of the file; never changes."""
        ...

    @property
    def buffer(self) -> mmap.mmap | bytearray:
        """The bytes, for `struct.pack_into` and slice assignment."""
        ...

    @property
    def view(self) -> memoryview:
        """The bytes, for slicing without a copy."""
        ...

    def allocate(self, start: int, end: int) -> None:
        """Make sure that the bytes from `start` to `end` can be written.

        Raises:
            DiskFullError: there is no space; nothing changed.
        """
        ...

    def populate(self, start: int, end: int) -> None:
        """Bring allocated bytes into memory, ready to be written; changes nothing in them.

        Only a matter of speed: where the system cannot, nothing happens.
        """
        ...

    def read_ahead(self, start: int, end: int) -> None:
        """Begin to bring bytes into memory that are soon read; only a matter of speed."""
        ...

    def warm(self, start: int, end: int) -> None:
        """Bring allocated bytes into memory for another thread that writes there soon.

        Only a matter of speed, and of the caller's time: other threads run meanwhile.
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

    def rest(self) -> None:
        """Release the descriptor of a file that will hardly be written any more.

        Everything still works; operations that need a descriptor open the file each time.
        """
        ...

    def close(self) -> None:
        """Close the file; its memory is freed with the last reference to it."""
        ...


class PlainFile(Protocol):
    """Open file for reads and writes at positions."""

    @property
    def size_bytes(self) -> int:
        """Length of the file when it was opened."""
        ...

    def read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes, fewer at the end of the file.

        Raises:
            OSError: the disk failed.
        """
        ...

    def read_once(self, position: int, size_bytes: int) -> bytes | bytearray:
        """Like `read`, for bytes that are hardly read again: they are not kept in memory.

        Bytes that were in memory before stay there, because others use them.
        """
        ...

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write all bytes, into memory; `flush` brings them to disk.

        Raises:
            DiskFullError: no space; a part may be written.
            OSError: the disk failed.
        """
        ...

    def first_hole(self) -> int:
        """Return where the first bytes without blocks begin; they are zeros."""
        ...

    def has_data(self, start: int, end: int) -> bool:
        """Whether any byte between two positions is not zero."""
        ...

    def erase(self, start: int, end: int) -> bool:
        """Set bytes to zero where they are not; return whether there were any."""
        ...

    def flush(self) -> None:
        """Return once content and length are on disk; `StoreFiles.sync_directories` does the name.

        Raises:
            OSError: the disk failed; what is on it is unknown.
        """
        ...

    def close(self) -> None:
        """Give the descriptor back."""
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
            ResourceShortError: no descriptor or memory, or there is such a file already.
        """
        ...

    def open(self, path: Path) -> Region:
        """Map an existing file of any length.

        Raises:
            StoreFormatError: the file is empty.
            ResourceShortError: no descriptor or memory.
        """
        ...

    def create_file(self, path: Path, size_bytes: int) -> PlainFile:
        """Create a file of zeros (and its directories) in place of any that is there.

        Raises:
            DiskFullError: no space for the file.
            ResourceShortError: no descriptor.
        """
        ...

    def open_file(self, path: Path) -> PlainFile:
        """Open an existing file.

        Raises:
            FileNotFoundError: there is none.
            ResourceShortError: no descriptor.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory exists."""
        ...

    def size_bytes(self, path: Path) -> int:
        """Return the length of a file."""
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
        """Rename a file or directory atomically, replacing the target."""
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
        """Flush creations, renames and deletions of directory entries to disk.

        Raises:
            OSError: the disk failed.
        """
        ...

    def touch_directory(self, directory: Path) -> None:
        """Include a directory in the next `sync_directories`, whichever process changed it."""
        ...

    def each(
        self, operation: Callable[[_T], _R], items: Sequence[_T], *, reads: bool = False
    ) -> list[_R]:
        """Apply an operation to each of many files, concurrently where that is faster.

        Concurrent flushes share one commit of the file system's journal.

        Args:
            operation: called once with each, on any thread.
            items: the files.
            reads: the operation only reads; cached files are faster sequentially.

        Raises:
            OSError: raised by an operation; the remaining ones may not have run.
        """
        ...

    def modified_ms(self, path: Path) -> int:
        """Return the last modification time of a file, ms since 1970."""
        ...

    def disk_usage(self, path: Path) -> DiskUsage:
        """Space of the file system that holds an existing path."""
        ...

    def boot_id(self) -> str:
        """Return an identifier that changes with each boot; empty when unknown."""
        ...

    def lock(self, path: Path) -> FileLock:
        """Take the lock that Apache takes: byte 0, length 1, exclusive; write `lock`.

        Raises:
            StoreLockedError: another process has it.
        """
        ...

    def lock_directory(self, path: Path) -> FileLock:
        """Lock a directory, without a file in it; create it if it is missing.

        Raises:
            StoreLockedError: another store has it.
        """
        ...
