"""Timer log: one unit for each timed message, linked to the previous unit of its slot.

::

    0          4           12          16           24          28         36         40         44
    | size i32 | prev: i64 | magic i32 | write: i64 | delay i32 | phy: i64 | size i32 | hash i32 |

52 bytes, big-endian; the last 8 are zero. `prev` is the position of the previous unit in the same
slot of the wheel, -1 for the first; `write` is when the unit was written and `delay` how much
later it is due, ms; `phy` and the second size locate the message in the commit log; the hash is
that of its real topic. Files have one fixed length; a unit leaves 16 bytes free after it, for the
blank that fills up a file: i32 rest, i64 0, i32 blank magic.

Units are appended in memory and written in bulk by `write`. Written units are on disk after a
flush (`PendingFlush`).

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
# Cached blocks of 64 KiB for readers.
_MOST_BLOCKS: Final = 16


class TimerUnit(NamedTuple):
    """Unit of the timer log.

    Attributes:
        prev_position: position of the previous unit in its slot, -1 for the first.
        magic: 1, plus 2 if the message is rolled and 4 if it recalls another one.
        write_ms: time of writing, a multiple of the precision.
        delay_ms: time from writing until it is due.
        phy_offset: physical offset of the message.
        size_bytes: size of its record.
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
        """Start of its slot, ms."""
        return self.write_ms + self.delay_ms

    @property
    def is_recall(self) -> bool:
        """Whether the unit recalls another message of its slot."""
        return bool(self.magic & MAGIC_DELETE) and not self.magic & MAGIC_ROLL

    @property
    def is_rolled(self) -> bool:
        """Whether its message is put back to wait longer."""
        return bool(self.magic & MAGIC_ROLL)


