"""Consume queue: from a queue offset to a place in the commit log.

The files of a queue are one array of fixed entries, so entry ``n`` lies at byte ``n * 20``::

    0                8             12             20
    | phy_offset: i64 | size: i32   | tags_code: i64 |

Two kinds of offset meet here and are never mixed: a *queue offset* counts entries, a *physical
offset* counts bytes in the commit log.

Invariants:
    - entries are contiguous in queue offset, and never descend in physical offset;
    - the first entry with ``size <= 0`` is the end; fresh bytes are zeros;
    - a queue that does not begin at 0 is filled up with ``(0, 2^31-1, 0)`` in its first file;
    - everything here can be rebuilt from the commit log.

Source: ConsumeQueue, SparseConsumeQueue (5.4.0).
"""

import bisect
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import QueueGapError
from rocketpy.store.files import StoreFiles
from rocketpy.store.mapped_file import PAGE_BYTES, MappedFile
from rocketpy.store.mapped_file_queue import MappedFileQueue

ENTRY: Final = struct.Struct(">qiq")
ENTRY_BYTES: Final = 20
assert ENTRY.size == ENTRY_BYTES
_PRE_BLANK: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)
_PRE_BLANK_SIZE: Final = 0x7FFFFFFF
_NO_LIMIT: Final = 1 << 63
_MAX_STEP_BYTES: Final = 256 << 10
_pack_into = ENTRY.pack_into


