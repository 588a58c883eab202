"""Index file: a hash table from message keys to positions in the commit log.

A header, a table of slots, and entries written one after the other. A slot holds the
number of the newest entry of its chain; each entry names the one before it::

    0        8       16         24       32          36          40
    | begin  | end   | begin    | end    | slots     | next      | slots ...
    | ms i64 | ms    | phy i64  | phy    | used i32  | entry i32 |

    slot  s at 40 + 4 s:             | newest entry: i32 |
    entry k at 40 + 4 slots + 20 k:  | key hash: i32 | phy: i64 | seconds: i32 | previous: i32 |

Entry 0 is never used, so 0 means "none"; "next entry" begins at 1. The seconds count
from the file's first store time. Only the hash of a key is stored: keys with equal hashes are
returned together, and the caller compares the keys.

Invariants:
    - an entry is written before the slot that names it, and both before the header
      that counts it: a reader never follows a number at or above "next entry" (an
      unwritten entry), and an interrupted put is not counted;
    - numbers strictly descend along a chain, so every walk ends;
    - store times never descend within a file: if the clock was set back between two runs of the
      store, a new file starts (`takes_time`). Apache clamps such a time to the file's first store
      time, and no longer finds the message by its time;
    - the file can be rebuilt from the commit log: losing it costs time only.

Source: IndexFile.java, IndexHeader.java, 5.4.0.
"""

import bisect
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from mmap import mmap
from typing import Final, NamedTuple

from rocketpy.errors import StoreFormatError
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


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """Decoded header: the first 40 bytes of an index file."""

    begin_timestamp_ms: int
    end_timestamp_ms: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int


