"""Consecutive mapped files of equal length that form one unbounded array of bytes.

A file is named by the offset of its first byte, 20 digits, without gaps between files. The length
of the files is part of the format: a file of another length makes `load` fail. Only an empty last
file is removed, because a crash between creating and sizing leaves one. An empty file before
others means that its content was lost, which an operator has to decide on.

A deleted file is unlinked and dropped here; its memory stays valid for readers that hold it.

Source: MappedFileQueue (5.4.0).
"""

import contextlib
import logging
import threading
from pathlib import Path

from rocketpy.errors import StoreFormatError
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

_NO_MEMORY = memoryview(b"")

_HEAD_BYTES = 8


def file_name(base_offset: int) -> str:
    """Return the name of the file that starts at an offset."""
    return f"{base_offset:020d}"


class MappedFileQueue:
    """Mapped files of one directory. Reads are safe from any thread; the owner serialises writers.

    Attributes:
        files: current files in order; the tuple is replaced, never changed, so readers may keep it.
    """

    __slots__ = (
        "_flush_mutex",
        "_mutex",
        "_store_files",
        "directory",
        "file_bytes",
        "files",
        "step_bytes",
    )

    def __init__(
        self, directory: Path, file_bytes: int, store_files: StoreFiles, *, step_bytes: int
    ) -> None:
        """Describe a directory without reading it.

        Args:
            directory: location of the files.
            file_bytes: length of every file.
            store_files: the file system.
            step_bytes: bytes allocated ahead of the write position at a time.
        """
        self.directory: Path = directory
        self.file_bytes: int = file_bytes
        self.step_bytes: int = step_bytes
        self.files: tuple[MappedFile, ...] = ()
        self._store_files = store_files
        self._mutex = threading.Lock()
        self._flush_mutex = threading.Lock()  # a file is not closed while it is flushed

    def load(self, *, rebuildable: bool = False) -> None:
        """Map the existing files; recovery determines later how far they are written.

        Args:
            rebuildable: the content can be rebuilt, so damaged files may be removed.

        Raises:
            StoreFormatError: a file has a wrong name or length, or one in the middle is missing.
        """
        names = self._store_files.list_files(self.directory)
        for name in names:
            self._check(name)
        self._drop_unwritten(names, rebuildable=rebuildable)
        loaded: list[MappedFile] = []
        for name in names:
            path = self.directory / name
            self._check_length(path)
            if loaded and int(name) != loaded[-1].end_offset:
                missing = self.directory / file_name(loaded[-1].end_offset)
                raise StoreFormatError(f"{missing} is missing: the next file is {name}")
            mapped = MappedFile(path, int(name), self._store_files.open(path))
            mapped.write_position = mapped.flushed = self.file_bytes
            mapped.data_end = mapped.region.first_hole()
            # Only the last file is written again; the others need no descriptor.
            if name != names[-1]:
                mapped.region.rest()
            loaded.append(mapped)
        self.files = tuple(loaded)

    def _drop_unwritten(self, names: list[str], *, rebuildable: bool) -> None:
        """Remove empty files at the end: created, but never written to disk.

        Of several files created in sequence, a power cut may keep the length of a later one only;
        that file has no first record then.
        """
        empty = [name for name in names if not self._store_files.size_bytes(self.directory / name)]
        if not empty:
            return
        behind = names[names.index(empty[0]) + 1 :]
        if not rebuildable and any(self._has_begun(name) for name in behind if name not in empty):
            return  # the length check reports it
        # From the end, so that an interrupted removal leaves contiguous files.
        for name in (*reversed(behind), empty[0]):
            logger.warning("unwritten file removed: path=%s", self.directory / name)
            self._store_files.remove(self.directory / name)
            names.remove(name)

    def _has_begun(self, name: str) -> bool:
        region = self._store_files.open(self.directory / name)
        try:
            return any(region.view[:_HEAD_BYTES])
        finally:
            region.close()

    def check_no_directories(self) -> None:
        """Reject a directory that has the name of a log file.

        Raises:
            StoreFormatError: there is such a directory.
        """
        for name in self._store_files.list_directories(self.directory):
            if len(name) == 20 and name.isdigit():
                raise StoreFormatError(f"{self.directory / name} is a directory, not a log file")

    def _check(self, name: str) -> None:
        if not (len(name) == 20 and name.isdigit()):
            raise StoreFormatError(f"{self.directory / name} is not named by a 20-digit offset")

    def _check_length(self, path: Path) -> None:
        size_bytes = self._store_files.size_bytes(path)
        if size_bytes == 0:
            raise StoreFormatError(f"{path} is empty, though others follow: its content is missing")
        if size_bytes != self.file_bytes:
            raise StoreFormatError(
                f"{path} has {size_bytes} bytes, the configuration says {self.file_bytes}"
            )

    @property
    def first(self) -> MappedFile | None:
        """Oldest file, or None."""
        # One read of the tuple: retention may replace it at any time.
        files = self.files
        return files[0] if files else None

    @property
    def last(self) -> MappedFile | None:
        """Newest file, or None."""
        files = self.files
        return files[-1] if files else None

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds the byte at an offset, or None."""
        files = self.files
        if not files:
            return None
        index = (offset - files[0].base_offset) // self.file_bytes
        return files[index] if 0 <= index < len(files) else None

    def written_part(self, offset: int) -> tuple[memoryview, int, int]:
        """Return the written part of the file that holds the byte at an offset.

        Returns:
            The file's memory, its first offset, and the end of the written part (0 if there is no
            such file).
        """
        files = self.files
        if files:
            index = (offset - files[0].base_offset) // self.file_bytes
            if 0 <= index < len(files):
                mapped, base = files[index], files[index].base_offset
                return mapped.view, base, base + mapped.write_position
        return _NO_MEMORY, 0, 0

    def read(
        self, offset: int, size_bytes: int, *, is_read_again: bool = True
    ) -> memoryview | None:
        """Read written bytes of one file by a system call; None if they were deleted.

        Other threads run during the wait for the disk, and an unreadable sector is an error;
        through the mapping it would be a signal that ends the process.

        Args:
            offset: of the first byte.
            size_bytes: number of bytes.
            is_read_again: otherwise they are not kept in memory; see `PlainFile.read_once`.

        Raises:
            OSError: the disk cannot read it.
            ResourceShortError: no descriptor.
        """
        mapped = self.find(offset)
        if mapped is None or offset + size_bytes - mapped.base_offset > mapped.write_position:
            return None
        try:
            file = self._store_files.open_file(mapped.path)
        except FileNotFoundError:  # retention deleted it meanwhile
            return None
        with contextlib.closing(file):
            read = file.read if is_read_again else file.read_once
            return memoryview(read(offset - mapped.base_offset, size_bytes))

    def create(self, base_offset: int) -> MappedFile:
        """Create the file that follows the last one (or the first one, anywhere).

        Raises:
            DiskFullError: no space for it.
        """
        mapped = self.make(base_offset)
        self.add(mapped)
        return mapped

    def make(self, base_offset: int) -> MappedFile:
        """Create a file without adding it; its first step is allocated.

        Raises:
            DiskFullError: no space for it.
        """
        path = self.directory / file_name(base_offset)
        mapped = MappedFile(path, base_offset, self._store_files.create(path, self.file_bytes))
        try:
            # A file without space must not stay: its name would claim offsets that cannot be
            # written.
            mapped.allocate(min(self.step_bytes, 4096), self.step_bytes)
        except BaseException:
            mapped.close()
            self._store_files.remove(path)
            raise
        return mapped

    def add(self, mapped: MappedFile) -> None:
        """Append a file made by `make`."""
        with self._mutex:
            assert not self.files or self.files[-1].end_offset == mapped.base_offset
            # Replaced instead of changed, so that readers need no lock.
            self.files = (*self.files, mapped)

    def remove_first(self) -> None:
        """Delete the oldest file."""
        with self._mutex:
            mapped, self.files = self.files[0], self.files[1:]
        # Removed from the tuple first: no new reader can find the file while it is deleted.
        self._store_files.remove(mapped.path)
        # A flush uses the descriptor that closing would release.
        with self._flush_mutex:
            mapped.close()

    def remove_last(self) -> None:
        """Delete the newest file."""
        with self._mutex:
            mapped, self.files = self.files[-1], self.files[:-1]
        self._store_files.remove(mapped.path)
        with self._flush_mutex:
            mapped.close()

    def remove_all(self) -> None:
        """Delete every file."""
        while self.files:
            self.remove_last()

    def truncate(self, offset: int) -> None:
        """Make `offset` the write position: remove later files, zero later bytes.

        Zeroing keeps stale bytes from looking valid at a later start. The first file stays, because
        its name records where the array begins.
        """
        while len(self.files) > 1 and self.files[-1].base_offset >= offset:
            self.remove_last()
        for mapped in self.files:
            mapped.write_position = mapped.flushed = mapped.allocated = self.file_bytes
            mapped.data_end = self.file_bytes
        last = self.last
        if last is not None and offset < last.end_offset:
            position = max(0, offset - last.base_offset)
            # Stale records after the end would look valid to a later recovery.
            erased = last.region.erase(position, self.file_bytes)
            last.write_position = last.flushed = last.allocated = position
            if erased:
                logger.info("bytes after the end erased: path=%s position=%d", last.path, position)
                # Before new records overwrite a part of the old ones.
                last.region.flush()

    def erase_tail(self, offset: int) -> None:
        """Make an offset in the last file the write position, and zero the bytes written after it.

        Unlike `truncate`, for an open queue: the files before keep what is known of their flushes.
        """
        # A flush that runs meanwhile would note the old write position as flushed.
        with self._flush_mutex:
            last = self.files[-1]
            position = offset - last.base_offset
            last.region.erase(position, last.write_position)
            last.write_position = position
            last.flushed = 0

    def flush(self) -> None:
        """Flush everything written before the call to disk.

        Raises:
            OSError: the disk failed.
        """
        with self._flush_mutex:
            for mapped in self.files:
                if mapped.write_position > mapped.flushed:
                    mapped.flush()

    def close(self) -> None:
        """Close all files."""
        with self._mutex:
            files, self.files = self.files, ()
        with self._flush_mutex:
            for mapped in files:
                mapped.close()
