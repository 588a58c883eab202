"""Check of a copied commit log: every record, and the end of the last complete one.

The files are read, never changed. Consecutive fast-path eligible records are checked by the
compiled reader where it is available; the others, and all of them without it, one by one.
"""

import contextlib
import mmap
import pathlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final, NamedTuple

from rocketpy.proto.record.record import BLANK_BYTES
from rocketpy.proto.record.record_check import RecordState, check_record
from rocketpy.store.recovery.bulk_recovery import NO_INDEX, CompiledReader
from rocketpy.store.scan.directory import LogFile

_MOST_DAMAGED: Final = 100


class CheckedLog(NamedTuple):
    """Result of a check.

    Attributes:
        begin: physical offset of the oldest byte.
        end: physical offset after the last complete record.
        records: number of intact records.
        damaged: physical offsets of damaged records before the end, up to a limit.
    """

    begin: int
    end: int
    records: int
    damaged: list[int]


@contextmanager
def mapped_to_read(file: LogFile) -> Iterator[memoryview]:
    """Map a file that may not be writable."""
    with pathlib.Path(file.path).open("rb") as opened:
        data = mmap.mmap(opened.fileno(), file.size_bytes, prot=mmap.PROT_READ)
    with contextlib.closing(data), memoryview(data) as view:
        yield view


class LogCheck:
    """Check of the files of one log, in order."""

    def __init__(
        self,
        progress: Callable[[int], None] = lambda _: None,
        map_file: Callable[[LogFile], AbstractContextManager[memoryview]] = mapped_to_read,
    ) -> None:
        """Prepare the check.

        Args:
            progress: called with the number of bytes checked since the last call.
            map_file: opens a file.
        """
        self._progress = progress
        self._map_file = map_file
        self._reader = CompiledReader((0,))  # only the records count, not their entries
        self._records = 0
        self._damaged: list[int] = []
        self._last = 0  # a byte of the last intact record
        self._end = 0

    def run(self, files: Sequence[LogFile], limit: int | None = None) -> CheckedLog:
        """Check all records before a limit.

        Args:
            files: files of the log, ascending.
            limit: physical offset from which records are ignored; None for the whole log.

        Raises:
            OSError: a file cannot be read.
        """
        begin = self._end = self._last = files[0].base if files else 0
        for each in files:
            if limit is None or each.base < limit:
                self._check_file(each, limit)
        # Damage after the last intact record is a record that was being written.
        damaged = [each for each in self._damaged if each < self._last]
        return CheckedLog(begin, self._end, self._records, damaged[:_MOST_DAMAGED])

    def _check_file(self, file: LogFile, limit: int | None) -> None:
        end = file.size_bytes if limit is None else min(file.size_bytes, limit - file.base)
        with self._map_file(file) as view:
            self._check_view(view, file.base, end)

    def _check_view(self, view: memoryview, base: int, end: int) -> None:
        position = reported = 0
        while position + BLANK_BYTES <= end:
            position = self._check_bulk(view, position, end, base)
            if position + BLANK_BYTES > end:
                break
            found = check_record(view, position, base + position)
            if found.state is RecordState.BLANK:
                position = end
                self._end = base + len(view)
                break
            if found.state is RecordState.RECORD and position + found.size_bytes <= end:
                self._records += 1
                self._last = base + position
                self._end = base + position + found.size_bytes
            elif found.state is RecordState.DAMAGED:
                self._damaged.append(base + position)
            else:
                # The start of the next record is unknown: it is the end of the log, or damage if a
                # later file has records.
                self._damaged.append(base + position)
                break
            position += found.size_bytes
            if position - reported > 64 << 20:
                self._progress(position - reported)
                reported = position
        self._progress(end - reported)

    def _check_bulk(self, view: memoryview, position: int, end: int, base: int) -> int:
        """Check eligible records; return the position after them."""
        records = self._reader.records()
        limit = min(end, len(view) - BLANK_BYTES)
        while records is not None and position < limit:
            if not records.read(view, position, limit, base, True, NO_INDEX):
                break
            self._records += records.count
            position = records.end
            self._end = base + position
            self._last = base + position - 1
        return position
