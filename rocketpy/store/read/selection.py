"""Selection of messages in one read of a queue, its limits, and verified ranges.

Entries with consecutive records are processed in bulk as columns; others one by one, because their
message may be deleted, damaged, unchecked, out of order, or rejected by a filter.

A message of an earlier start is checked when it is first read, because the disk may have changed
it. Afterwards it needs no further check, like one written since the start. `VerifiedRanges` records
a few ranges of queue offsets for each queue: consumers read queues in order, except that one that
pulls ahead reads the rest of a truncated response after later messages.
"""

import collections
import logging
import threading
from bisect import bisect_right
from itertools import accumulate, compress, count
from operator import add, le
from typing import Final, NamedTuple, Self

from rocketpy.proto.record.record_check import is_intact
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES, columns_of
from rocketpy.store.read.bulk_read import RecordRun, plain_run
from rocketpy.store.results import GetMessageStatus, MessageFilter

_MAX_RESULT_BYTES: Final = 128 << 20


class ReadLimit(NamedTuple):
    """Limits of one read.

    Attributes:
        messages: most messages.
        size_bytes: most bytes of messages.
    """

    messages: int
    size_bytes: int

    def within(self, allowed: Self) -> "ReadLimit":
        """Return the smaller of two limits."""
        messages, most = min(self[0], allowed[0]), min(self[1], allowed[1], _MAX_RESULT_BYTES)
        return ReadLimit(messages, most)


_MAX_QUEUES = 256
# Most ranges of a queue; the largest ones stay.
_MAX_RANGES = 8


class VerifiedRanges:
    """Verified ranges of the queues that were read last; safe to use from any thread."""

    def __init__(self, max_queues: int = _MAX_QUEUES, max_ranges: int = _MAX_RANGES) -> None:
        """Set the limits; a queue takes about 200 bytes, and a range 130."""
        self._max_queues = max_queues
        self._max_ranges = max_ranges
        self._lock = threading.Lock()
        self._ranges: collections.OrderedDict[object, list[tuple[int, int]]] = (
            collections.OrderedDict()
        )

    def covers(self, queue: ConsumeQueue, start: int, end: int) -> bool:
        """Return whether every message in [start, end) is verified."""
        return any(
            first <= start and end <= last for first, last in self._ranges.get(queue.life, ())
        )

    def end_behind(self, queue: ConsumeQueue, start: int) -> int:
        """Return the end of the verified range that contains `start`."""
        ranges = self._ranges.get(queue.life, ())
        return max((last for first, last in ranges if first <= start < last), default=start)

    def add(self, queue: ConsumeQueue, start: int, end: int) -> None:
        """Record verified messages; drop the smallest of too many ranges."""
        with self._lock:
            apart: list[tuple[int, int]] = []
            for first, last in self._ranges.pop(queue.life, ()):
                if start <= last and first <= end:
                    start, end = min(start, first), max(end, last)
                else:
                    apart.append((first, last))
            if len(apart) >= self._max_ranges:
                # The smallest range is the cheapest to check again.
                apart.remove(min(apart, key=lambda each: each[1] - each[0]))
            self._ranges[queue.life] = [*apart, (start, end)]
            if len(self._ranges) > self._max_queues:
                self._ranges.popitem(last=False)


logger: logging.Logger = logging.getLogger(__name__)

# Most bytes of messages that one read checks and rejects.
_MAX_WASTED_BYTES: Final = 8 << 20
_SHORTEST_RUN: Final = 8
# Most entries that a filter checks at once.
_LONGEST_RUN: Final = 256
# Fewer entries are checked one by one.
_RUN_ENTRIES: Final = 4


