"""Read-only view of a commit log: mapped files, and the end of the log.

The log of a running broker ends with zeros, that of a killed one possibly within a record, a copy
where copying stopped. Invalid bytes after the last complete record are the tail and not an error;
invalid bytes before a complete record are damage.

The last record may be torn, which is not an error, or damaged, which is. RocketPy's checkpoint
records how far the log is on disk. Apache's does not; but a store that was closed (without the file
`abort`) holds complete records only, of the length that their size field or their parts give.
"""

import bisect
import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from rocketpy.proto.record.record import MAGIC_AT, end_of_parts, record_store_timestamp_ms
from rocketpy.proto.record.record_check import RecordCheck, RecordState, check_record
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.scan.directory import LogFile, StoreDirectory

_MAGIC_START: Final = b"\xda\xa3\x20"
_OPEN_FILES: Final = 4
_SEARCHED_AT_ONCE: Final = 8 << 20
# The last bytes of a record are never all zero: properties, or topic and an empty length.
_NEVER_ZEROS: Final = 3


class MappedLog:
    """Mapped file of the log.

    Attributes:
        base: physical offset of its first byte.
        size_bytes: length of the file.
        data: content as a `pyarrow.Buffer`.
        view: content as a memoryview.
    """

    def __init__(self, file: LogFile) -> None:
        """Map a file.

        Raises:
            OSError: the file was deleted or cannot be mapped.
        """
        with open(file.path, "rb") as opened:  # noqa: PTH123 - many times, without a Path
            self._map = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._path = file.path
        self.base: int = file.base
        self.size_bytes: int = len(self._map)
        self.data: pa.Buffer = pa.py_buffer(self._map)
        self.view: memoryview[int] = memoryview(self._map)
        self._kept_from = 0

    def check(self, position: int) -> RecordCheck:
        """Return the state of the record at a position, without checking its body."""
        place = self.base + position
        return check_record(self.view, position, place, check_crc=False, bytes_behind=0)

    def find(self, pattern: bytes, start: int) -> int:
        """Return the position of the first match at or after a position; -1 if there is none.

        Holes of the file are skipped, because reading them would fill memory with zeros.
        """
        at = start
        while True:
            at = self._next_data(at)
            if at >= self.size_bytes:
                return -1
            end = min(self.size_bytes, at + _SEARCHED_AT_ONCE)
            # Overlaps the next range, so that a match across the boundary is found.
            found = self._map.find(pattern, at, end + len(pattern) - 1)
            if found >= 0:
                return found
            # Searched pages are not needed again.
            self._release(at, end)
            at = end

    def _next_data(self, position: int) -> int:
        """Return the next position with data blocks on disk, or the end of the file."""
        if not hasattr(os, "SEEK_DATA") or position >= self.size_bytes:
            return position
        try:
            with open(self._path, "rb") as opened:  # noqa: PTH123 - as above
                return os.lseek(opened.fileno(), position, os.SEEK_DATA)
        except OSError as error:
            return self.size_bytes if error.errno == errno.ENXIO else position

    def _release(self, start: int, end: int) -> None:
        start, end = (each - each % mmap.PAGESIZE for each in (start, end))
        if end > start and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def release_before(self, position: int) -> None:
        """Release the pages before a position, which would count as memory of this process.

        Reading them again maps them again.
        """
        position = min(position, self.size_bytes)  # a damaged queue may name any position
        if position > self._kept_from:
            self._release(self._kept_from, position)
            self._kept_from = position


