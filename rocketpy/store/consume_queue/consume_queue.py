"""Consume queue: maps queue offsets to positions in the commit log.

An entry is in memory (the *tail*) until a flush writes it to disk (`QueueFiles`): an append touches
no file, and an idle queue holds neither memory nor a descriptor. Lost entries are rebuilt from the
commit log; the checkpoint covers flushed entries only.

    0 ...... min ...... tail start ...... flushed ...... max ...... next ...... reserved
             first message      on disk       readable     appended    fits into the tail

Invariants:
    - entries are contiguous in queue offset, and never descend in physical offset;
    - the tail holds every entry that is not on disk, and space for every reserved entry
      (`next_offset`, `reserve`), so that `put` cannot fail;
    - a tail is replaced, never resized, so readers may keep it. `max_offset` advances after the
      entry is written, so a reader that reads it first finds the entry;
    - `reserve`, `put`, `put_run` and `settle` run under the append lock, `flush` on one thread.

Source: ConsumeQueue (5.4.0).
"""

import bisect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import QueueGapError
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE, ENTRY, ENTRY_BYTES, Entry
from rocketpy.store.consume_queue.queue_files import QueueFiles
from rocketpy.store.consume_queue.tail_memory import TailMemory
from rocketpy.store.files.store_files import StoreFiles

_NO_LIMIT: Final = 1 << 63
_FIRST_ENTRIES: Final = 8
_NO_TAIL: Final = memoryview(b"")
_pack_into = ENTRY.pack_into


