"""One index file: a hash table from a message key to places in the commit log.

A header, a table of slots, and entries written one after the other. A slot holds the
number of the newest entry of its chain; each entry names the one before it::

    0        8       16         24       32          36          40
    | begin  | end   | begin    | end    | slots     | next      | slots ...
    | ms i64 | ms    | phy i64  | phy    | used i32  | entry i32 |

    slot  s at 40 + 4 s:             | newest entry: i32 |
    entry k at 40 + 4 slots + 20 k:  | key hash: i32 | phy: i64 | seconds: i32 | previous: i32 |

Entry 0 is never used, so 0 means "none"; "next entry" begins at 1. The seconds count
from the file's begin. The hash is all that is kept of a key: two keys with one hash
come back together, and the caller compares the keys.

Invariants:
    - an entry is written before the slot that names it, and both before the header
      that counts it: a reader never follows a number at or above "next entry" (an
      unwritten entry), and a half-done put is simply not counted;
    - chains go strictly down, so walking one always ends;
    - store times never go down within a file: where the clock was set back between two lives of
      the store, the next file begins (`takes_time`). Apache clamps such a time to the file's
      begin, and does not find the message by its time any more;
    - the file can be rebuilt from the commit log: losing it costs time only.

Source: IndexFile.java, IndexHeader.java, 5.4.0.
"""

import bisect
import struct
from collections.abc import Sequence
from itertools import repeat
from mmap import mmap
from typing import Final, NamedTuple

from rocketpy.errors import StoreFormatError
from rocketpy.lazy_dataclass import lazy_dataclass
from rocketpy.store.files.store_files import Region

_HEADER: Final = struct.Struct(">qqqqii")
_SLOT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">iqii")
_new: Final = tuple.__new__
_pack_header: Final = _HEADER.pack_into
_pack_slot: Final = _SLOT.pack_into
_unpack_slot: Final = _SLOT.unpack_from
_pack_entry: Final = _ENTRY.pack_into
HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
_ALLOCATE_STEP_BYTES: Final = 1 << 20
_SECONDS_MAX: Final = (1 << 31) - 1
assert _HEADER.size == HEADER_BYTES
assert _ENTRY.size == ENTRY_BYTES


def index_file_bytes(max_hash_slots: int, max_index_count: int) -> int:
    """Length of an index file with these limits, bytes."""
    return HEADER_BYTES + SLOT_BYTES * max_hash_slots + ENTRY_BYTES * max_index_count