class Log:
    """Files of a log, of which at most four are mapped at a time; one thread reads.

    Attributes:
        files: existing files, ascending.
        begin: physical offset of the first byte; 0 without files.
        end: offset after the last byte of the last file, written or not.
    """

    def __init__(
        self, files: Sequence[LogFile], *, written_end: int = 0, is_closed: bool = False
    ) -> None:
        """Create the view of a list of files.

        Args:
            files: files in ascending order.
            written_end: physical offset before which everything was written.
            is_closed: whether the store was closed and so has complete records only.
        """
        self.files = files
        self._written_end = written_end
        self._is_closed = is_closed
        self._bases = [file.base for file in files]
        self.begin: int = files[0].base if files else 0
        self.end: int = files[-1].base + files[-1].size_bytes if files else 0
        self._open: OrderedDict[int, MappedLog] = OrderedDict()
        self._followed_until = 0  # before it, every offset is followed by a complete record
        self._tail_from = self.end  # from it on, no offset is

    def file_number(self, phy_offset: int) -> int:
        """Return the number of the file that holds an offset; -1 if there is none."""
        number = bisect.bisect_right(self._bases, phy_offset) - 1
        if number < 0:
            return -1
        file = self.files[number]
        return number if phy_offset < file.base + file.size_bytes else -1

    def open(self, number: int) -> MappedLog | None:
        """Map and return a file by its number; None if it was deleted meanwhile."""
        found = self._open.get(number)
        if found is None:
            try:
                found = MappedLog(self.files[number])
            except FileNotFoundError:
                return None
            self._open[number] = found
            # Mapping all files of a large log would exhaust the limit of mappings.
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)
        self._open.move_to_end(number)
        return found

    def state_at(self, phy_offset: int) -> RecordState:
        """Return the state of the record at an offset; EMPTY outside the files."""
        number = self.file_number(phy_offset)
        mapped = self.open(number) if number >= 0 else None
        if mapped is None:
            return RecordState.EMPTY
        return mapped.check(phy_offset - mapped.base).state

    def store_time_ms(self, phy_offset: int) -> int | None:
        """Return the store time of the record at an offset, ms; None if there is no record."""
        if self.state_at(phy_offset) is not RecordState.RECORD:
            return None
        mapped = self.open(self.file_number(phy_offset))
        assert mapped is not None
        return record_store_timestamp_ms(mapped.view, phy_offset - mapped.base)

    def is_behind_end(self, phy_offset: int) -> bool:
        """Return whether no complete record starts at or after an offset."""
        if phy_offset < self._followed_until:
            return False
        if phy_offset >= self._tail_from:
            return True
        found = self.next_record(phy_offset)
        if found is None:
            if self.is_damage(phy_offset):
                return False
            self._tail_from = phy_offset
            return True
        # Cached, because the check is repeated for every entry of a queue.
        self._followed_until = found + 1
        return False

    def is_damage(self, phy_offset: int) -> bool:
        """Return whether the last record of the log is damaged rather than torn.

        A torn record, or one truncated by copying, lacks its end, which is zero or missing.
        """
        ends = [self._written_end]
        if self._written_end <= phy_offset and self._is_closed:
            # A closed store has no torn record, so its size field or its parts give the written
            # end.
            ends = self._ends_said(phy_offset)
        return any(self._is_written_before(end) for end in ends if end > phy_offset)

    def _is_written_before(self, end: int) -> bool:
        number = self.file_number(end - 1)
        mapped = self.open(number) if number >= 0 else None
        if mapped is None:
            return False
        at = end - mapped.base
        return any(mapped.view[max(0, at - _NEVER_ZEROS) : at])

    def _ends_said(self, phy_offset: int) -> list[int]:
        """Return the ends of a record, computed from its size field and from its parts."""
        number = self.file_number(phy_offset)
        mapped = self.open(number) if number >= 0 else None
        if mapped is None:
            return []
        at = phy_offset - mapped.base
        size = int.from_bytes(mapped.view[at : at + 4], "big")
        return [phy_offset + size, mapped.base + end_of_parts(mapped.view, at)]

    def next_record(self, phy_offset: int) -> int | None:
        """Return the next complete record at or after an offset that holds its own offset."""
        number = bisect.bisect_right(self._bases, phy_offset) - 1
        for each in range(max(number, 0), len(self.files)):
            mapped = self.open(each)
            if mapped is None:
                continue
            start = max(phy_offset - mapped.base, 0)
            found = _search(mapped, start)
            if found is not None:
                return found
        return None


def _search(mapped: MappedLog, start: int) -> int | None:
    at = start + MAGIC_AT - 1
    while True:
        at = mapped.find(_MAGIC_START, at + 1)
        if at < 0:
            return None
        position = at - MAGIC_AT
        # The magic number may also occur within a body.
        if mapped.check(position).state is RecordState.RECORD:
            return mapped.base + position


def log_of(directory: StoreDirectory, files: Sequence[LogFile] | None = None) -> Log:
    """Return the log of a directory.

    Args:
        directory: the store.
        files: files of the log that were listed before; None: list them now.

    Raises:
        StoreFormatError: a file that is not a log file.
    """
    checkpoint = read_checkpoint(directory.root)
    # The abort file exists while a store is open and after a crash.
    is_closed = checkpoint is None and not (directory.root / "abort").exists()
    written_end = 0 if checkpoint is None else checkpoint.log_phy_offset
    found = directory.log_files() if files is None else files
    return Log(found, written_end=written_end, is_closed=is_closed)


def read_checkpoint(root: Path) -> Checkpoint | None:
    """Return RocketPy's checkpoint; None if there is none, or Apache wrote to the store later."""
    for _ in range(3):  # a broker may be writing it
        checkpoint = Checkpoint(root / "checkpoint", cast("StoreFiles", _Reading()))
        checkpoint.load()
        if checkpoint.has_offsets:
            return checkpoint
    return None


class _Reading:
    """File access that reading a checkpoint needs."""

    @staticmethod
    def exists(path: Path) -> bool:
        return path.exists()

    @staticmethod
    def read_bytes(path: Path) -> bytes:
        return path.read_bytes()