class ConsumeQueue:
    """One queue of one topic. The dispatcher writes, any thread reads.

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        next_offset: queue offset the next appended message gets; ahead of ``max_offset`` while
            messages wait for the disk.
        max_offset: queue offset after the last readable entry.
        min_offset: queue offset of the first entry whose message still exists.
        max_phy_end: physical end of the last entry's message.
        reserved_offset: entries before it can be written without allocating.
        is_deleted: its topic was deleted: whoever still holds it asks for the queue anew. Changes
            under the append lock.
    """

    __slots__ = (
        "_buffer",
        "_end_position",
        "_file",
        "_queue",
        "_start_position",
        "flushed_offset",
        "is_deleted",
        "max_offset",
        "max_phy_end",
        "min_offset",
        "next_offset",
        "queue_id",
        "reserved_offset",
        "topic",
    )

    is_batch: Final = False

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_bytes: int, files: StoreFiles
    ) -> None:
        """Describe a queue; `load` or `reserve` touch files."""
        assert file_bytes % ENTRY_BYTES == 0
        self.topic = topic
        self.queue_id = queue_id
        self._queue = MappedFileQueue(directory, file_bytes, files, step_bytes=PAGE_BYTES)
        self._file: MappedFile | None = None
        self._buffer: object = b""
        self._start_position = 0
        self._end_position = 0
        self.next_offset = 0
        self.max_offset = 0
        self.min_offset = 0
        self.max_phy_end = 0
        self.reserved_offset = 0
        self.flushed_offset = 0
        self.is_deleted = False

    @property
    def file_entries(self) -> int:
        """Entries in one file."""
        return self._queue.file_bytes // ENTRY_BYTES

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._queue.files)

    @property
    def dirty_bytes(self) -> int:
        """Bytes written but not known to be on disk."""
        return (self.max_offset - self.flushed_offset) * ENTRY_BYTES

    # -- writing ---------------------------------------------------------------------------

    def reserve(self, count: int = 1) -> None:
        """Make room for the next ``count`` entries, so that writing them cannot fail.

        Raises:
            DiskFullError: no space; nothing changed that matters.
        """
        end = (self.next_offset + count) * ENTRY_BYTES
        if not self._queue.files:
            start = self.next_offset * ENTRY_BYTES
            self._begin(start - start % self._queue.file_bytes, start)
        position = self.next_offset * ENTRY_BYTES
        while position < end:
            mapped = self._queue.find(position)
            if mapped is None:
                last = self._queue.last
                assert last is not None
                mapped = self._queue.create(last.end_offset)
            stop = min(end, mapped.end_offset)
            step = min(_MAX_STEP_BYTES, max(PAGE_BYTES, mapped.allocated))
            mapped.allocate(stop - mapped.base_offset, step)
            position = stop
            self.reserved_offset = (mapped.base_offset + mapped.allocated) // ENTRY_BYTES

    def _begin(self, base: int, start: int) -> None:
        """Create the first file; a queue that begins later is filled up to its beginning."""
        mapped = self._queue.make(base)
        blank_bytes = start - base
        if blank_bytes:
            try:
                mapped.allocate(blank_bytes, PAGE_BYTES)
            except BaseException:
                self._queue.add(mapped)
                self._queue.remove_last()
                raise
            mapped.buffer[:blank_bytes] = _PRE_BLANK * (blank_bytes // ENTRY_BYTES)
            mapped.write_position = blank_bytes
        self._queue.add(mapped)
        self.min_offset = self.max_offset = start // ENTRY_BYTES

    def put(self, queue_offset: int, phy_offset: int, size_bytes: int, tags_code: int) -> None:
        """Append the entry of a message; room was reserved before.

        Raises:
            QueueGapError: ``queue_offset`` is not the next one.
        """
        if queue_offset != self.max_offset:
            raise QueueGapError(expected=self.max_offset, got=queue_offset)
        position = queue_offset * ENTRY_BYTES
        if not self._start_position <= position < self._end_position:
            self._enter(position)
        at = position - self._start_position
        _pack_into(self._buffer, at, phy_offset, size_bytes, tags_code)  # type: ignore[arg-type]
        self._file.write_position = at + ENTRY_BYTES  # type: ignore[union-attr]
        self.max_phy_end = phy_offset + size_bytes
        self.max_offset = queue_offset + 1

    def put_run(
        self,
        queue_offset: int,
        phy_offsets: Sequence[int],
        sizes_bytes: Sequence[int],
        tags_codes: Sequence[int],
    ) -> None:
        """Append entries that follow one another; room was reserved before.

        Raises:
            QueueGapError: ``queue_offset`` is not the next one.
        """
        position = queue_offset * ENTRY_BYTES
        end = position + len(phy_offsets) * ENTRY_BYTES
        if (
            queue_offset != self.max_offset
            or not self._start_position <= position < end <= self._end_position
        ):
            for each in zip(phy_offsets, sizes_bytes, tags_codes, strict=True):
                self.put(queue_offset, *each)
                queue_offset += 1
            return
        at = position - self._start_position
        data = b"".join(map(ENTRY.pack, phy_offsets, sizes_bytes, tags_codes))
        self._buffer[at : at + len(data)] = data  # type: ignore[index]
        self._file.write_position = at + len(data)  # type: ignore[union-attr]
        self.max_phy_end = phy_offsets[-1] + sizes_bytes[-1]
        self.max_offset = queue_offset + len(phy_offsets)

    def put_recovered(
        self, queue_offset: int, phy_offset: int, size_bytes: int, tags_code: int
    ) -> bool:
        """Write an entry found in the commit log; entries that are there are corrected.

        Returns:
            Whether anything had to be written.

        Raises:
            QueueGapError: entries before it are missing.
            DiskFullError: no space.
        """
        if queue_offset < self.max_offset:
            found = self.entry(queue_offset)
            if found is None or found == (phy_offset, size_bytes, tags_code):
                return False
            position = queue_offset * ENTRY_BYTES
            mapped = self._queue.find(position)
            assert mapped is not None
            ENTRY.pack_into(
                mapped.buffer, position - mapped.base_offset, phy_offset, size_bytes, tags_code
            )
            mapped.flushed = min(mapped.flushed, position - mapped.base_offset)
            self.flushed_offset = min(self.flushed_offset, queue_offset)
            return True
        if queue_offset > self.max_offset:
            raise QueueGapError(expected=self.max_offset, got=queue_offset)
        self.next_offset = queue_offset
        if queue_offset >= self.reserved_offset or self._file is None:
            self.reserve()
        self.put(queue_offset, phy_offset, size_bytes, tags_code)
        self.next_offset = queue_offset + 1
        return True

    def restart_at(self, queue_offset: int) -> None:
        """Drop all entries; the next one put is this one."""
        self._queue.remove_all()
        self._settle()
        self.next_offset = self.max_offset = self.min_offset = queue_offset

    def _enter(self, position: int) -> None:
        mapped = self._queue.find(position)
        assert mapped is not None, "reserve comes before put"
        self._file = mapped
        self._buffer = mapped.buffer
        self._start_position = mapped.base_offset
        self._end_position = mapped.end_offset

    def flush(self) -> None:
        """Bring all entries to disk.

        Raises:
            OSError: the disk failed.
        """
        max_offset = self.max_offset
        if max_offset > self.flushed_offset:
            self._queue.flush()
            self.flushed_offset = max_offset

    # -- reading ---------------------------------------------------------------------------

    def window(self, queue_offset: int, max_bytes: int) -> memoryview | None:
        """Return whole entries from ``queue_offset`` on, within one file; None if there is none."""
        position = queue_offset * ENTRY_BYTES
        mapped = self._queue.find(position)
        if mapped is None:
            return None
        end = min(self.max_offset * ENTRY_BYTES, mapped.end_offset, position + max_bytes)
        base = mapped.base_offset
        return mapped.view[position - base : end - base] if end > position else None

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code of one entry, or None."""
        if queue_offset >= self.max_offset:
            return None
        position = queue_offset * ENTRY_BYTES
        mapped = self._queue.find(position)
        if mapped is None:
            return None
        found: tuple[int, int, int] = ENTRY.unpack_from(mapped.view, position - mapped.base_offset)
        return found

    def next_file_offset(self, queue_offset: int) -> int:
        """Return the first queue offset of the file after the one that holds an offset."""
        per_file = self.file_entries
        return (queue_offset // per_file + 1) * per_file

    def offset_by_time(
        self, timestamp_ms: int, time_of: Callable[[int, int], int], *, upper: bool
    ) -> int:
        """Find a queue offset by store time.

        Args:
            timestamp_ms: time looked for.
            time_of: store time of the message at a physical offset with a size.
            upper: the last message not after the time, instead of the first not before it.

        Returns:
            An offset from ``min_offset`` to ``max_offset``.
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

    # -- start, retention, end -------------------------------------------------------------

    def load(self) -> None:
        """Map the files that are there and find the last entry that looks whole.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        self._queue.load(rebuildable=True)
        self._find_end(_NO_LIMIT)
        self.min_offset = self._first_offset()
        self.next_offset = self.max_offset

    def _find_end(self, limit_phy: int) -> None:
        """Find the end of the whole entries whose message starts before an offset.

        A file whose first and last entry are in order counts as whole: what lies before a
        trusted offset reached the disk together. The first other file is read entry by entry.
        """
        self.max_offset = self._first_offset()
        self.max_phy_end = 0
        last_phy = 0
        for mapped in self._queue.files:
            if mapped.data_end < mapped.size_bytes:
                self._read_to_end(mapped, last_phy, limit_phy)
                return
            first = ENTRY.unpack_from(mapped.view, 0)
            last = ENTRY.unpack_from(mapped.view, mapped.size_bytes - ENTRY_BYTES)
            in_order = last_phy <= first[0] <= last[0] < limit_phy
            if not in_order or first[1] <= 0 or last[1] <= 0 or last[1] == _PRE_BLANK_SIZE:
                self._read_to_end(mapped, last_phy, limit_phy)
                return
            last_phy = last[0]
            self.max_offset = mapped.end_offset // ENTRY_BYTES
            self.max_phy_end = last[0] + last[1]

    def _read_to_end(self, mapped: MappedFile, last_phy: int, limit_phy: int) -> None:
        count = 0
        data_end = mapped.data_end - mapped.data_end % ENTRY_BYTES
        for phy_offset, size, _ in ENTRY.iter_unpack(mapped.view[:data_end]):
            if size <= 0 or not last_phy <= phy_offset < limit_phy:
                break
            count += 1
            last_phy = phy_offset
            if size != _PRE_BLANK_SIZE:
                self.max_phy_end = phy_offset + size
        self.max_offset = mapped.base_offset // ENTRY_BYTES + count

    def cut(self, trusted_phy_offset: int) -> int:
        """Erase the entries whose message starts at or after an offset, and all that follows.

        Returns:
            How many entries went.
        """
        before = self.max_offset
        self._find_end(trusted_phy_offset)
        self._queue.truncate(self.max_offset * ENTRY_BYTES)
        self.next_offset = self.max_offset
        self.min_offset = min(self.min_offset, self.max_offset)
        self._settle()
        return before - self.max_offset

    def _settle(self) -> None:
        self._file = None
        self._start_position = self._end_position = 0
        self.flushed_offset = self.max_offset
        last = self._queue.last
        end = 0 if last is None else last.base_offset + last.allocated
        self.reserved_offset = end // ENTRY_BYTES
        if last is None:
            self.max_offset = self.next_offset = self.min_offset = self.flushed_offset = 0

    def _first_offset(self) -> int:
        first = self._queue.first
        return 0 if first is None else first.base_offset // ENTRY_BYTES

    def _phy_of(self, queue_offset: int) -> int:
        found = self.entry(queue_offset)
        return -1 if found is None or found[1] == _PRE_BLANK_SIZE else found[0]

    def correct_min_offset(self, min_phy_offset: int) -> None:
        """Set ``min_offset`` to the first entry whose message still exists."""
        low, high = self._first_offset(), self.max_offset
        self.min_offset = low + bisect.bisect_left(
            range(low, high), min_phy_offset, key=self._phy_of
        )

    def delete_expired(self, min_phy_offset: int) -> int:
        """Delete files whose messages are all gone, never the last; return how many."""
        deleted = 0
        while len(self._queue.files) > 1:
            last_entry = self._queue.files[0].end_offset // ENTRY_BYTES - 1
            if last_entry >= self.max_offset or self._phy_of(last_entry) >= min_phy_offset:
                break
            self._queue.remove_first()
            deleted += 1
        self.correct_min_offset(min_phy_offset)
        return deleted

    def destroy(self) -> None:
        """Delete all files."""
        self._queue.remove_all()
        self._settle()

    def close(self) -> None:
        """Let go of the files."""
        self._file = None
        self._buffer = b""
        self._start_position = self._end_position = 0
        self._queue.close()