class ConsumeQueue:
    """Queue of one topic. The dispatcher writes, any thread reads.

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        next_offset: queue offset of the next appended message; ahead of `max_offset` while
            messages wait for a flush.
        max_offset: queue offset after the last readable entry.
        min_offset: queue offset of the first entry whose message still exists.
        max_phy_end: physical end of the last entry's message.
        reserved_offset: entries before it can be put without `reserve`.
        tail: queue offset of the first entry in memory, and the memory; replaced as one tuple, so
            that readers see a consistent pair. Read `max_offset` first.
        flushed_offset: entries before it are on disk.
        is_deleted: its topic was deleted; changes under the append lock. Callers must look the
            queue up again.
        life: key for caches of its entries; replaced when the queue restarts.
    """

    __slots__ = (
        "_buffer",
        "_disk",
        "_has_unsynced_zeros",
        "_space",
        "_tail_start",
        "flushed_offset",
        "is_deleted",
        "life",
        "max_offset",
        "max_phy_end",
        "min_offset",
        "next_offset",
        "queue_id",
        "reserved_offset",
        "tail",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        file_bytes: int,
        files: StoreFiles,
        space: TailMemory,
    ) -> None:
        """Describe a queue without touching files; `load`, `flush` and reads do.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            directory: location of its files.
            file_bytes: length of every file.
            files: the file system.
            space: memory budget shared by all queues.
        """
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.life: object = object()
        self._disk = QueueFiles(directory, file_bytes, files, space.file_creation_lock)
        self._space = space
        self._buffer = bytearray()
        self._tail_start = 0
        self.tail: tuple[int, memoryview] = (0, _NO_TAIL)
        self._has_unsynced_zeros = False
        self.is_deleted: bool = False
        self.next_offset: int = 0
        self.max_offset: int = 0
        self.min_offset: int = 0
        self.max_phy_end: int = 0
        self.reserved_offset: int = 0
        self.flushed_offset: int = 0

    @property
    def file_count(self) -> int:
        """Number of files."""
        return self._disk.file_count

    @property
    def has_place(self) -> bool:
        """Whether entries or files record its position, so that a restart finds it again."""
        return self.max_offset > self.min_offset or self._disk.file_count > 0

    @property
    def dirty_bytes(self) -> int:
        """Bytes of entries that are not flushed."""
        return (self.max_offset - self.flushed_offset) * ENTRY_BYTES

    # -- writing (under the append lock) ---------------------------------------------------

    def reserve(self, count: int = 1) -> None:
        """Reserve space for the next `count` entries, so that putting them cannot fail.

        Raises:
            ResourceShortError: all queues together hold too many unflushed bytes.
        """
        wanted = self.next_offset + count
        room_end = self._tail_start + len(self._buffer) // ENTRY_BYTES
        if wanted > room_end:
            # Flushed entries are dropped from the new tail: readers find them on disk.
            start = self.flushed_offset
            # Doubling keeps the number of copies logarithmic while a flush is delayed.
            room = max(_FIRST_ENTRIES, wanted - start, 2 * (self.max_offset - start))
            # Fails before anything changes if all queues together hold too much.
            self._space.take((room * ENTRY_BYTES) - len(self._buffer))
            self._move_tail(start, room)
            room_end = start + room
        # Registered at the reservation, so that a flush that starts now finds the entry.
        self._space.add(self)
        self.reserved_offset = room_end

    def _move_tail(self, start: int, room: int) -> None:
        """Replace the tail by one that starts at an offset and has room for some entries."""
        # A new buffer instead of a resized one: readers may hold a view of the old one.
        buffer = bytearray(room * ENTRY_BYTES)
        kept = (self.max_offset - start) * ENTRY_BYTES
        at = (start - self._tail_start) * ENTRY_BYTES
        buffer[:kept] = self._buffer[at : at + kept]
        self._buffer, self._tail_start = buffer, start
        self.tail = (start, memoryview(buffer))

    def put(self, queue_offset: int, phy_offset: int, size_bytes: int, tags_code: int) -> None:
        """Append the entry of a message; the caller has reserved space.

        Raises:
            QueueGapError: `queue_offset` is not the next one.
        """
        if queue_offset != self.max_offset:
            raise QueueGapError(expected=self.max_offset, got=queue_offset)
        at = (queue_offset - self._tail_start) * ENTRY_BYTES
        _pack_into(self._buffer, at, phy_offset, size_bytes, tags_code)
        self.max_phy_end = phy_offset + size_bytes
        # Last, because readers check this offset without a lock before they read the entry.
        self.max_offset = queue_offset + 1

    def put_run(
        self,
        queue_offset: int,
        phy_offsets: Sequence[int],
        sizes_bytes: Sequence[int],
        tags_codes: Sequence[int],
    ) -> None:
        """Append consecutive entries; room was reserved before.

        Raises:
            QueueGapError: `queue_offset` is not the next one.
        """
        entries = b"".join(map(ENTRY.pack, phy_offsets, sizes_bytes, tags_codes))
        self.put_entries(queue_offset, entries, phy_offsets[-1] + sizes_bytes[-1])

    def open_run(self, count: int) -> tuple[bytearray, int] | None:
        """Reserve space for entries that the caller writes (append lock held).

        Returns:
            The tail's bytes and the position of the next entry in them; None while messages wait
            for the disk, or when the topic was deleted.

        Raises:
            ResourceShortError: as `reserve`.
        """
        # Messages that wait for a flush have offsets but no entries: writing behind them would
        # leave a gap.
        if self.is_deleted or self.next_offset != self.max_offset:
            return None
        if self.next_offset + count > self.reserved_offset:
            self.reserve(count)
        return self._buffer, (self.next_offset - self._tail_start) * ENTRY_BYTES

    def reserve_run(self, count: int) -> bool:
        """Make room for entries that come later, as `put_entries` (append lock held).

        Returns:
            False when the topic was deleted.

        Raises:
            ResourceShortError: as `reserve`.
        """
        if not self.is_deleted and self.next_offset + count > self.reserved_offset:
            self.reserve(count)
        return not self.is_deleted

    def put_entries(self, queue_offset: int, entries: bytes, max_phy_end: int) -> None:
        """Append entries that are packed already; room was reserved before.

        Args:
            queue_offset: of the first one.
            entries: as they stand in the file.
            max_phy_end: physical end of the last one's message.

        Raises:
            QueueGapError: `queue_offset` is not the next one.
        """
        if queue_offset != self.max_offset:
            raise QueueGapError(expected=self.max_offset, got=queue_offset)
        at = (queue_offset - self._tail_start) * ENTRY_BYTES
        assert at + len(entries) <= len(self._buffer), "reserve comes before put"
        self._buffer[at : at + len(entries)] = entries
        self.max_phy_end = max_phy_end
        self.max_offset = queue_offset + len(entries) // ENTRY_BYTES

    def close_run(self, count: int, max_phy_end: int) -> None:
        """Count entries that were written at the position of `open_run` (append lock held).

        Args:
            count: of entries; not more than there was room for.
            max_phy_end: physical end of the last entry's message.
        """
        self.max_phy_end = max_phy_end
        self.next_offset += count
        self.max_offset = self.next_offset

    def settle(self) -> bool:
        """Free the tail if every entry is on disk; return whether it did."""
        is_on_disk = self.flushed_offset == self.max_offset == self.next_offset
        # Zeros after the end must reach the disk before the queue counts as settled.
        if not self.is_deleted and (not is_on_disk or self._has_unsynced_zeros):
            return False
        self._drop_tail()
        return True

    def _drop_tail(self) -> None:
        self._space.take(-len(self._buffer))
        self._buffer = bytearray()
        self._tail_start = self.reserved_offset = self.max_offset
        self.tail = (self.max_offset, _NO_TAIL)

    def flush(self) -> None:
        """Flush all entries to disk; names of new files follow with `sync_directories`.

        Raises:
            DiskFullError: no space; the entries stay in memory for a later call.
            ResourceShortError: no descriptor; the same.
            OSError: the disk failed.
        """
        end = self.max_offset  # read before the tail, which then holds these entries
        start, tail = self.tail
        flushed = self.flushed_offset
        if end > flushed:
            data = tail[(flushed - start) * ENTRY_BYTES : (end - start) * ENTRY_BYTES]
            self._disk.write(flushed, data)
            # Only after `write` has flushed the file: the checkpoint relies on it.
            self.flushed_offset = end
        elif self._has_unsynced_zeros:
            self._disk.sync(end)
        self._has_unsynced_zeros = False

    # -- reading ---------------------------------------------------------------------------

    def is_in_memory(self, queue_offset: int) -> bool:
        """Return whether the entry of an offset is in memory rather than in a file."""
        return queue_offset >= self.tail[0]

    def window(self, queue_offset: int, max_bytes: int) -> memoryview | None:
        """Return some complete entries from `queue_offset` on; None if there are none.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        # Read before the tail: a tail that was replaced meanwhile still holds these entries.
        end = self.max_offset
        start, tail = self.tail
        count = min(max_bytes // ENTRY_BYTES, end - queue_offset)
        if queue_offset >= start:
            at = (queue_offset - start) * ENTRY_BYTES
            found = tail[at : at + count * ENTRY_BYTES]
        else:
            # Entries in memory may be newer than those in the file, so a read never crosses the
            # boundary.
            found = memoryview(self._disk.read(queue_offset, min(count, start - queue_offset)))
        return found if count > 0 and found else None

    def entry(self, queue_offset: int) -> Entry | None:
        """Return physical offset, size and tags code of one entry, or None.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        found = self.window(queue_offset, ENTRY_BYTES)
        if queue_offset < 0 or found is None:
            return None
        entry: Entry = ENTRY.unpack(found)
        return entry

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after the one that holds an offset."""
        per_file = self._disk.file_entries
        return (queue_offset // per_file + 1) * per_file

    def offset_by_time(
        self, timestamp_ms: int, time_of: Callable[[int, int], int], *, upper: bool
    ) -> int:
        """Find a queue offset by store time.

        Args:
            timestamp_ms: time to find.
            time_of: store time of the message at a physical offset with a size.
            upper: find the last message not after the time instead of the first not before it.

        Returns:
            An offset from `min_offset` to `max_offset`.
        """
        low, high = self.min_offset, self.max_offset
        if low >= high:
            return high

        def key(queue_offset: int) -> int:
            found = self.entry(queue_offset)
            return -1 if found is None else time_of(found[0], found[1])

        span = range(low, high)
        if upper:
            return max(low, low + bisect.bisect_right(span, timestamp_ms, key=key) - 1)
        return low + bisect.bisect_left(span, timestamp_ms, key=key)

    # -- start -----------------------------------------------------------------------------

    def load(self, *, after_crash: bool = False) -> None:
        """Load the existing files and find the last valid entry.

        Args:
            after_crash: a killed process may have erased entries or deleted files without
                flushing; the next `flush` repeats that on disk.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        self._disk.load()
        self._find_end(_NO_LIMIT)
        self.min_offset = self._disk.begin
        if after_crash and self._disk.file_count:
            # The killed process may not have synced the directory.
            self._disk.distrust_names()
            self._has_unsynced_zeros = True
            self._space.add(self)

    def _find_end(self, limit_phy: int) -> None:
        """Set the end to the result of `QueueFiles.find_end`."""
        end, last = self._disk.find_end(limit_phy)
        self.max_phy_end = 0 if last is None or last[1] == BLANK_SIZE else last[0] + last[1]
        self.max_offset = self.next_offset = self.flushed_offset = end
        self._drop_tail()

    def cut(self, trusted_phy_offset: int) -> int:
        """Drop the entries whose message starts at or after an offset, and all later ones.

        Stale bytes in the files are zeroed; the next `flush` writes the zeros to disk.

        Returns:
            The number of dropped entries.
        """
        before = self.max_offset
        if self.max_phy_end > trusted_phy_offset or self._disk.has_stray_bytes:
            kept = self._first_from(trusted_phy_offset, self.flushed_offset)
            # The end lies in the tail: the files stay unchanged.
            if kept > self.flushed_offset:
                self.max_offset = self.next_offset = kept
                self.max_phy_end = self._phy_end_before(kept)
            else:
                self._find_end(trusted_phy_offset)
            if self._disk.has_stray_bytes:
                self._disk.erase_from(self.flushed_offset)
                self._has_unsynced_zeros = True
                self._space.add(self)
            self.min_offset = min(self.min_offset, self.max_offset)
        return before - self.max_offset

    def _first_from(self, phy_offset: int, low: int) -> int:
        """Return the first queue offset from `low` on whose message starts at or after one."""
        return low + bisect.bisect_left(range(low, self.max_offset), phy_offset, key=self._phy_of)

    def _phy_of(self, queue_offset: int) -> int:
        found = self.entry(queue_offset)
        return -1 if found is None or found[1] == BLANK_SIZE else found[0]

    def _phy_end_before(self, queue_offset: int) -> int:
        found = self.entry(queue_offset - 1)
        return 0 if found is None or found[1] == BLANK_SIZE else found[0] + found[1]

    def put_recovered(
        self, queue_offset: int, phy_offset: int, size_bytes: int, tags_code: int
    ) -> bool:
        """Put an entry found in the commit log unless it exists.

        Returns:
            Whether the entry was new.

        Raises:
            QueueGapError: earlier entries are missing, or its offset is occupied by another one.
            DiskFullError: no space for entries that do not fit into memory.
            OSError: the disk failed.
        """
        if queue_offset != self.max_offset:
            # The same entry was written before the crash; any other entry there is a conflict.
            if self.entry(queue_offset) == (phy_offset, size_bytes, tags_code):
                return False
            raise QueueGapError(expected=self.max_offset, got=queue_offset)
        if queue_offset >= self.reserved_offset:
            # Recovery puts more entries than memory may hold, and no service flushes yet.
            self._space.relieve()
            self.reserve()
        self.put(queue_offset, phy_offset, size_bytes, tags_code)
        # Offsets that were assigned before must not be assigned again.
        self.next_offset = max(self.next_offset, self.max_offset)
        return True

    def put_recovered_run(self, entries: bytes, max_phy_end: int) -> int:
        """Put packed entries that follow the last one, like `put_recovered`; return how many."""
        count = len(entries) // ENTRY_BYTES
        if self.max_offset + count > self.reserved_offset:
            self._space.relieve()
            self.reserve(count)
        self.put_entries(self.max_offset, entries, max_phy_end)
        self.next_offset = max(self.next_offset, self.max_offset)
        return count

    def restart_at(self, queue_offset: int) -> None:
        """Drop all entries; the next entry gets this offset."""
        self._disk.remove_all()
        # Caches of the old entries become invalid by identity, without being notified.
        self.life = object()
        self.next_offset = self.max_offset = self.min_offset = self.flushed_offset = queue_offset
        self.max_phy_end = 0
        self._drop_tail()

    @property
    def has_gap(self) -> bool:
        """Whether a file in the middle is missing."""
        return self._disk.has_gap

    def keep_place(self, queue_offset: int) -> None:
        """Continue at an offset although no earlier entry is left.

        Raises:
            DiskFullError: no space to record the offset.
            OSError: the disk failed.
        """
        self.restart_at(queue_offset)
        self._disk.begin_at(queue_offset)

    def entries_before(self, phy_offset: int) -> int:
        """Return the queue offset of the first entry whose message starts at or after an offset."""
        return self._first_from(phy_offset, self.min_offset)

    # -- retention, end --------------------------------------------------------------------

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Set `min_offset` to the first entry whose message still exists."""
        low = self._disk.begin if self._disk.file_count else self.flushed_offset
        # The common case after a deletion: no entry has to be read.
        if low < self.max_offset and self._disk.first_phy >= min_phy_offset:
            self.min_offset = low
        else:
            self.min_offset = self._first_from(min_phy_offset, low)

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files whose messages are all deleted, except the last; return how many."""
        deleted = 0
        while self._disk.file_count > 1:
            following = self._disk.begin + self._disk.file_entries
            # The last entry decides: physical offsets ascend, so the earlier ones are expired as
            # well.
            if following > self.max_offset or self._phy_of(following - 1) >= min_phy_offset:
                break
            self._disk.remove_first()
            deleted += 1
        self.correct_min_offset(min_phy_offset)
        return deleted

    def mark_deleted(self) -> None:
        """Prevent the creation of files (append lock and `TailMemory.file_creation_lock` held)."""
        # The queue object lives on in caches of other threads; they check this flag.
        self.is_deleted = self._disk.is_deleted = True

    def destroy(self) -> None:
        """Delete all files and entries."""
        self.restart_at(0)

    def close(self) -> None:
        """Free the entries in memory."""
        self._drop_tail()