@lazy_dataclass(frozen=True)
class IndexHeader:
    """What the first 40 bytes say."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


class IndexRun(NamedTuple):
    """Where somebody else writes entries; see the layout above.

    Attributes:
        buffer: the file.
        slots: how many it has.
        entries_at: where entry 0 would begin.
        first: number of the first entry to write.
        stop: number of the first one for which there is no room.
        slots_used: slots that name an entry.
        begin_ms: the file's first store time.
    """

    buffer: mmap | bytearray
    slots: int
    entries_at: int
    first: int
    stop: int
    slots_used: int
    begin_ms: int


def write_entries(
    run: IndexRun, key_hashes: Sequence[int], phy_offsets: Sequence[int], store_timestamp_ms: int
) -> int:
    """Write entries where `IndexFile.open_run` said, and their slots; return the slots used then.

    Args:
        run: has room for all of them.
        key_hashes: 0 to 2^31 - 1.
        phy_offsets: for each of them where its message begins.
        store_timestamp_ms: of the messages.
    """
    buffer, slots, first = run.buffer, run.slots, run.first
    seconds = min(max(0, (store_timestamp_ms - run.begin_ms) // 1000), _SECONDS_MAX)
    # What the slots name now. Two keys of the run in one slot: the second follows the first.
    newest: dict[int, int] = {}
    previous = []
    for number, key_hash in enumerate(key_hashes, first):
        slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % slots)
        before = newest[slot_at] if slot_at in newest else _unpack_slot(buffer, slot_at)[0]
        previous.append(before if 0 < before < number else 0)
        newest[slot_at] = number
    entries = b"".join(map(_ENTRY.pack, key_hashes, phy_offsets, repeat(seconds), previous))
    entry_at = run.entries_at + ENTRY_BYTES * first
    buffer[entry_at : entry_at + len(entries)] = entries
    for slot_at, number in newest.items():
        _pack_slot(buffer, slot_at, number)
    return run.slots_used + previous.count(0)


class IndexFile:
    """Reads and writes one mapped index file; one writer, any number of readers."""

    __slots__ = (
        "_allocated",
        "_begin_ms",
        "_begin_phy",
        "_buffer",
        "_count",
        "_end_ms",
        "_end_phy",
        "_entries_at",
        "_max_count",
        "_region",
        "_slots",
        "_slots_used",
        "_total",
        "name",
    )

    def __init__(
        self, name: str, region: Region, *, max_hash_slots: int, max_index_count: int
    ) -> None:
        """Wrap a mapped file, new (all zeros) or old.

        Raises:
            StoreFormatError: the file is not as long as the limits say.
        """
        self.name: str = name
        self._region = region
        self._buffer = region.buffer
        self._slots = max_hash_slots
        self._max_count = max_index_count
        self._entries_at = HEADER_BYTES + SLOT_BYTES * max_hash_slots
        self._total = index_file_bytes(max_hash_slots, max_index_count)
        if region.size_bytes != self._total:
            raise StoreFormatError(
                f"index file {name} has {region.size_bytes} bytes, not {self._total}"
            )
        self._allocated = 0
        header = IndexHeader(*_HEADER.unpack_from(self._buffer, 0))
        self._begin_ms = header.begin_timestamp_ms
        self._end_ms = header.end_timestamp_ms
        self._begin_phy = header.begin_phy_offset
        self._end_phy = header.end_phy_offset
        self._slots_used = header.hash_slot_count
        count = header.index_count
        self._count = count if 0 < count <= max_index_count else 1

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader(
            self._begin_ms,
            self._end_ms,
            self._begin_phy,
            self._end_phy,
            self._slots_used,
            self._count,
        )

    @property
    def begin_timestamp_ms(self) -> int:
        """Store time of the first message indexed here, ms."""
        return self._begin_ms

    @property
    def end_timestamp_ms(self) -> int:
        """Store time of the last message indexed here, ms."""
        return self._end_ms

    @property
    def end_phy_offset(self) -> int:
        """Where the last message indexed here begins in the commit log."""
        return self._end_phy

    @property
    def is_full(self) -> bool:
        """Whether no further entry fits."""
        return self._count >= self._max_count

    def takes_time(self, store_timestamp_ms: int) -> bool:
        """Whether a message of this store time may follow those in here."""
        return self._count == 1 or store_timestamp_ms >= self._end_ms

    def begin_after(self, end_timestamp_ms: int, end_phy_offset: int) -> None:
        """Prepare a new file that follows one which ends there.

        Raises:
            DiskFullError: there is no space for the slot table.
        """
        self._allocate(self._entries_at + ENTRY_BYTES)
        self._begin_ms = self._end_ms = end_timestamp_ms
        self._begin_phy = self._end_phy = end_phy_offset
        self._write_header()

    def put(self, key_hashes: Sequence[int], phy_offset: int, store_timestamp_ms: int) -> int:
        """Add one message under several keys; return how many of them fitted.

        Args:
            key_hashes: from `rocketpy.proto.record.tags.IndexKeyHasher`, 0 to 2^31 - 1.
            phy_offset: where the message begins in the commit log.
            store_timestamp_ms: when the message was stored.

        Raises:
            DiskFullError: there is no space for the entries; nothing was counted.
        """
        count = first = self._count
        buffer, slots, entries_at = self._buffer, self._slots, self._entries_at
        last = min(count + len(key_hashes), self._max_count)
        end = entries_at + ENTRY_BYTES * last
        if end > self._allocated:
            self._allocate(end)
        if count == 1:
            self._begin_ms = store_timestamp_ms
            self._begin_phy = phy_offset
        seconds = (store_timestamp_ms - self._begin_ms) // 1000
        if seconds < 0:
            seconds = 0
        elif seconds > _SECONDS_MAX:
            seconds = _SECONDS_MAX
        for key_hash in key_hashes:
            if count >= last:
                break
            slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % slots)
            (previous,) = _unpack_slot(buffer, slot_at)
            if not 0 < previous < count:
                previous = 0
                self._slots_used += 1
            _pack_entry(
                buffer, entries_at + ENTRY_BYTES * count, key_hash, phy_offset, seconds, previous
            )
            _pack_slot(buffer, slot_at, count)
            count += 1
        if count > first:
            self._count = count
            self._end_ms = store_timestamp_ms
            self._end_phy = phy_offset
            self._write_header()
        return count - first

    def put_one(self, key_hash: int, phy_offset: int, store_timestamp_ms: int) -> bool:
        """Do what `put` does for one key, quicker; False when full, indexed before, or too old.

        Raises:
            DiskFullError: there is no space for the entry; nothing was counted.
        """
        count = self._count
        if count >= self._max_count or phy_offset < self._end_phy:
            return False
        if store_timestamp_ms < self._end_ms:
            return False  # `takes_time` decides
        buffer = self._buffer
        entry_at = self._entries_at + ENTRY_BYTES * count
        if entry_at + ENTRY_BYTES > self._allocated:
            self._allocate(entry_at + ENTRY_BYTES)
        if count == 1:
            self._begin_ms = store_timestamp_ms
            self._begin_phy = phy_offset
        begin_ms = self._begin_ms
        seconds = (store_timestamp_ms - begin_ms) // 1000
        if not 0 <= seconds <= _SECONDS_MAX:
            seconds = 0 if seconds < 0 else _SECONDS_MAX
        slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % self._slots)
        previous = _unpack_slot(buffer, slot_at)[0]
        if not 0 < previous < count:
            previous = 0
            self._slots_used += 1
        _pack_entry(buffer, entry_at, key_hash, phy_offset, seconds, previous)
        _pack_slot(buffer, slot_at, count)
        self._count = count = count + 1
        self._end_ms = store_timestamp_ms
        self._end_phy = phy_offset
        _pack_header(
            buffer,
            0,
            begin_ms,
            store_timestamp_ms,
            self._begin_phy,
            phy_offset,
            self._slots_used,
            count,
        )
        return True

    def put_run(
        self, key_hashes: Sequence[int], phy_offsets: Sequence[int], store_timestamp_ms: int
    ) -> bool:
        """Add keys of messages that were stored at the same time; False: do it one by one.

        Raises:
            DiskFullError: there is no space for the entries; nothing was counted.
        """
        count = self._count
        end = count + len(key_hashes)
        if end > self._max_count:
            return False
        run = self.open_run(len(key_hashes), phy_offsets[0], store_timestamp_ms, may_be_first=True)
        if run is None:
            return False
        if count == 1:
            self._begin_ms = store_timestamp_ms
            self._begin_phy = phy_offsets[0]
            run = run._replace(begin_ms=store_timestamp_ms)
        slots_used = write_entries(run, key_hashes, phy_offsets, store_timestamp_ms)
        self.close_run(end, slots_used, phy_offsets[-1], store_timestamp_ms)
        return True

    def open_run(
        self,
        count: int,
        phy_offset: int,
        store_timestamp_ms: int,
        *,
        may_be_first: bool = False,
    ) -> IndexRun | None:
        """Make room for entries that somebody else writes, as many of them as the file takes.

        Args:
            count: of the entries.
            phy_offset: where the first of their messages begins.
            store_timestamp_ms: when the messages were stored.
            may_be_first: whether the caller sees to what the first entries of a file begin.

        Returns:
            None when they may not follow those in here.

        Raises:
            DiskFullError: there is no space for the entries.
        """
        first = self._count
        if (
            first >= self._max_count
            or (first == 1 and not may_be_first)
            or phy_offset < self._end_phy
            or store_timestamp_ms < self._end_ms
        ):
            return None
        last = first + count
        if last > self._max_count:  # noqa: PLR1730 - quicker
            last = self._max_count
        end = self._entries_at + ENTRY_BYTES * last
        if end > self._allocated:
            self._allocate(end)
        # As `IndexRun(...)`, without its Python frame.
        return _new(IndexRun, (
            self._buffer, self._slots, self._entries_at, first, last, self._slots_used,
            self._begin_ms,
        ))  # fmt: skip

    def close_run(
        self, count: int, slots_used: int, phy_offset: int, store_timestamp_ms: int
    ) -> None:
        """Take note of entries that were written where `open_run` said.

        Args:
            count: number that the next entry gets.
            slots_used: slots that name an entry now.
            phy_offset: of the last message.
            store_timestamp_ms: of the messages.
        """
        self._count = count
        self._slots_used = slots_used
        self._end_ms = store_timestamp_ms
        self._end_phy = phy_offset
        _pack_header(  # `_write_header`, inlined
            self._buffer, 0, self._begin_ms, store_timestamp_ms, self._begin_phy, phy_offset,
            slots_used, count,
        )  # fmt: skip

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """Whether any message of this file may lie in the window (both ends included)."""
        low, high = sorted((self._begin_ms, self._end_ms))  # Apache's may end before they begin
        return begin_ms <= high and end_ms >= low

    def newest(self, key_hash: int) -> int:
        """Return the number of the newest entry of a hash's chain; 0 without one."""
        number: int = _unpack_slot(
            self._buffer, HEADER_BYTES + SLOT_BYTES * (key_hash % self._slots)
        )[0]
        return number

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return key hash, physical offset, seconds since the begin, and the one before it."""
        found: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self._buffer, self._entries_at + ENTRY_BYTES * number
        )
        return found

    def entries_bytes(self, start: int, stop: int) -> bytes:
        """Return a copy of the entries from one number to before another."""
        at = self._entries_at
        return bytes(self._region.view[at + ENTRY_BYTES * start : at + ENTRY_BYTES * stop])

    def first_at(self, time_ms: int, low: int, high: int) -> int:
        """Return the first entry from ``low`` to before ``high`` not stored before a time."""
        seconds = -((self._begin_ms - time_ms) // 1_000)
        return bisect.bisect_left(range(high), seconds, low, high, key=self._seconds_of)

    def _seconds_of(self, number: int) -> int:
        return self.entry(number)[2]

    @property
    def count(self) -> int:
        """Number that the next entry gets."""
        return self._count

    def flush(self) -> None:
        """Put everything written so far on disk."""
        self._region.flush()

    def rest(self) -> None:
        """Give up what only writing needs."""
        self._region.rest()

    def close(self) -> None:
        """Let go of the file; a look-up that is under way still reads it."""
        self._region.close()

    def _allocate(self, end: int) -> None:
        start = self._allocated
        stop = min(self._total, max(end, start + _ALLOCATE_STEP_BYTES))
        self._region.allocate(start, stop)
        self._allocated = stop

    def _write_header(self) -> None:
        _pack_header(
            self._buffer,
            0,
            self._begin_ms,
            self._end_ms,
            self._begin_phy,
            self._end_phy,
            self._slots_used,
            self._count,
        )
