"""Files of one consume queue: its entries on disk.

The files of a queue are one array of fixed-size entries, so entry `n` lies at byte `n * 20`. No
file is mapped or kept open between calls, because a broker may have a hundred thousand queues.

Invariants:
    - a file has its full length from its creation on; unwritten bytes are zeros;
    - `write` writes and flushes entries in order in one call: after a kill the queue ends where a
      flush ended, after a power cut within the last flush;
    - the first entry with `size <= 0` is the end; physical offsets never descend before it;
    - a queue that does not start at 0 has filler entries in its first file.

Source: ConsumeQueue, MappedFileQueue (5.4.0).
"""

import contextlib
import logging
import threading
from pathlib import Path
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.store.consume_queue.queue_entry import (
    BLANK_ENTRY,
    BLANK_SIZE,
    ENTRY,
    ENTRY_BYTES,
    Entry,
)
from rocketpy.store.files.mapped_file_queue import file_name
from rocketpy.store.files.store_files import PlainFile, StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

# Entries read at a time in the search for the end: more than a page, so they usually hold it.
_BLOCK_ENTRIES: Final = 256


class QueueFiles:
    """Entries on disk by queue offset. One thread writes, any thread reads.

    Attributes:
        file_entries: entries in a file.
        begin: first queue offset of the first file.
        end: queue offset after the last file; `begin` when there are no files.
        first_phy: physical offset in the first entry; -1 if that was not read or is filler.
        has_stray_bytes: whether there were bytes after the end that `find_end` found last.
        has_gap: whether a file in the middle is missing or empty; only later files count then.
        is_deleted: the queue was deleted and creates no files. Changes under
            `file_creation_lock`.
    """

    __slots__ = (
        "_directory",
        "_file_creation_lock",
        "_files",
        "begin",
        "end",
        "file_entries",
        "first_phy",
        "has_gap",
        "has_stray_bytes",
        "is_deleted",
    )

    def __init__(
        self,
        directory: Path,
        file_bytes: int,
        files: StoreFiles,
        file_creation_lock: threading.Lock,
    ) -> None:
        """Describe a directory without reading it.

        Args:
            directory: location of the files.
            file_bytes: length of every file, a multiple of an entry's.
            files: the file system.
            file_creation_lock: held while a file of any queue is created, and while a topic is
                deleted.
        """
        assert file_bytes % ENTRY_BYTES == 0
        self._directory = directory
        self._files = files
        self._file_creation_lock = file_creation_lock
        self.file_entries: int = file_bytes // ENTRY_BYTES
        self.begin: int = 0
        self.end: int = 0
        self.first_phy: int = -1
        self.has_stray_bytes: bool = False
        self.has_gap: bool = False
        self.is_deleted: bool = False

    @property
    def file_count(self) -> int:
        """Number of files."""
        return (self.end - self.begin) // self.file_entries

    def load(self) -> None:
        """Find the existing files.

        If one in the middle is missing, only later ones count, because they define the end of the
        queue. Recovery rebuilds such a queue from the log.

        Raises:
            StoreFormatError: a file of a wrong name.
        """
        names = self._files.list_files(self._directory)
        file_bytes = self.file_entries * ENTRY_BYTES
        for name in names:
            if not (len(name) == 20 and name.isdigit()):
                raise StoreFormatError(f"{self._directory / name} is not named by an offset")
        if not names:
            return
        if any(int(name) % file_bytes for name in names):
            raise StoreFormatError(
                f"{self._directory} has files of another length than {file_bytes} bytes"
            )
        # From the end: the newest file defines the end of the queue even if an earlier one is
        # missing.
        last = first = int(names[-1])
        for name in reversed(names[:-1]):
            if int(name) != first - file_bytes or not self._size_bytes(name):
                self.has_gap = True
                logger.error(
                    "queue file missing, queue is rebuilt: path=%s",
                    self._directory / file_name(first - file_bytes),
                )
                break
            first = int(name)
        self.begin, self.end = first // ENTRY_BYTES, (last + file_bytes) // ENTRY_BYTES

    def _size_bytes(self, name: str) -> int:
        return self._files.size_bytes(self._directory / name)

    def _path(self, base: int) -> Path:
        return self._directory / file_name(base * ENTRY_BYTES)

    def _base(self, queue_offset: int) -> int:
        return queue_offset - queue_offset % self.file_entries

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return raw entries of one file, fewer at its end; none if they were deleted.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        if not self.begin <= queue_offset < self.end:
            return b""
        base = self._base(queue_offset)
        try:
            file = self._files.open_file(self._path(base))
        except FileNotFoundError:  # deleted meanwhile
            return b""
        with contextlib.closing(file):
            # Checked after opening: the deletion renames the directory before it sets the flag.
            if self.is_deleted:  # the file may belong to a new queue of this name
                return b""
            return file.read((queue_offset - base) * ENTRY_BYTES, count * ENTRY_BYTES)

    def write(self, queue_offset: int, data: memoryview) -> None:
        """Write and flush entries that follow the last ones; ignored for a deleted queue.

        The names of new files are on disk after `StoreFiles.sync_directories`.

        Raises:
            DiskFullError: no space; the call may be repeated.
            ResourceShortError: no descriptor; the same.
            OSError: the disk failed.
        """
        while data:
            if self.begin == self.end:
                self.begin = self.end = self._base(queue_offset)
                # Readers of Apache expect entry n at byte n * 20, so earlier entries become filler.
                blank = BLANK_ENTRY * (queue_offset - self.begin)
            else:
                blank = b""
            base = self._base(queue_offset)
            file = self._open_to_write(base)
            if file is None:
                return
            count = min(len(data) // ENTRY_BYTES, base + self.file_entries - queue_offset)
            with contextlib.closing(file):
                if blank:
                    file.write(0, blank)
                file.write((queue_offset - base) * ENTRY_BYTES, data[: count * ENTRY_BYTES])
                # Each file is flushed before the next one is written, so that entries reach the
                # disk in order.
                file.flush()
            self.end = max(self.end, base + self.file_entries)
            queue_offset += count
            data = data[count * ENTRY_BYTES :]

    def _open_to_write(self, base: int) -> PlainFile | None:
        """Open or create a file; return None if the queue is deleted.

        The directory of a deleted queue was renamed, and its name may belong to a new queue: hence
        the lock around creations, and the second check after opening.
        """
        path = self._path(base)
        # Creations hold the lock of deletions: a file must not appear in a renamed directory.
        if base >= self.end:
            with self._file_creation_lock:
                if self.is_deleted:
                    return None
                return self._files.create_file(path, self.file_entries * ENTRY_BYTES)
        try:
            file = self._files.open_file(path)
        except FileNotFoundError:
            with self._file_creation_lock:  # renamed, but not yet marked as deleted
                if self.is_deleted:
                    return None
            raise
        if self.is_deleted:
            file.close()
            return None
        return file

    def sync(self, queue_offset: int) -> None:
        """Flush the file that holds, or would hold, an entry.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        if self.begin <= queue_offset < self.end:
            file = self._open_to_write(self._base(queue_offset))
            if file is not None:
                with contextlib.closing(file):
                    file.flush()

    # -- the end ---------------------------------------------------------------------------

    def find_end(self, limit_phy: int) -> tuple[int, Entry | None]:
        """Find the end of the valid entries whose message starts before an offset.

        Bisection is correct because all entries before a trusted offset are complete on disk, and
        an arbitrary later entry that looks valid has an invalid one before it.

        Returns:
            The queue offset after the last valid entry, and that entry.

        Raises:
            StoreFormatError: a file has a wrong length.
        """
        self.has_stray_bytes = False
        self.first_phy = -1
        base = self.end - self.file_entries
        while base >= self.begin:
            with contextlib.closing(self._files.open_file(self._path(base))) as file:
                # A crash between creation and sizing leaves an empty last file; others must not be
                # empty.
                if file.size_bytes == 0 and base == self.end - self.file_entries:
                    self._remove_empty(base)
                    base = self.end - self.file_entries
                    continue
                self._check_length(file, base)
                count, entry = self._whole_entries(file, limit_phy, is_first=base == self.begin)
            if entry is not None:
                # Files after the last valid entry hold only bytes that must be erased.
                self.has_stray_bytes |= base + self.file_entries < self.end
                return base + count, entry
            base -= self.file_entries
        self.has_stray_bytes |= self.file_count > 1
        return self.begin, None

    def _remove_empty(self, base: int) -> None:
        """Remove an empty last file: a crash came between its creation and sizing."""
        logger.warning("empty last file removed: path=%s", self._path(base))
        self._files.remove(self._path(base))
        self.end = base

    def _check_length(self, file: PlainFile, base: int) -> None:
        if file.size_bytes != self.file_entries * ENTRY_BYTES:
            raise StoreFormatError(
                f"{self._path(base)} has {file.size_bytes} bytes, "
                f"the configuration says {self.file_entries * ENTRY_BYTES}"
            )

    def _whole_entries(
        self, file: PlainFile, limit_phy: int, *, is_first: bool
    ) -> tuple[int, Entry | None]:
        """Return the number of valid entries at the start of a file, and the last of them."""
        # The file system knows where unwritten parts start, which saves reading zeros.
        hole = file.first_hole()
        low, high = 0, min(-(-hole // ENTRY_BYTES), self.file_entries)
        middle = max(0, high - _BLOCK_ENTRIES)  # the end usually lies before the first hole
        while high - low > _BLOCK_ENTRIES:
            if _is_whole(file, middle, limit_phy):
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        first = max(0, low - 1)
        block = file.read(first * ENTRY_BYTES, (high - first) * ENTRY_BYTES)
        count, last = first, None
        last_phy = 0
        for entry in ENTRY.iter_unpack(block[: len(block) - len(block) % ENTRY_BYTES]):
            if entry[1] <= 0 or not last_phy <= entry[0] < limit_phy:
                break
            last, last_phy = entry, entry[0]
            if is_first and count == 0 and entry[1] != BLANK_SIZE:
                self.first_phy = entry[0]
            count += 1
        rest = block[(count - first) * ENTRY_BYTES :]
        self.has_stray_bytes = rest != bytes(len(rest)) or file.has_data(
            first * ENTRY_BYTES + len(block), file.size_bytes
        )
        return count, last

    def erase_from(self, queue_offset: int) -> None:
        """Zero everything from an entry on, without waiting for the disk.

        Stale bytes would look valid at a later start. The first file stays, because its name
        records where the queue starts.

        Raises:
            OSError: the disk failed.
        """
        while self.file_count > 1 and self.end - self.file_entries >= queue_offset:
            self.end -= self.file_entries
            # From the end, so that an interrupted erasure leaves no gap.
            self._files.remove(self._path(self.end))
        if self.begin <= queue_offset < self.end:
            base = self._base(queue_offset)
            with contextlib.closing(self._files.open_file(self._path(base))) as file:
                if file.erase((queue_offset - base) * ENTRY_BYTES, file.size_bytes):
                    logger.info(
                        "entries after the end erased: path=%s queue_offset=%d",
                        self._path(base),
                        queue_offset,
                    )
        self.has_stray_bytes = False

    def distrust_names(self) -> None:
        """Include the names of all files in the next sync of directories."""
        self._files.touch_directory(self._directory)

    # -- deletion --------------------------------------------------------------------------

    def remove_first(self) -> None:
        """Delete the oldest file."""
        base = self.begin
        self.begin += self.file_entries
        self.first_phy = -1
        self._files.remove(self._path(base))

    def remove_all(self) -> None:
        """Delete every file."""
        while self.begin < self.end:
            self.remove_first()
        # Files before a gap are not part of [begin, end), but must not reappear.
        for name in self._files.list_files(self._directory) if self.has_gap else ():
            self._files.remove(self._directory / name)
        self.begin = self.end = 0
        self.has_gap = False

    def begin_at(self, queue_offset: int) -> None:
        """Start a queue without files at an offset, also after a restart.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        base = self._base(queue_offset)
        file = self._files.create_file(self._path(base), self.file_entries * ENTRY_BYTES)
        with contextlib.closing(file):
            file.write(0, BLANK_ENTRY * (queue_offset - base))
            file.flush()
        self.begin, self.end = base, base + self.file_entries


def _is_whole(file: PlainFile, number: int, limit_phy: int) -> bool:
    """Return whether an entry and the one before it are valid, in order and before the limit."""
    first = max(0, number - 1)
    data = file.read(first * ENTRY_BYTES, (number + 1 - first) * ENTRY_BYTES)
    last_phy = 0
    for phy_offset, size_bytes, _ in ENTRY.iter_unpack(data):
        if size_bytes <= 0 or not last_phy <= phy_offset < limit_phy:
            return False
        last_phy = phy_offset
    return True