class IndexRun(NamedTuple):
    """Space for entries that the compiled path writes; see the layout above.

    Attributes:
        buffer: memory of the file.
        slots: number of slots.
        entries_at: position of entry 0.
        first: number of the first entry to write.
        stop: number of the first entry that does not fit.
        slots_used: number of slots that name an entry.
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
    """Write entries and slots into the space of `IndexFile.open_run`; return the used slots.

    Args:
        run: space for all entries.
        key_hashes: 0 to 2^31 - 1.
        phy_offsets: physical offset of the message of each key.
        store_timestamp_ms: store time of the messages.
    """
    buffer, slots, first = run.buffer, run.slots, run.first
    seconds = min(max(0, (store_timestamp_ms - run.begin_ms) // 1000), _SECONDS_MAX)
    # Current value of each slot. Of two keys in one slot, the second links to the first.
    newest: dict[int, int] = {}
    previous = []
    for number, key_hash in enumerate(key_hashes, first):
        slot_at = HEADER_BYTES + SLOT_BYTES * (key_hash % slots)
        before = newest[slot_at] if slot_at in newest else _unpack_slot(buffer, slot_at)[0]
        # A slot may hold any bytes after a crash: only smaller numbers are links.
        previous.append(before if 0 < before < number else 0)
        newest[slot_at] = number
    entries = b"".join(map(_ENTRY.pack, key_hashes, phy_offsets, repeat(seconds), previous))
    entry_at = run.entries_at + ENTRY_BYTES * first
    # Entries before slots, slots before the header: readers run concurrently.
    buffer[entry_at : entry_at + len(entries)] = entries
    for slot_at, number in newest.items():
        _pack_slot(buffer, slot_at, number)
    return run.slots_used + previous.count(0)


class IndexFile:
    """Mapped index file; one writer, any number of readers."""

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
        """Wrap a mapped file, new (all zeros) or existing.

        Raises:
            StoreFormatError: the length does not match the limits.
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
        # A damaged count must not let readers follow unwritten entries.
        self._count = count if 0 < count <= max_index_count else 1

    @property
    def header(self) -> IndexHeader:
        """Current header."""
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
        """Physical offset of the last message indexed here."""
        return self._end_phy

    @property
    def is_full(self) -> bool:
        """Whether the file has no room for another entry."""
        return self._count >= self._max_count

    def takes_time(self, store_timestamp_ms: int) -> bool:
        """Return whether a message of this store time may follow the indexed ones."""
        return self._count == 1 or store_timestamp_ms >= self._end_ms

    def begin_after(self, end_timestamp_ms: int, end_phy_offset: int) -> None:
        """Prepare a new file that follows the one with these last values.

        Raises:
            DiskFullError: there is no space for the slot table.
        """
        self._allocate(self._entries_at + ENTRY_BYTES)
        self._begin_ms = self._end_ms = end_timestamp_ms
        self._begin_phy = self._end_phy = end_phy_offset
        self._write_header()

    def put(self, key_hashes: Sequence[int], phy_offset: int, store_timestamp_ms: int) -> int:
        """Add one message under several keys; return how many keys fitted.

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
        # The field is unsigned in meaning: clamp instead of wrapping.
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
            # After the entry, so that a reader never follows a slot to an unwritten entry.
            _pack_slot(buffer, slot_at, count)
            count += 1
        # The header counts the entries last: an interrupted put leaves no trace.
        if count > first:
            self._count = count
            self._end_ms = store_timestamp_ms
            self._end_phy = phy_offset
            self._write_header()
        return count - first

    def put_one(self, key_hash: int, phy_offset: int, store_timestamp_ms: int) -> bool:
        """Add one key, faster than `put`; return False when full, indexed before, or too old.

        Raises:
            DiskFullError: there is no space for the entry; nothing was counted.
        """
        count = self._count
        if count >= self._max_count or phy_offset < self._end_phy:
            return False
        if store_timestamp_ms < self._end_ms:
            # A new file starts where store time descends.
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
        """Add keys of messages with one store time; return False if they must be added singly.

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
        """Allocate space for entries that the caller writes, as many as the file can hold.

        Args:
            count: number of entries.
            phy_offset: physical offset of the first message.
            store_timestamp_ms: store time of the messages.
            may_be_first: whether the caller sets the first values of an empty file.

        Returns:
            The space; None if the messages may not follow the indexed ones.

        Raises:
            DiskFullError: there is no space for the entries.
        """
        first = self._count
        if (
            first >= self._max_count
            # The first entries of a file set its times, which this caller does not.
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
        # Equivalent to `IndexRun(...)`, without its Python frame.
        return _new(IndexRun, (
            self._buffer, self._slots, self._entries_at, first, last, self._slots_used,
            self._begin_ms,
        ))  # fmt: skip

    def close_run(
        self, count: int, slots_used: int, phy_offset: int, store_timestamp_ms: int
    ) -> None:
        """Count entries that were written into the space of `open_run`.

        Args:
            count: number of the next entry.
            slots_used: number of slots that name an entry.
            phy_offset: physical offset of the last message.
            store_timestamp_ms: store time of the messages.
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
        """Return whether a message of this file may lie in the time range, ends included."""
        low, high = sorted((self._begin_ms, self._end_ms))  # times of Apache's files may descend
        return begin_ms <= high and end_ms >= low

    def newest(self, key_hash: int) -> int:
        """Return the number of the newest entry of a hash's chain; 0 if there is none."""
        number: int = _unpack_slot(
            self._buffer, HEADER_BYTES + SLOT_BYTES * (key_hash % self._slots)
        )[0]
        return number

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return key hash, physical offset, seconds since the first store time, previous entry."""
        found: tuple[int, int, int, int] = _ENTRY.unpack_from(
            self._buffer, self._entries_at + ENTRY_BYTES * number
        )
        return found

    def entries_bytes(self, start: int, stop: int) -> bytes:
        """Return a copy of the entries from one number to before another."""
        at = self._entries_at
        return bytes(self._region.view[at + ENTRY_BYTES * start : at + ENTRY_BYTES * stop])

    def first_at(self, time_ms: int, low: int, high: int) -> int:
        """Return the first entry in [`low`, `high`) that was not stored before a time."""
        seconds = -((self._begin_ms - time_ms) // 1_000)
        return bisect.bisect_left(range(high), seconds, low, high, key=self._seconds_of)

    def _seconds_of(self, number: int) -> int:
        return self.entry(number)[2]

    @property
    def count(self) -> int:
        """Number of the next entry."""
        return self._count

    def flush(self) -> None:
        """Flush all written bytes to disk."""
        self._region.flush()

    def rest(self) -> None:
        """Release the resources that only writing needs."""
        self._region.rest()

    def close(self) -> None:
        """Close the file; a running look-up can still read it."""
        self._region.close()

    def _allocate(self, end: int) -> None:
        start = self._allocated
        # In steps: a system call for each entry would cost more than the put.
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
