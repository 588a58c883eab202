"""Reading a queue: entries first, then the messages they point to.

What a consumer may see is bounded by the consume queue: an entry is written only when its message
may be seen. Messages that were stored before this start are checked on their way out: the disk may
have changed them while nobody looked. What was read in the order of its queue is remembered, and
not checked again (`ProvenReads`). A message that fails the check is left out, and said once by its
offset.

One read is bounded, so that no consumer holds up the others: in messages and bytes (less for old
messages, which have to come from the disk), in queue entries that a filter turns down, and in
bytes that are looked at for nothing. When a bound is reached before anything was found, the status
is NO_MATCHED_MESSAGE and the consumer goes on at once at the next offset.

Messages older than the memory of the machine reaches are read by a system call, not through the
mapping. While it waits for the disk other threads run, and a sector that cannot be read is an
error for one message; under a mapping it is a signal that ends the process.

Step 26 of a message's life (docs/ARCHITECTURE.md).

Source: DefaultMessageStore.getMessage, isTheBatchFull, estimateInMemByCommitOffset (5.4.0).
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate, compress, count
from operator import add, le
from typing import Final

from rocketpy.proto.record_check import is_intact
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.machine import total_memory_bytes
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue_table import ConsumeQueueTable
from rocketpy.store.plain_runs import PlainPart, RecordRun, plain_run
from rocketpy.store.proven_reads import ProvenReads
from rocketpy.store.queue_entry import ENTRY, ENTRY_BYTES, columns_of
from rocketpy.store.read_ahead import ReadAhead
from rocketpy.store.read_limit import ReadLimit
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter, outside_queue
from rocketpy.store.stats import StoreStats

logger: logging.Logger = logging.getLogger(__name__)
_new: Final = tuple.__new__

_MAX_WASTED_BYTES: Final = 8 << 20
"""Bytes of messages that one read looks at and leaves out."""
_SHORTEST_RUN: Final = 8
_LONGEST_RUN: Final = 256
"""Entries that a filter is asked about at once."""
_FEWEST_ENTRIES: Final = 32
"""That one read looks at, whatever a look costs."""
_RUN_ENTRIES: Final = 4
"""Fewer are looked at one by one."""


class MessageReader:
    """Reads messages of a queue. Safe to use from any thread.

    Attributes:
        count_plain: counts reads made after `begin_plain`, see `StoreStats.got_many`.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        table: ConsumeQueueTable,
        log: CommitLog,
        stats: StoreStats,
        clock: Clock,
        *,
        memory_bytes: int | None = None,
        expect: Callable[[int], None] = lambda _phy_offset: None,
    ) -> None:
        """Build a reader.

        Args:
            config: limits.
            table: the queues.
            log: the messages.
            stats: counts.
            clock: measures.
            memory_bytes: of the machine; None asks it.
            expect: hears at which physical offset a read begins.
        """
        self._expect = expect
        self._table, self._log = table, log
        self._stats, self._clock = stats, clock
        self.count_plain: Callable[[int, int, int, int], None] = stats.got_many
        self._ahead, self._proven = ReadAhead(), ProvenReads()
        if memory_bytes is None:
            memory_bytes = total_memory_bytes()
        self._recent_bytes = memory_bytes * config.access_message_in_memory_max_ratio // 100
        self._recent = ReadLimit(
            config.max_transfer_count_on_message_in_memory,
            config.max_transfer_bytes_on_message_in_memory,
        )
        self._old = ReadLimit(
            config.max_transfer_count_on_message_in_disk,
            config.max_transfer_bytes_on_message_in_disk,
        )
        self._scan_count = max(
            config.max_filter_message_size // ENTRY_BYTES, self._recent.messages, self._old.messages
        )

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        """See `rocketpy.store.message_store.MessageStore.get_message`."""
        begin_ms = self._clock.monotonic_ms()
        queue, limit = self._table.get(topic, queue_id), ReadLimit(max_count, max_bytes)
        if queue is None:
            batch = self._table.get_batch(topic, queue_id)
            ends = (0, 0) if batch is None else (batch.min_offset, batch.max_offset)
            result = GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, *ends)
        else:
            outside = outside_queue(queue_offset, queue.min_offset, queue.max_offset)
            result = outside or self._read(queue, queue_offset, limit, message_filter)
        self._stats.got(result.count, self._clock.monotonic_ms() - begin_ms)
        return result

    def plain_limit(self, max_count: int, max_bytes: int) -> tuple[int, int]:
        """Return how many messages, and bytes of them, a read takes that `begin_plain` begins."""
        return ReadLimit(max_count, max_bytes).within(self._recent)

    def begin_plain(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limit: tuple[int, int],
        weight: int,
        *,
        checks: bool = False,
    ) -> PlainPart | None:
        """Return where a read begins, for who takes its records without `get`.

        What `get` takes of it: entry by entry, those that a filter leaves, until there is as much
        as may be taken or no entry is left. All that holds as long as each record that tags do not
        leave out is plain: its size is above 0, it is not before `first`, it ends where the written
        part of the file does, or before, and it begins behind the end of the one before; and as
        long as a condition does not turn down more than 4 MiB of them. Else `get` is to be asked.
        Messages of a former life are among it once they were checked, or if the caller does that.

        Args:
            topic: of the queue.
            queue_id: of the queue.
            queue_offset: of the first entry.
            limit: what `plain_limit` says.
            weight: of the filter, see `MessageFilter`; 1 without.
            checks: whether the caller checks what the part says; `get` is for what is not intact.

        Returns:
            None when `get` is to be asked anyway.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        queue, log = self._table.get(topic, queue_id), self._log
        if queue is None:
            return None
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high:
            return None
        most = self._scan_count if weight == 1 else self._most_entries(weight)
        scanned_bytes = most * ENTRY_BYTES
        window = self._ahead.window(queue, queue_offset, scanned_bytes)
        if window is None:
            return None
        phy_offset: int = ENTRY.unpack_from(window)[0]
        self._expect(phy_offset)
        if (file := self.recent_part(phy_offset)) is None:
            return None
        is_cut = len(window) < scanned_bytes
        cut_at = check_before = proven = 0
        unproven, is_usual = None, phy_offset >= log.verified_from
        if not is_usual:
            proven_to = self._proven.end_behind(queue, queue_offset)
            proven = proven_to - queue_offset
            if checks:
                check_before, unproven = log.verified_from, queue
            else:
                cut_at, window = proven_to, window[: proven * ENTRY_BYTES]
                if not window:
                    return None  # `get` checks them, once
        # As `PlainPart(...)`, without its Python frame.
        return _new(PlainPart, (
            window, *file, phy_offset, low, high, *limit, is_cut, cut_at, check_before, proven,
            unproven, queue_offset, is_usual,
        ))  # fmt: skip

    def end_plain(self, part: PlainPart, next_offset: int, count: int) -> bool:
        """Say whether a read is whole that was made after `begin_plain`; `count_plain` counts it.

        Args:
            part: where it began.
            next_offset: queue offset of the first entry that was not looked at.
            count: records taken; with none of them nothing matched.

        Returns:
            False when `get` would look at more entries, as none was taken or as the next one has to
            be checked. Never of a usual part (`PlainPart.is_usual`) of which records were taken.
        """
        if not count and next_offset < part.high and part.is_cut:
            return False
        if part.cut_at and next_offset == part.cut_at < part.high and count < part.messages:
            return False
        if part.queue is not None and part.proven < count == next_offset - part.start:
            self._proven.add(part.queue, part.start, next_offset)
        return True

    def end_of(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Return the bounds of a queue that ends where a read begins, and count the read."""
        queue = self._table.get(topic, queue_id)
        if queue is None or not queue_offset or queue_offset != queue.max_offset:
            return None
        self._stats.got(0, 0)
        return queue.min_offset, queue_offset

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """See `rocketpy.store.message_store.MessageStore.queue_entries`."""
        queue = self._table.get(topic, queue_id)
        if queue is None or queue_offset < 0:
            return []
        # As much as a read asks for: what is left over serves the reads that follow.
        window = self._ahead.window(queue, queue_offset, self._scan_count * ENTRY_BYTES)
        if window is None:
            return []
        return list(ENTRY.iter_unpack(window[: max_count * ENTRY_BYTES]))

    def recent_part(self, phy_offset: int) -> tuple[memoryview, int, int] | None:
        """Return the memory of the log's file with an offset, for who checks records himself.

        Returns:
            The file's memory, the physical offset where it begins, and where what is written ends,
            or the next damaged record begins. None for what `get` reads from the disk, or is one.
        """
        if phy_offset < self._log.offsets.appended - self._recent_bytes:
            return None
        view, base, end = self._log.written_part(phy_offset)
        end = self._log.end_without_damage(phy_offset, end)
        return None if end <= phy_offset else (view, base, end)

    def _most_entries(self, weight: int) -> int:
        """Return how many entries one read looks at."""
        most = self._scan_count
        return most if weight == 1 else max(most // weight, min(_FEWEST_ENTRIES, most))

    def _read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        wanted: ReadLimit,
        message_filter: MessageFilter | None,
    ) -> GetMessageResult:
        low, high = queue.min_offset, queue.max_offset
        recent_from = self._log.max_phy_offset - self._recent_bytes
        recent, old = wanted.within(self._recent), wanted.within(self._old)
        selection = _Selection(self._log, self._proven, recent, old, recent_from)
        begin = queue_offset
        left = self._most_entries(1 if message_filter is None else message_filter.weight)
        while left > 0 and queue_offset < high and not selection.is_full:
            window = self._ahead.window(queue, queue_offset, left * ENTRY_BYTES)
            if window is None:
                break
            self._expect(ENTRY.unpack_from(window)[0])
            if message_filter is None:
                looked_at = selection.take_run(window, queue, queue_offset)
            else:
                looked_at = selection.take_runs(window, message_filter)
            looked_at += selection.take(window[looked_at * ENTRY_BYTES :], message_filter)
            queue_offset += looked_at
            left -= looked_at
            if selection.buffers:
                break
        if queue_offset == begin:
            following = min(max(queue.next_file_offset(queue_offset), low), high)
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, following, low, high)
        found, size_bytes = selection.buffers, selection.size_bytes
        return GetMessageResult(
            selection.status, queue_offset, low, high, found, len(found), size_bytes
        )


