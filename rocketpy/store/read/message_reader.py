"""Message reader: reads queue entries, then the messages that they point to.

The consume queue bounds what consumers may read: an entry is written only when its message is
visible. Messages stored before this start are checked when they are read, because the disk may have
changed them meanwhile. Ranges that were read in queue order are recorded and not checked again
(`VerifiedRanges`). A message that fails the check is skipped and logged once.

A read is bounded, so that no consumer delays the others: in messages and bytes (fewer for old
messages, which come from the disk), in queue entries that a filter rejects, and in bytes checked
without a match. If a limit is reached before a match, the status is NO_MATCHED_MESSAGE and the
consumer continues at once at the next offset.

Messages that are probably not in the page cache are read by a system call instead of the mapping:
other threads run during the wait for the disk, and an unreadable sector is an error for one
message; through the mapping it would be a signal that ends the process.

Source: DefaultMessageStore.getMessage, isTheBatchFull, estimateInMemByCommitOffset (5.4.0).
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from rocketpy.proto.topic_names import is_system_topic
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.os_resources import total_memory_bytes
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.commit_log.prefetch import PIECE_BYTES
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.consume_queue.queue_entry import ENTRY, ENTRY_BYTES
from rocketpy.store.read.bulk_read import BulkReadPlan
from rocketpy.store.read.entry_cache import EntryCache
from rocketpy.store.read.read_cursor import ReadCursor, ReadSources
from rocketpy.store.read.selection import ReadLimit, Selection, VerifiedRanges
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter, outside_queue
from rocketpy.store.stats import StoreStats
from rocketpy.store.store_offsets import NO_BOUND

_new: Final = tuple.__new__

_NO_LIMIT: Final = (1 << 63) - 1
# Least number of entries that one read checks, independent of the cost of a check.
_FEWEST_ENTRIES: Final = 32
_MOST_CODES: Final = 1_000


class MessageReader:
    """Reads messages of a queue. Safe to use from any thread.

    Attributes:
        count_plain: counts reads of the fast path, see `StoreStats.got_many`.
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
            log: the commit log.
            stats: statistics.
            clock: measures durations.
            memory_bytes: memory of the machine; None to query it.
            expect: called with the physical offset of each read.
        """
        self._expect = expect
        self._table, self._log = table, log
        self._stats, self._clock = stats, clock
        self.count_plain: Callable[[int, int, int, int], None] = stats.got_many
        self._ahead, self._proven = EntryCache(), VerifiedRanges()
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
        # Consumers repeat the same limits.
        self._limits: Callable[[int, int], tuple[ReadLimit, ReadLimit]] = lru_cache(maxsize=64)(
            self._limits_of
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
        *,
        may_join: bool = False,
    ) -> GetMessageResult:
        """See `rocketpy.store.message_store.MessageStore.get_message`."""
        begin_ms = self._clock.monotonic_ms()
        queue = self._table.get(topic, queue_id)
        if queue is None:
            batch = self._table.get_batch(topic, queue_id)
            ends = (0, 0) if batch is None else (batch.min_offset, batch.max_offset)
            result = GetMessageResult(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0, *ends)
        else:
            # Read once: both advance concurrently.
            ends = queue.min_offset, queue.max_offset
            if self._log.offsets.held_from < NO_BOUND:
                # A consumer at a message that is held back had read all before it: it waits there.
                shown = self._shown_end(queue, ends[1])
                ends = ends[0], queue_offset if shown <= queue_offset <= ends[1] else shown
            if ends[0] <= queue_offset < ends[1]:
                limits = self._limits(max_count, max_bytes)
                result = self._read(queue, queue_offset, ends, limits, message_filter, may_join)
            else:
                result = outside_queue(queue_offset, *ends)
        count = result.count
        self.count_plain(count > 0, count == 0, count, self._clock.monotonic_ms() - begin_ms)
        return result

    def plain_limit(self, max_count: int, max_bytes: int) -> tuple[int, int]:
        """Return the limits of messages and bytes of a fast-path read."""
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
    ) -> BulkReadPlan | None:
        """Return the plan of a read for a caller that takes the records without `get`.

        The result equals that of `get`: the entries that a filter accepts, until a limit is reached
        or no entry is left. This holds while each record that tags do not exclude has a size above
        0, is not before `first`, ends within the written part of the file, and starts after the end
        of the previous one; and while a condition rejects at most 4 MiB of them. Otherwise the
        caller must use `get`. Messages of an earlier start are included if they are verified, or if
        the caller checks them.

        Args:
            topic: topic of the queue.
            queue_id: queue within the topic.
            queue_offset: queue offset of the first entry.
            limit: result of `plain_limit`.
            weight: weight of the filter, see `MessageFilter`; 1 without.
            checks: whether the caller checks the messages that the plan names.

        Returns:
            None if the caller must use `get`.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        queue, log = self._table.get(topic, queue_id), self._log
        if queue is None or log.offsets.held_from < NO_BOUND:
            return None
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high:
            return None
        most = self._scan_count if weight == 1 else self._most_entries(weight)
        scanned_bytes = most * ENTRY_BYTES
        # The cache serves entries on disk; those in memory are views of the tail.
        window = self._ahead.window(queue, queue_offset, scanned_bytes)
        if window is None:
            return None
        phy_offset: int = ENTRY.unpack_from(window)[0]
        # Before the read, so that the prefetch runs during it.
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
                # Only verified messages: the caller does not check any.
                cut_at, window = proven_to, window[: proven * ENTRY_BYTES]
                if not window:
                    return None  # `get` checks them once
        # Equivalent to `BulkReadPlan(...)`, without its Python frame.
        return _new(BulkReadPlan, (
            window, *file, phy_offset, low, high, *limit, is_cut, cut_at, check_before, proven,
            unproven, queue_offset, is_usual,
        ))  # fmt: skip

    def end_plain(self, part: BulkReadPlan, next_offset: int, count: int) -> bool:
        """Return whether a fast-path read is complete; `count_plain` counts it.

        Args:
            part: plan of the read.
            next_offset: queue offset of the first entry that was not checked.
            count: number of records taken; 0 if nothing matched.

        Returns:
            False if `get` would check more entries, because none was taken or the next one must be
            checked. Never for a plan with `BulkReadPlan.is_usual` of which records were taken.
        """
        if not count and next_offset < part.high and part.is_cut:
            return False
        if part.cut_at and next_offset == part.cut_at < part.high and count < part.messages:
            return False
        # Only a read that took every entry has checked every message of the range.
        if part.queue is not None and part.proven < count == next_offset - part.start:
            self._proven.add(part.queue, part.start, next_offset)
        return True

    def end_of(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int] | None:
        """Return the bounds of a queue that ends at the start of a read, and count the read."""
        queue = self._table.get(topic, queue_id)
        # Offset 0 of an empty queue needs the general path, which decides about a moved minimum.
        if queue is None or not queue_offset or queue_offset != queue.max_offset:
            return None
        self._stats.got(0, 0)
        return queue.min_offset, queue_offset

    def max_offset(self, topic: str, queue_id: int, *, with_held: bool = False) -> int:
        """Return the queue offset after the last message, 0 if the queue does not exist.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            with_held: whether messages that are held back count.
        """
        queue = self._table.get(topic, queue_id)
        if queue is None:
            batch = self._table.get_batch(topic, queue_id)
            return 0 if batch is None else batch.max_offset
        high = queue.max_offset
        is_held = self._log.offsets.held_from < NO_BOUND and not with_held
        return self._shown_end(queue, high) if is_held else high

    def _shown_end(self, queue: ConsumeQueue, high: int) -> int:
        """Return the end of a queue without the messages that are held back.

        The broker's own topics have none: progress of the broker depends on this disk only.
        """
        if is_system_topic(queue.topic):
            return high
        return min(high, queue.entries_before(self._log.offsets.held_from))

    def arrivals_from(self, phy_offset: int) -> Iterator[tuple[str, int, int, set[int]]]:
        """Yield the queues of users with messages from a physical offset on.

        Yields:
            Topic, queue id, end of the queue, and the tags codes of the first `_MOST_CODES` of
            these messages.
        """
        for queue in self._table:
            first, high = queue.entries_before(phy_offset), queue.max_offset
            if first < high and not is_system_topic(queue.topic):
                found = self.entries(queue.topic, queue.queue_id, first, _MOST_CODES)
                yield queue.topic, queue.queue_id, high, {code for _, _, code in found}

    def entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """See `rocketpy.store.message_store.MessageStore.queue_entries`."""
        queue = self._table.get(topic, queue_id)
        if queue is None or queue_offset < 0:
            return []
        # The size of a normal read, so that the rest serves later reads.
        window = self._ahead.window(queue, queue_offset, self._scan_count * ENTRY_BYTES)
        if window is None:
            return []
        return list(ENTRY.iter_unpack(window[: max_count * ENTRY_BYTES]))

    @property
    def sources(self) -> ReadSources:
        """Objects that fast-path reads compare with a `ReadCursor`."""
        log = self._log
        return ReadSources(
            log.queue,
            log.offsets,
            log.damaged,
            self._ahead.kept,
            self._scan_count,
            self._recent_bytes,
        )

    def known_place(self, topic: str, queue_id: int, part: BulkReadPlan) -> ReadCursor | None:
        """Return a cursor that lets later reads skip `begin_plain`, after one without checks.

        Args:
            topic: topic of the queue.
            queue_id: queue within the topic.
            part: a plan with `BulkReadPlan.is_usual`.

        Returns:
            None if the queue or the file was deleted meanwhile.
        """
        queue, log = self._table.get(topic, queue_id), self._log
        damaged_count, mapped = len(log.damaged), log.queue.find(part.first)
        if queue is None or mapped is None:
            return None
        return ReadCursor(
            queue,
            log.files.index(mapped),
            mapped.base_offset,
            part.first,
            log.end_without_damage(part.first, _NO_LIMIT),
            damaged_count,
            (part.first // PIECE_BYTES + 1) * PIECE_BYTES,
        )

    def recent_part(self, phy_offset: int) -> tuple[memoryview, int, int] | None:
        """Return the log file with an offset, for a caller that checks records itself.

        Returns:
            The file's memory, its first physical offset, and the end of the written part or the
            start of the next damaged record. None for offsets that `get` reads from the disk, and
            for damaged records.
        """
        # Older pages may have left the page cache: touching the mapping would block the thread.
        if phy_offset < self._log.offsets.appended - self._recent_bytes:
            return None
        view, base, end = self._log.written_part(phy_offset)
        end = self._log.end_without_damage(phy_offset, end)
        return None if end <= phy_offset else (view, base, end)

    def _limits_of(self, max_count: int, max_bytes: int) -> tuple[ReadLimit, ReadLimit]:
        """Return the limits of a read for recent messages, and for old ones."""
        wanted = ReadLimit(max_count, max_bytes)
        return wanted.within(self._recent), wanted.within(self._old)

    def _most_entries(self, weight: int) -> int:
        """Return the number of entries that one read checks."""
        most = self._scan_count
        return most if weight == 1 else max(most // weight, min(_FEWEST_ENTRIES, most))

    def _read(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        ends: tuple[int, int],
        limits: tuple[ReadLimit, ReadLimit],
        message_filter: MessageFilter | None,
        may_join: bool,
    ) -> GetMessageResult:
        low, high = ends
        recent_from = self._log.offsets.appended - self._recent_bytes
        selection = Selection(self._log, self._proven, *limits, recent_from)
        # `left` bounds the entries of one read, also if a filter rejects all of them.
        begin, left, most = queue_offset, self._scan_count, max(1, limits[0][0], limits[1][0])
        if message_filter is not None:
            left = self._most_entries(message_filter.weight)
        if self._log.offsets.held_from < NO_BOUND:
            left = min(left, high - queue_offset)
        while left > 0 and queue_offset < high and not selection.is_full:
            window = self._ahead.window(queue, queue_offset, left * ENTRY_BYTES)
            if window is None:
                break
            self._expect(ENTRY.unpack_from(window)[0])
            if message_filter is None:
                looked_at = selection.take_run(window, queue, queue_offset, may_join=may_join)
            else:
                looked_at = selection.take_runs(window, message_filter)
            # A full selection needs no further entries.
            if selection.count < most:
                looked_at += selection.take(window[looked_at * ENTRY_BYTES :], message_filter)
            queue_offset += looked_at
            left -= looked_at
            # A read returns what it has instead of scanning on for a full response.
            if selection.buffers:
                break
        # No entry could be read: continue in the next file, or consumers would repeat the same
        # offset.
        if queue_offset == begin:
            following = min(max(queue.next_file_offset(queue_offset), low), high)
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, following, low, high)
        return GetMessageResult(
            selection.status,
            queue_offset,
            low,
            high,
            selection.buffers,
            selection.count,
            selection.size_bytes,
        )