class TimerLog:
    """Files of the timer log; the owner serialises all calls except `PendingFlush.run`.

    Args:
        directory: location of the files.
        file_bytes: length of each file.
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
        self._block = bytearray()  # the last block, which still grows
        self._blocks: OrderedDict[int, bytes] = OrderedDict()

    # -- life ------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the files.

        If a file is missing or does not have the configured length, all are moved away and the log
        starts empty: the messages are read again from their queue.
        """
        bases, sizes = [], set()
        for name in self._files.list_files(self._directory):
            if len(name) != 20 or not name.isdigit():
                continue
            size_bytes = self._files.size_bytes(self._directory / name)
            # A crash came between the creation and the sizing of the file.
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
            "timer log moved, files missing or of another length, timed messages are read again: "
            "mappedFileSizeTimerLog=%d kept_as=%s",
            self._file_bytes,
            aside,
        )
        self._files.remove_tree(aside)
        # Moved instead of deleted: an operator may restore the files.
        self._files.rename(self._directory, aside)

    def close(self) -> None:
        """Close the files; units that were not written are lost."""
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
        # One write for many units: a system call for each would dominate the cost.
        self._unwritten += data
        self._block += data
        self.end = position + UNIT_BYTES
        if len(self._block) == _BLOCK_BYTES:
            self._keep(self.end - _BLOCK_BYTES, bytes(self._block))
            self._block.clear()
        return position

    def _room(self) -> int:
        """Return the position of the next unit; fill up a full file and start a new one.

        Raises:
            DiskFullError: no space for a new file; nothing changed.
        """
        if not self._bases or self.end == self._bases[-1] + self._file_bytes:
            self._begin_file(self._bases[-1] + self._file_bytes if self._bases else 0)
        elif self.end - self._bases[-1] > self._last_unit_at:
            rest = self._bases[-1] + self._file_bytes - self.end
            # The blank follows the last unit in the file.
            self.write()
            self._open_last().write(self.end - self._bases[-1], _BLANK.pack(rest, 0, BLANK_MAGIC))
            self._begin_file(self._bases[-1] + self._file_bytes)
        return self.end

    def _begin_file(self, base: int) -> None:
        self.write()
        file = self._files.create_file(self._path(base), self._file_bytes)
        if self._file is not None:
            # Closed after its flush, which runs on another thread.
            self._retired.append(self._file)
        self._file = file
        self._bases.append(base)
        self.end = base
        self._block.clear()

    def write(self) -> None:
        """Write all appended units to the file, so that they survive a kill of the process.

        Raises:
            DiskFullError: no space; the units stay in memory for the next call.
        """
        if self._unwritten:
            at = self.end - len(self._unwritten) - self._bases[-1]
            self._open_last().write(at, bytes(self._unwritten))
            self._unwritten.clear()

    def mark(self, positions: Iterable[int], magic: int) -> None:
        """Change the magic of written units.

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
        """Mark units of one file; collect the cached blocks that became stale."""
        is_last = base == self._bases[-1]
        file = self._open_last() if is_last else self._files.open_file(self._path(base))
        try:
            for position in positions:
                at = position - base + _MAGIC_AT
                file.write(at, data)
                block_at = position - (position - base) % _BLOCK_BYTES
                if block_at == self._growing_at:
                    # The growing block is not read back from the file, so it is changed as well.
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
        """Return a flush of everything written so far, for another thread to run."""
        retired, self._retired = self._retired, []
        # Units appended during the flush belong to the next one.
        begin, self._flushed_end = self._flushed_end, self.end
        last = self._file if self.end != begin else None
        return PendingFlush(begin, self.end, last, retired, self._files)

    def take_back(self, pending: "PendingFlush") -> None:
        """Undo the accounting of a flush that failed."""
        # In front, to keep the order of the files.
        self._retired[:0] = pending.retired
        self._flushed_end = pending.begin

    def sync_from(self, position: int) -> None:
        """Flush the files from a position on and their names, also bytes of an earlier process.

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
        """Return the unit at a position; None if there is none."""
        if not self.begin <= position <= self.end - UNIT_BYTES:
            return None
        in_file = position % self._file_bytes
        block_at = position - in_file % _BLOCK_BYTES
        block = self._block_at(block_at)
        # Positions come from files and may be damaged.
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
        # Only the last file stays open.
        base = self._base_of(position)
        if self._file is not None and base == self._bases[-1]:
            return self._file.read(position - base, size_bytes)
        file = self._files.open_file(self._path(base))
        try:
            return file.read(position - base, size_bytes)
        finally:
            file.close()

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        """Yield possible unit positions backwards, from before one position to another, inclusive.

        Args:
            position: a possible unit position.
            stop: the last position to yield, or the log's start if that is later.
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
        """Return whether a unit may start at a position, also beyond the end of the log."""
        return position % self._file_bytes % UNIT_BYTES == 0

    def unit_boundary(self, position: int) -> int:
        """Return the position if a unit may start there, else the start of its file."""
        if position > self.end:
            return self._bases[-1] if self._bases else 0
        return position if self.may_begin_at(position) else self._base_of(position)

    def scan(self, start: int, *, past_damage: bool = False) -> Iterator[tuple[int, TimerUnit]]:
        """Yield positions and units from a position on, until the first invalid bytes.

        Args:
            start: position of a unit, or the log's start if that is later.
            past_damage: continue after invalid bytes, to the end.
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
                    # Without `past_damage` the log ends here: later bytes may be left-overs.
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
        """End the log at a position: remove later files, zero later bytes.

        Raises:
            OSError: the disk failed.
        """
        # The open file may be one of those that are removed.
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
            logger.warning("timer log truncated: position=%d", end)
            file.flush()
        block_at = end - (end - base) % _BLOCK_BYTES
        self._block += file.read(block_at - base, end - block_at)

    def remove_before(self, min_phy_offset: int) -> int:
        """Delete files whose messages are all deleted from the commit log; return how many.

        Args:
            min_phy_offset: start of the commit log.
        """
        removed = 0
        while len(self._bases) > 1:
            data = self._read(self._bases[0] + self._last_unit_at, UNIT_BYTES)
            unit = _unit_of(data, 0)
            # The last unit decides: earlier ones point to earlier messages.
            if unit is None or unit.phy_offset >= min_phy_offset:
                break
            base = self._bases.pop(0)
            for block_at in [each for each in self._blocks if each < self._bases[0]]:
                del self._blocks[block_at]
            self._files.remove(self._path(base))
            removed += 1
        return removed


class PendingFlush:
    """Flush of written units that can run while more units are appended.

    Attributes:
        begin: units before this position were on disk before.
        end: units before this position are on disk when `run` returns.
        retired: full files to flush and close.
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
        """Whether there is nothing to flush."""
        return self._last is None and not self.retired

    def run(self) -> None:
        """Flush.

        Raises:
            OSError: the disk failed.
        """
        while self.retired:
            # Removed from the list after the flush only, so that a failure keeps the file for the
            # next try.
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
