"""The timer log: one unit for each timed message, and which unit of the same moment came before.

::

    0          4           12          16           24          28         36         40         44
    | size i32 | prev: i64 | magic i32 | write: i64 | delay i32 | phy: i64 | size i32 | hash i32 |

52 bytes, big-endian; the last 8 are zero. ``prev`` is the position of the unit before it in the
same slot of the wheel, -1 for the first; ``write`` is when the unit was written and ``delay`` how
much later it is due, ms; ``phy`` and the second size say where the message lies in the commit log;
the hash is that of its real topic. Files have one fixed length; a unit leaves 16 bytes free behind
it, for the blank that fills up a file: i32 rest, i64 0, i32 blank magic.

Units are appended in memory and written by `write`, one call for many. What was written is on
disk after `flush`.

Source: TimerLog, TimerMessageStore.doEnqueue (5.4.0).
"""

import itertools
import logging
import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketpy.proto.record.record import BLANK_MAGIC
from rocketpy.store.files.store_files import PlainFile, StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_BYTES: Final = 52
assert UNIT.size == UNIT_BYTES
NO_UNIT: Final = -1

MAGIC_DEFAULT: Final = 1
MAGIC_ROLL: Final = 2
MAGIC_DELETE: Final = 4
_MAGIC_MASK: Final = 0xF
_MAGIC_AT: Final = 12

_BLANK: Final = struct.Struct(">iqi")
_BLANK_BYTES: Final = 16
_BLOCK_UNITS: Final = 1_260
_BLOCK_BYTES: Final = _BLOCK_UNITS * UNIT_BYTES
_MOST_BLOCKS: Final = 16
"""Blocks of 64 KiB that are kept for readers."""


class TimerUnit(NamedTuple):
    """One unit.

    Attributes:
        prev_position: of the unit before it in its slot, -1 for the first.
        magic: 1, with 2 when the message is to be put back and 4 when it recalls another.
        write_ms: when it was written, a multiple of the precision.
        delay_ms: how much later it is due.
        phy_offset: where the message lies in the commit log.
        size_bytes: of that record.
        topic_hash: Java's hash of the real topic.
    """

    prev_position: int
    magic: int
    write_ms: int
    delay_ms: int
    phy_offset: int
    size_bytes: int
    topic_hash: int

    @property
    def due_ms(self) -> int:
        """Start of the slot it belongs to."""
        return self.write_ms + self.delay_ms

    @property
    def is_recall(self) -> bool:
        """Whether it recalls another message of its slot."""
        return bool(self.magic & MAGIC_DELETE) and not self.magic & MAGIC_ROLL

    @property
    def is_rolled(self) -> bool:
        """Whether its message is put back to wait on."""
        return bool(self.magic & MAGIC_ROLL)


