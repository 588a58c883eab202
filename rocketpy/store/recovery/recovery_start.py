"""Start of the recovery scan in the log.

RocketPy's checkpoint holds the exact physical offset up to which the log and all queue entries are
on disk.

Apache's checkpoint, and that of older versions, holds only a store time. Each queue is then
searched for its last message that is older than this time, with a margin, and whose record agrees
with its queue entry. The scan starts at the latest of these messages. Where the clock was set back,
store times descend along the log; therefore the scan starts no later than the first file that
begins with a newer message.

Source: CommitLog.isMappedFileMatchedRecover, StoreCheckpoint.getMinTimestamp (5.4.0).
"""

import logging
from typing import Final

from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.checkpoint import UNKNOWN, Checkpoint
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.deleted_topics import DeletedTopics
from rocketpy.store.recovery.missing_files import queues_with_lost_begin

logger: logging.Logger = logging.getLogger(__name__)

_NEVER_MS: Final = 1 << 62
# Bytes before an offset that show whether a record ends there.
_TAIL_BYTES: Final = 8


class RecoveryStart:
    """Finds the start of the scan; used by one recovery.

    Attributes:
        entries_expected: a physical offset, and the number of entries of all queues for messages
            before it; None if unknown.
        to_remake: queues that lack files; the whole log is read to rebuild them.
    """

    def __init__(
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        *,
        after_crash: bool,
        deleted: DeletedTopics,
    ) -> None:
        """Prepare a search.

        Args:
            log: the log, loaded.
            table: its queues, loaded.
            checkpoint: how far both are trusted.
            after_crash: whether the store was not closed.
            deleted: topics that were deleted.
        """
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._after_crash = after_crash
        self._deleted = deleted
        self.assumed_last_ms: int = 0
        self.entries_expected: tuple[int, int] | None = None
        self.to_remake: list[ConsumeQueue] = []

    def find(self) -> int:
        """Return the physical offset of a record before which everything is trusted."""
        lost_begin = set(queues_with_lost_begin(self._table, self._log, self._deleted.covers))
        self.to_remake = [queue for queue in self._table if queue.has_gap or queue in lost_begin]
        if self._checkpoint.has_offsets:
            start = self._by_offset()
        else:
            start = self.by_time(self._trusted_ms())
        # Entries of a lost file may belong to any message of the log.
        return self._log.min_phy_offset if self.to_remake else start

    def _by_offset(self) -> int:
        start, low = self._checkpoint.trusted_phy_offset, self._log.min_phy_offset
        # The log was replaced, for example by a restored backup.
        if start > low and not self._ends_a_record(start):
            logger.warning(
                "checkpoint does not match the log, everything is read: phy_offset=%d", start
            )
            return low
        deleted_to = max(self._deleted.topics.values(), default=0)
        vouched_to = self._checkpoint.queues_phy_offset
        # Queues of topics that were deleted since are not missed.
        if self._checkpoint.entry_count != UNKNOWN and deleted_to < vouched_to:
            self.entries_expected = (vouched_to, self._checkpoint.entry_count)
        return max(start, low)

    def _ends_a_record(self, phy_offset: int) -> bool:
        """Return whether the written part of the log reaches an offset.

        Unwritten space is zero, while a record ends with a part of its topic or properties.
        """
        found = self._log.check(phy_offset, check_crc=False)
        if found is not None and found.state is not RecordState.EMPTY:
            return True
        # At the begin of a file there is no record before it in the same file.
        if phy_offset % self._log.file_bytes == 0:
            return bool(self._log.files) and phy_offset <= self._log.files[-1].end_offset
        tail = self._log.record(phy_offset - _TAIL_BYTES, _TAIL_BYTES)
        return tail is not None and any(tail)

    # -- by store time ---------------------------------------------------------------------

    def _trusted_ms(self) -> int:
        """Return the store time up to which the files are trusted.

        A clean end leaves both times at the last message; then no margin is needed. If the log
        continues after that message, the end was not clean, and the scan is restarted with the
        margin.
        """
        checkpoint = self._checkpoint
        if not self._after_crash and checkpoint.physic_ms == checkpoint.logics_ms:
            self.assumed_last_ms = checkpoint.physic_ms
            return checkpoint.physic_ms
        return checkpoint.min_ms

    def by_time(self, limit_ms: int) -> int:
        """Return the position of the last message that is not newer than a time."""
        low = self._log.min_phy_offset
        if limit_ms <= 0:
            return low
        start = max((self._last_before(queue, limit_ms) for queue in self._table), default=low)
        return max(low, min(start, self._first_newer_file(limit_ms)))

    def _first_newer_file(self, limit_ms: int) -> int:
        """Return the start of the oldest file with a first message newer than a time."""
        for mapped in self._log.files:
            found = self._log.check(mapped.base_offset, check_crc=False)
            if (
                found is not None
                and found.state in {RecordState.RECORD, RecordState.DAMAGED}
                and found.store_timestamp_ms > limit_ms
            ):
                return mapped.base_offset
        return self._log.files[-1].end_offset

    def _last_before(self, queue: ConsumeQueue, limit_ms: int) -> int:
        low, high = queue.min_offset, queue.max_offset
        best = -1
        # A bisection, because a queue may have millions of entries.
        while low < high:
            middle = (low + high) // 2
            phy_offset, time_ms = self._proven(queue, middle)
            if time_ms <= limit_ms:
                best = max(best, phy_offset)
                low = middle + 1
            else:
                high = middle
        return best

    def _proven(self, queue: ConsumeQueue, queue_offset: int) -> tuple[int, int]:
        """Return offset and store time of an entry's message; `_NEVER_MS` if it does not match."""
        entry = queue.entry(queue_offset)
        if entry is None:
            return -1, _NEVER_MS
        # Retention deleted the message: it is older than any limit.
        if entry[0] < self._log.min_phy_offset:
            return -1, -1
        found = self._log.proven(queue.topic, queue_offset, entry[0], entry[1])
        return (-1, _NEVER_MS) if found is None else (entry[0], found.store_timestamp_ms)