class Selection:
    """Messages that one read has selected so far.

    Attributes:
        buffers: complete records, one each unless some were joined.
        count: number of records.
        size_bytes: size of all records.
        is_full: whether a limit was reached.
    """

    __slots__ = (
        "_is_removing",
        "_log",
        "_old",
        "_proven",
        "_recent",
        "_recent_from",
        "_skip_before",
        "_wasted_bytes",
        "buffers",
        "count",
        "is_full",
        "size_bytes",
    )

    def __init__(
        self,
        log: CommitLog,
        proven: VerifiedRanges,
        recent: ReadLimit,
        old: ReadLimit,
        recent_from: int,
    ) -> None:
        self._log, self._proven = log, proven
        self._recent, self._old, self._recent_from = recent, old, recent_from
        self._skip_before = -1
        self._is_removing = False
        self._wasted_bytes = 0
        self.buffers: list[memoryview] = []
        self.count: int = 0
        self.size_bytes: int = 0
        self.is_full: bool = False

    @property
    def status(self) -> GetMessageStatus:
        """Status of the read."""
        if self.buffers:
            return GetMessageStatus.FOUND
        if self._is_removing:
            return GetMessageStatus.MESSAGE_WAS_REMOVING
        return GetMessageStatus.NO_MATCHED_MESSAGE

    def take_run(
        self, window: memoryview, queue: ConsumeQueue, queue_offset: int, *, may_join: bool
    ) -> int:
        """Add leading entries in bulk, unless one needs the general path; return how many.

        `take` continues after them with the general path. Adjacent records may be joined if no
        filter checks each of them.
        """
        log, (most, most_bytes) = self._log, self._recent
        # For few entries the set-up of the bulk path costs more than the loop.
        if min(most, len(window) // ENTRY_BYTES) < _RUN_ENTRIES:
            return 0
        first: int = ENTRY.unpack_from(window)[0]
        # Old records are read by system calls, one by one.
        if first < max(self._recent_from, self._skip_before):
            return 0
        is_old = first < log.verified_from
        run = plain_run(
            window[: most * ENTRY_BYTES],
            most_bytes,
            log.written_part(first),
            may_join=may_join and not is_old,
        )
        # The general path skips damaged records one by one.
        if run is None or (log.damaged and not log.damaged.isdisjoint(run.places)):
            return 0
        count = len(run.places)
        end = queue_offset + count
        if is_old and not self._proven.covers(queue, queue_offset, end):
            # Some record is damaged: the general path finds out which one and reports it.
            if not all(map(is_intact, run.records, run.places)):
                return 0
            self._proven.add(queue, queue_offset, end)
        self.buffers += run.records
        self.count += count
        self.size_bytes += run.size_bytes
        self._skip_before = run.places[-1] + 1
        self._is_removing = False
        return count

    def take(self, window: memoryview, message_filter: MessageFilter | None) -> int:
        """Add the messages of entries until a limit is reached; return the number checked."""
        log, buffers, recent_from = self._log, self.buffers, self._recent_from
        verified_from, damaged = log.verified_from, log.damaged
        looked_at, count, size_bytes = 0, self.count, self.size_bytes
        # File of the last recent record: memory, first offset, end of the written part.
        view, base, end, recent = window, 0, 0, 0
        for phy_offset, size, tags_code in ENTRY.iter_unpack(window):
            most, most_bytes = self._recent if phy_offset >= recent_from else self._old
            # Rejected bytes count too: a filter without matches must not read the whole log in one
            # call.
            if self._wasted_bytes > _MAX_WASTED_BYTES or (
                count and (count >= most or size_bytes + size > most_bytes)
            ):
                self.is_full = True
                break
            looked_at += 1
            if phy_offset < self._skip_before or (
                message_filter is not None and not message_filter.matches_tags_code(tags_code)
            ):
                continue
            # The same file as before: no look-up of the file is necessary.
            if recent <= phy_offset and phy_offset + size <= end:
                record = view[phy_offset - base : phy_offset - base + size]
            else:
                found, end = self._record(phy_offset, size), 0
                if found is None:
                    continue
                record = found
                if phy_offset >= recent_from:
                    recent = phy_offset
                    view, base, end = log.written_part(phy_offset)
            self._skip_before = phy_offset + 1  # a gap in the queue is filled with its successor
            # Records written since the start are not checked: nothing but a disk error could change
            # them.
            sound = phy_offset >= verified_from or self._check(record, phy_offset)
            if (
                not sound
                or phy_offset in damaged
                or (message_filter is not None and not message_filter.matches_record(record))
            ):
                self._wasted_bytes += size
                continue
            buffers.append(record)
            count += 1
            size_bytes += size
        self.count, self.size_bytes = count, size_bytes
        return looked_at

    def take_runs(self, window: memoryview, message_filter: MessageFilter) -> int:
        """Add messages like `take`, in bulk while entries have consecutive records.

        Returns:
            The number of checked entries; `take` continues after them.
        """
        buffers, most = self.buffers, self._recent.messages  # none of them was joined
        looked_at, wanted = 0, 2 * most
        while (missing := most - len(buffers)) > 0:
            run = self._run(window[looked_at * ENTRY_BYTES :], wanted)
            if run is None:
                break
            view, base, offsets, sizes = run
            positions = [at - base for at in offsets]
            answers = message_filter.match_records(view, positions, sizes)
            if answers is None:
                break
            # The filter may accept more than the read may return.
            taken = list(compress(count(), answers))[:missing]
            end = taken[-1] + 1 if len(taken) == missing else len(sizes)
            buffers += [view[positions[at] : positions[at] + sizes[at]] for at in taken]
            self.count = len(buffers)
            taken_bytes = sum(map(sizes.__getitem__, taken))
            self.size_bytes += taken_bytes
            self._wasted_bytes += sum(sizes[:end]) - taken_bytes
            self._skip_before = offsets[end - 1] + 1
            self._is_removing = False
            looked_at += end
            # Estimate from the hit rate so far how many entries are needed.
            wanted = (missing - len(taken)) * looked_at * 17 // (16 * max(1, len(buffers))) + 2
        return looked_at

    def _run(self, window: memoryview, wanted: int) -> RecordRun | None:
        """Return records that only need matching; None if the next ones need the general path.

        They are recent, written since the start, undamaged, in one file, and below the limit of
        bytes.
        """
        most = min(max(wanted, _SHORTEST_RUN), _LONGEST_RUN)
        offsets, sizes = columns_of(window[: most * ENTRY_BYTES])
        if len(offsets) < _SHORTEST_RUN:
            return None
        room = min(
            self._recent.size_bytes - self.size_bytes, _MAX_WASTED_BYTES - self._wasted_bytes
        )
        if sum(sizes) > room:
            fitting = bisect_right(list(accumulate(sizes)), room)
            if fitting < _SHORTEST_RUN:
                return None
            offsets, sizes = offsets[:fitting], sizes[:fitting]
        log, first = self._log, offsets[0]
        ends = list(map(add, offsets, sizes))
        view, base, end = log.written_part(first)
        if (
            # Any of these conditions needs a decision for a single record.
            first < max(self._recent_from, log.verified_from, self._skip_before)
            or ends[-1] > end
            or min(sizes) <= 0
            or not all(map(le, ends, offsets[1:]))
            or (log.damaged and not log.damaged.isdisjoint(offsets))
        ):
            return None
        return RecordRun(view, base, offsets, sizes)

    def _record(self, phy_offset: int, size: int) -> memoryview | None:
        """Return a record's bytes; None if they were deleted or are unreadable."""
        if phy_offset >= self._recent_from:
            record = self._log.record(phy_offset, size)
        else:
            try:
                record = self._log.record_from_disk(phy_offset, size)
            except OSError as error:
                # An unreadable sector costs one message instead of the whole read.
                self._log.report_damage(phy_offset, f"it cannot be read: {error.strerror}")
                return None
        if record is None:
            if not self.buffers:
                self._is_removing = True
                # The file was deleted: all further entries that point into it are skipped without a
                # look-up.
                self._skip_before = self._log.next_file_offset(phy_offset)
            return None
        self._is_removing = False
        return record

    def _check(self, record: memoryview, phy_offset: int) -> bool:
        """Return whether a record is intact and belongs to its entry."""
        if is_intact(record, phy_offset):
            return True
        # Distinguishes a damaged record from a damaged queue entry.
        if self._log.intact_record(phy_offset, self._log.max_phy_offset) is None:
            self._log.report_damage(phy_offset, "its frame or checksum is wrong")
        else:
            logger.error("queue entry skipped, names another record: phy_offset=%d", phy_offset)
        return False