class _Selection:
    """What one read found so far.

    Attributes:
        buffers: whole records.
        size_bytes: of all records.
        is_full: no further entry is looked at.
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
        "is_full",
        "size_bytes",
    )

    def __init__(
        self,
        log: CommitLog,
        proven: ProvenReads,
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
        self.size_bytes = 0
        self.is_full = False

    @property
    def status(self) -> GetMessageStatus:
        """Why the read returns what it returns."""
        if self.buffers:
            return GetMessageStatus.FOUND
        if self._is_removing:
            return GetMessageStatus.MESSAGE_WAS_REMOVING
        return GetMessageStatus.NO_MATCHED_MESSAGE

    def take_run(self, window: memoryview, queue: ConsumeQueue, queue_offset: int) -> int:
        """Add the leading entries, unless one of them is unusual; return how many were added.

        `take` goes on behind them: it knows what to do about each.
        """
        log, (most, most_bytes) = self._log, self._recent
        if min(most, len(window) // ENTRY_BYTES) < _RUN_ENTRIES:
            return 0
        first: int = ENTRY.unpack_from(window)[0]
        if first < max(self._recent_from, self._skip_before):
            return 0
        run = plain_run(window[: most * ENTRY_BYTES], most_bytes, log.written_part(first))
        if run is None or (log.damaged and not log.damaged.isdisjoint(run.places)):
            return 0
        end = queue_offset + len(run.places)
        if first < log.verified_from and not self._proven.covers(queue, queue_offset, end):
            if not all(map(is_intact, run.records, run.places)):
                return 0
            self._proven.add(queue, queue_offset, end)
        self.buffers += run.records
        self.size_bytes += run.size_bytes
        self._skip_before = run.places[-1] + 1
        self._is_removing = False
        return len(run.places)

    def take(self, window: memoryview, message_filter: MessageFilter | None) -> int:
        """Add what entries point to, until there is enough; return how many were looked at."""
        log, buffers, recent_from = self._log, self.buffers, self._recent_from
        verified_from, damaged = log.verified_from, log.damaged
        looked_at, size_bytes = 0, self.size_bytes
        # The file of the last recent record: its memory, where it begins, what of it is written.
        view, base, end, recent = window, 0, 0, 0
        for phy_offset, size, tags_code in ENTRY.iter_unpack(window):
            most, most_bytes = self._recent if phy_offset >= recent_from else self._old
            if self._wasted_bytes > _MAX_WASTED_BYTES or (
                buffers and (len(buffers) >= most or size_bytes + size > most_bytes)
            ):
                self.is_full = True
                break
            looked_at += 1
            if phy_offset < self._skip_before or (
                message_filter is not None and not message_filter.matches_tags_code(tags_code)
            ):
                continue
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
            self._skip_before = phy_offset + 1  # a hole in the queue is filled with its successor
            sound = phy_offset >= verified_from or self._check(record, phy_offset)
            if (
                not sound
                or phy_offset in damaged
                or (message_filter is not None and not message_filter.matches_record(record))
            ):
                self._wasted_bytes += size
                continue
            buffers.append(record)
            size_bytes += size
        self.size_bytes = size_bytes
        return looked_at

    def take_runs(self, window: memoryview, message_filter: MessageFilter) -> int:
        """Do what `take` does, for many entries at once as long as they are the usual ones.

        Returns:
            How many were looked at; `take` goes on behind them.
        """
        buffers, most = self.buffers, self._recent.messages
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
            taken = list(compress(count(), answers))[:missing]
            end = taken[-1] + 1 if len(taken) == missing else len(sizes)
            buffers += [view[positions[at] : positions[at] + sizes[at]] for at in taken]
            taken_bytes = sum(map(sizes.__getitem__, taken))
            self.size_bytes += taken_bytes
            self._wasted_bytes += sum(sizes[:end]) - taken_bytes
            self._skip_before = offsets[end - 1] + 1
            self._is_removing = False
            looked_at += end
            # What will do if those that follow are taken almost as often as those before.
            wanted = (missing - len(taken)) * looked_at * 17 // (16 * max(1, len(buffers))) + 2
        return looked_at

    def _run(self, window: memoryview, wanted: int) -> RecordRun | None:
        """Return records that need nothing but to be matched; None when the next ones need more.

        They are recent, of this life of the broker, undamaged, in one file, and no limit in bytes
        comes into play before their end.
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
            first < max(self._recent_from, log.verified_from, self._skip_before)
            or ends[-1] > end
            or min(sizes) <= 0
            or not all(map(le, ends, offsets[1:]))
            or (log.damaged and not log.damaged.isdisjoint(offsets))
        ):
            return None
        return RecordRun(view, base, offsets, sizes)

    def _record(self, phy_offset: int, size: int) -> memoryview | None:
        """Return a record's bytes; None when they are gone, or cannot be read."""
        if phy_offset >= self._recent_from:
            record = self._log.record(phy_offset, size)
        else:
            try:
                record = self._log.record_from_disk(phy_offset, size)
            except OSError as error:
                self._log.report_damage(phy_offset, f"it cannot be read: {error.strerror}")
                return None
        if record is None:
            if not self.buffers:
                self._is_removing = True
                self._skip_before = self._log.next_file_offset(phy_offset)
            return None
        self._is_removing = False
        return record

    def _check(self, record: memoryview, phy_offset: int) -> bool:
        """Whether a record is what was stored; an entry that does not fit it is left out."""
        if is_intact(record, phy_offset):
            return True
        if self._log.intact_record(phy_offset, self._log.max_phy_offset) is None:
            self._log.report_damage(phy_offset, "its frame or checksum is wrong")
        else:
            logger.error("a queue entry names another record: phy_offset=%d", phy_offset)
        return False