class TimerLog:
    """The files of one timer log; the owner serialises callers, but `PendingFlush.run`.

    Args:
        directory: where the files are.
        file_bytes: length of each.
        files: the file system.

    Attributes:
        end: position after the last unit.
    """

    def __init__(self, directory: Path, file_bytes: int, files: StoreFiles) -> None:
        self.end: int = 0
        self._directory = directory
        self._file_bytes = file_bytes
        self._last_unit_at = (file_bytes - _BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES - UNIT_BYTES
        self._files = files
        self._bases: list[int] = []
        self._file: PlainFile | None = None
        self._retired: list[PlainFile] = []
        self._flushed_end = 0
        self._unwritten = bytearray()
        self._block = bytearray()  # the block that grows, from its first byte on
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    # -- life ------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the files.

        When one is missing, or has another length than the configuration says, all are kept aside
        and the log begins anew: the messages are read again from their queue.
        """
        bases, sizes = [], set()
        for name in self._files.list_files(self._directory):
            if len(name) != 20 or not name.isdigit():
                continue
            size_bytes = self._files.size_bytes(self._directory / name)
            if size_bytes == 0:
                self._files.remove(self._directory / name)
                continue
            bases.append(int(name))
            sizes.add(size_bytes)
        follows = all(base == bases[0] + at * self._file_bytes for at, base in enumerate(bases))
        if sizes - {self._file_bytes} or not follows:
            self._keep_aside()
            bases = []
        self._bases = bases
        self.end = bases[-1] + self._file_bytes if bases else 0

    def _keep_aside(self) -> None:
        aside = self._directory.with_name(self._directory.name + ".damaged")
        logger.error(
            "files of the timer log are missing, or not of mappedFileSizeTimerLog %d bytes: "
            "all are kept in %s, and timed messages are read again",
            self._file_bytes,
            aside,
        )
        self._files.remove_tree(aside)
        self._files.rename(self._directory, aside)

    def close(self) -> None:
        """Let go of the files; what was not written is lost."""
        for file in self._retired:
            file.close()
        self._retired.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def begin(self) -> int:
        """Position of the first unit."""
        return self._bases[0] if self._bases else 0

    # -- writing ---------------------------------------------------------------------------

    def append(self, unit: TimerUnit) -> int:
        """Append a unit, in memory; return its position."""
        position = self._room()
        data = UNIT.pack(
            UNIT_BYTES,
            unit.prev_position,
            unit.magic,
            unit.write_ms,
            unit.delay_ms,
            unit.phy_offset,
            unit.size_bytes,
            unit.topic_hash,
            0,
        )
        self._unwritten += data
        self._block += data
        self.end = position + UNIT_BYTES
        if len(self._block) == _BLOCK_BYTES:
            self._keep(self.end - _BLOCK_BYTES, bytes(self._block))
            self._block.clear()
        return position

    def _room(self) -> int:
        """Return where the next unit goes; a full file is filled up and a new one begun.

        Raises:
            DiskFullError: no space for a new file; nothing changed.
        """
        if not self._bases or self.end == self._bases[-1] + self._file_bytes:
            self._begin_file(self._bases[-1] + self._file_bytes if self._bases else 0)
        elif self.end - self._bases[-1] > self._last_unit_at:
            rest = self._bases[-1] + self._file_bytes - self.end
            self.write()
            self._open_last().write(self.end - self._bases[-1], _BLANK.pack(rest, 0, BLANK_MAGIC))
            self._begin_file(self._bases[-1] + self._file_bytes)
        return self.end

    def _begin_file(self, base: int) -> None:
        self.write()
        file = self._files.create_file(self._path(base), self._file_bytes)
        if self._file is not None:
            self._retired.append(self._file)
        self._file = file
        self._bases.append(base)
        self.end = base
        self._block.clear()

    def write(self) -> None:
        """Hand the units appended so far to the system; a kill of the process cannot lose them.

        Raises:
            DiskFullError: no space; the units wait in memory for the next call.
        """
        if self._unwritten:
            at = self.end - len(self._unwritten) - self._bases[-1]
            self._open_last().write(at, bytes(self._unwritten))
            self._unwritten.clear()

    def mark(self, positions: Iterable[int], magic: int) -> None:
        """Give units that are written another magic.

        Raises:
            DiskFullError: no space.
        """
        data = struct.pack(">i", magic)
        stale: set[int] = set()
        try:
            for base, of_file in itertools.groupby(positions, self._base_of):
                self._mark(base, of_file, data, stale)
        finally:
            for block_at in stale:
                self._blocks.pop(block_at, None)

    def _mark(self, base: int, positions: Iterable[int], data: bytes, stale: set[int]) -> None:
        """Mark units of one file; note the blocks in memory that do not show it."""
        is_last = base == self._bases[-1]
        file = self._open_last() if is_last else self._files.open_file(self._path(base))
        try:
            for position in positions:
                at = position - base + _MAGIC_AT
                file.write(at, data)
                block_at = position - (position - base) % _BLOCK_BYTES
                if block_at == self._growing_at:
                    in_block = position - block_at + _MAGIC_AT
                    self._block[in_block : in_block + len(data)] = data
                else:
                    stale.add(block_at)
            if not is_last:
                file.flush()
        finally:
            if not is_last:
                file.close()

    def _base_of(self, position: int) -> int:
        return position - position % self._file_bytes

    def pending_flush(self) -> "PendingFlush":
        """Return what brings everything written so far to disk, for another thread to run."""
        retired, self._retired = self._retired, []
        begin, self._flushed_end = self._flushed_end, self.end
        last = self._file if self.end != begin else None
        return PendingFlush(begin, self.end, last, retired, self._files)

    def take_back(self, pending: "PendingFlush") -> None:
        """Count as not on disk what a flush that failed was to bring there."""
        self._retired[:0] = pending.retired
        self._flushed_end = pending.begin

    def sync_from(self, position: int) -> None:
        """Bring the files from a position on to disk, whoever wrote them, and their names.

        Raises:
            OSError: the disk failed.
        """
        for base in self._bases:
            if base + self._file_bytes > position:
                file = self._files.open_file(self._path(base))
                try:
                    file.flush()
                finally:
                    file.close()
        self._files.touch_directory(self._directory)

    def _open_last(self) -> PlainFile:
        if self._file is None:
            self._file = self._files.open_file(self._path(self._bases[-1]))
        return self._file

    def _path(self, base: int) -> Path:
        return self._directory / f"{base:020d}"

    # -- reading ---------------------------------------------------------------------------

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position; None when there is none (any more)."""
        if not self.begin <= position <= self.end - UNIT_BYTES:
            return None
        in_file = position % self._file_bytes
        block_at = position - in_file % _BLOCK_BYTES
        block = self._block_at(block_at)
        if in_file % UNIT_BYTES or position - block_at + UNIT_BYTES > len(block):
            return None
        return _unit_of(block, position - block_at)

    def _block_at(self, block_at: int) -> bytes | bytearray:
        if block_at == self._growing_at:
            return self._block
        found = self._blocks.get(block_at)
        if found is not None:
            self._blocks.move_to_end(block_at)
            return found
        data = self._read(block_at, _BLOCK_BYTES)
        self._keep(block_at, data)
        return data

    @property
    def _growing_at(self) -> int:
        return self.end - len(self._block)

    def _keep(self, block_at: int, data: bytes) -> None:
        self._blocks[block_at] = data
        while len(self._blocks) > _MOST_BLOCKS:
            self._blocks.popitem(last=False)

    def _read(self, position: int, size_bytes: int) -> bytes:
        base = self._base_of(position)
        if self._file is not None and base == self._bases[-1]:
            return self._file.read(position - base, size_bytes)
        file = self._files.open_file(self._path(base))
        try:
            return file.read(position - base, size_bytes)
        finally:
            file.close()

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        """Yield positions where units may be, from before one back to another, that one too.

        Args:
            position: where a unit may begin.
            stop: the last position to yield; before the log's beginning means that.
        """
        stop = max(stop, self.begin)
        while position > stop:
            base = self._base_of(position)
            if position == base:
                position = base - self._file_bytes + self._last_unit_at
            else:
                position -= UNIT_BYTES
            if position >= stop:
                yield position

    def may_begin_at(self, position: int) -> bool:
        """Whether a unit may begin at a position, of this log or beyond."""
        return position % self._file_bytes % UNIT_BYTES == 0

    def unit_boundary(self, position: int) -> int:
        """Return the position itself when a unit may begin there, else the file's beginning."""
        if position > self.end:
            return self._bases[-1] if self._bases else 0
        return position if self.may_begin_at(position) else self._base_of(position)

    def scan(self, start: int, *, past_damage: bool = False) -> Iterator[tuple[int, TimerUnit]]:
        """Yield position and unit from a position on, to the first bytes that are none.

        Args:
            start: position of a unit; before the first file means its beginning.
            past_damage: go on behind such bytes, to the end.
        """
        position = max(start, self.begin)
        while position < self.end:
            in_file = position % self._file_bytes
            base = position - in_file
            data = self._read(position, min(_BLOCK_BYTES, self._file_bytes - in_file))
            at = 0
            while at + _BLANK_BYTES <= len(data):
                if _is_blank(data, at):
                    break
                if at + UNIT_BYTES > len(data):
                    break
                unit = _unit_of(data, at)
                if unit is not None:
                    yield position + at, unit
                elif not past_damage:
                    return
                at += UNIT_BYTES
            if at + _BLANK_BYTES <= len(data) and _is_blank(data, at):
                position = base + self._file_bytes
            elif at:
                position += at
            elif past_damage:
                position = base + self._file_bytes
            else:
                return

    # -- recovery and retention ------------------------------------------------------------

    def cut(self, end: int) -> None:
        """Let the log end at a position: later files go, later bytes become zeros.

        Raises:
            OSError: the disk failed.
        """
        self.close()
        while self._bases and self._bases[-1] > end - end % self._file_bytes:
            self._files.remove(self._path(self._bases.pop()))
        self._blocks.clear()
        self._block.clear()
        self._unwritten.clear()
        self.end = self._flushed_end = end
        if not self._bases or end == self._bases[-1] + self._file_bytes:
            return
        base = self._bases[-1]
        file = self._open_last()
        if file.erase(end - base, self._file_bytes):
            logger.warning("the timer log is cut: position=%d", end)
            file.flush()
        block_at = end - (end - base) % _BLOCK_BYTES
        self._block += file.read(block_at - base, end - block_at)

    def remove_before(self, min_phy_offset: int) -> int:
        """Delete files whose messages are all gone from the commit log; return how many.

        Args:
            min_phy_offset: where the commit log begins.
        """
        removed = 0
        while len(self._bases) > 1:
            data = self._read(self._bases[0] + self._last_unit_at, UNIT_BYTES)
            unit = _unit_of(data, 0)
            if unit is None or unit.phy_offset >= min_phy_offset:
                break
            base = self._bases.pop(0)
            for block_at in [each for each in self._blocks if each < self._bases[0]]:
                del self._blocks[block_at]
            self._files.remove(self._path(base))
            removed += 1
        return removed


class PendingFlush:
    """Brings units to disk, beside those who append more.

    Attributes:
        begin: units before this position were on disk before.
        end: units before this position are on disk once `run` returned.
        retired: full files that are still to be flushed and closed.
    """

    def __init__(
        self,
        begin: int,
        end: int,
        last: PlainFile | None,
        retired: list[PlainFile],
        files: StoreFiles,
    ) -> None:
        self.begin = begin
        self.end = end
        self.retired = retired
        self._last = last
        self._files = files

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to bring to disk."""
        return self._last is None and not self.retired

    def run(self) -> None:
        """Flush.

        Raises:
            OSError: the disk failed.
        """
        while self.retired:
            self.retired[0].flush()
            self.retired.pop(0).close()
        if self._last is not None:
            self._last.flush()
            self._files.sync_directories()


def _is_blank(data: bytes, at: int) -> bool:
    return bool(_BLANK.unpack_from(data, at)[2] == BLANK_MAGIC)


def _unit_of(data: bytes | bytearray, at: int) -> TimerUnit | None:
    size, prev, magic, write_ms, delay_ms, phy, size_bytes, topic_hash, _ = UNIT.unpack_from(
        data, at
    )
    if size != UNIT_BYTES or magic & ~_MAGIC_MASK or magic == 0 or phy < 0 or size_bytes <= 0:
        return None
    return TimerUnit(prev, magic, write_ms, delay_ms, phy, size_bytes, topic_hash)
