"""Recovery: restores a consistent store after any end of the last process.

The commit log is authoritative; queues are rebuilt from it:

1. Reading starts where the checkpoint's coverage ends (`recovery_start`).
2. Queue entries of later messages are erased without regard to their content and rewritten from the
   log, because a page torn between two entries can leave one that looks valid but is wrong.
3. Reading continues to the end of the log (`log_scan`). A damaged record in the middle costs only
   itself; a torn tail is removed and erased, so that stale bytes cannot look valid later.
4. If the log contains a queue offset that its queue cannot have yet (`queue_rebuild`), the
   checkpoint covered too much: reading restarts further back.

Invariants that make a power cut or kill *during* recovery harmless:
    - before anything is erased, a checkpoint that does not cover it is on disk;
    - all bytes read from the log are flushed before the store opens: those of a killed process may
      be in the page cache only;
    - the checkpoint covers rebuilt queue entries only after their later flush.

Source: CommitLog.recoverNormally, recoverAbnormally; ConsumeQueue.recover (5.4.0), which trust
queue entries that look valid, and end the log at the first damaged record.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.append.dispatch import Dispatcher, read_back
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable, is_safe_topic
from rocketpy.store.consume_queue.queue_rebuild import EntriesLost, QueueRebuilder
from rocketpy.store.deleted_topics import DeletedTopics
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.recovery.bulk_recovery import BulkRecovery
from rocketpy.store.recovery.foreign_log import check_log_of_queues
from rocketpy.store.recovery.log_scan import LogScan, TrustedRange
from rocketpy.store.recovery.missing_files import index_files_before_gap
from rocketpy.store.recovery.recovery_start import RecoveryStart

logger: logging.Logger = logging.getLogger(__name__)

_ROUNDS: Final = 16
_NEVER_MS: Final = 1 << 62


@dataclass(slots=True)
class RecoveryReport:
    """Findings of a recovery.

    Attributes:
        after_crash: whether the last process did not close the store.
        start: physical offset of the first record read.
        end: physical offset of the end of the log.
        record_count: records read.
        entry_count: queue entries written.
        damaged: physical offsets of damaged records.
        holes: physical offset and size of skipped bytes.
        started_empty: whether a missing commit log was replaced by an empty one.
    """

    after_crash: bool = False
    start: int = 0
    end: int = 0
    record_count: int = 0
    entry_count: int = 0
    damaged: list[int] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)
    started_empty: bool = False


class Recovery:
    """Recovery of one start; used once."""

    def __init__(  # noqa: PLR0913 - what it needs, one by one
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        *,
        rebuilder: QueueRebuilder,
        deleted: DeletedTopics,
        index: IndexService | None,
        dispatchers: Iterable[Dispatcher],
        delays_ms: tuple[int, ...],
        check_crc: bool,
        after_crash: bool,
        power_cut: bool | None,
    ) -> None:
        """Prepare a recovery of loaded files.

        Args:
            log: the commit log.
            table: the queues.
            checkpoint: the checkpoint of both.
            rebuilder: writes queue entries for records of the log.
            deleted: topics whose records are skipped.
            index: the message index.
            dispatchers: called with the records read: the queues with all of them, the others from
                the end of the index on.
            delays_ms: delay levels.
            check_crc: whether to check bodies.
            after_crash: whether the store was not closed.
            power_cut: whether the machine was restarted; None if unknown.
        """
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._rebuilder = rebuilder
        self._deleted = deleted
        self._index = index
        self._dispatchers = tuple(dispatchers)
        self._delays_ms = delays_ms
        self._check_crc = check_crc
        self._after_crash = after_crash
        self._power_cut = power_cut
        self._last_ms = 0
        self._start = RecoveryStart(
            log,
            table,
            checkpoint,
            after_crash=after_crash,
            deleted=deleted,
        )
        self._had_queues = table.is_there
        self._kept_entries = 0
        self._places: dict[ConsumeQueue, int] = {}
        self._missed: tuple[int, int] | None = None

    def run(self) -> RecoveryReport:
        """Make log, queues and index agree, and set the write positions.

        Raises:
            StoreFormatError: the log is that of another store.
            StoreError: the files cannot be made to agree.
            DiskFullError: no space to rebuild queues.
            OSError: the disk failed.
        """
        if not self._log.files:
            self._without_log()
            return RecoveryReport(after_crash=self._after_crash)
        covers = self._deleted.covers
        if self._power_cut is False:
            check_log_of_queues(self._table, self._log, covers)
        if self._index is not None:
            self._index.keep(index_files_before_gap(self._index.headers, self._log, covers))
        start = self._start.find()
        # Each round starts further back; the limit guards against a log that keeps contradicting.
        for _ in range(_ROUNDS):
            try:
                report = self._read_from(start)
                break
            except EntriesLost as lost:
                start = lost.start
                logger.warning("queue entries missing, scan restarted: phy_offset=%d", start)
        else:
            # The complete log is the last resort: no earlier entry can be missing.
            report = self._read_from(self._log.min_phy_offset)
        self._keep_places()
        self._finish(report)
        return report

    def _without_log(self) -> None:
        # Flushed before anything is removed: a crash in between must not trust the old checkpoint.
        self._checkpoint.distrust()
        self._checkpoint.flush()
        for queue in self._table:
            if queue.max_offset:
                logger.warning(
                    "queue emptied, no commit log: topic=%s queue_id=%d",
                    queue.topic,
                    queue.queue_id,
                )
            queue.destroy()
        self._deleted.clear()
        self._log.set_end(0, 0)
        if self._index is not None:
            self._index.cut(0, 0)
        self._checkpoint.has_offsets = True

    # -- reading -----------------------------------------------------------------------------

    def _read_from(self, start: int) -> RecoveryReport:
        checkpoint = self._checkpoint
        # The checkpoint must not cover later index files in place of lost ones.
        if self._index is not None:
            checkpoint.lower_index(*self._index.on_disk_to)
        # The entries after `start` are about to be erased: no checkpoint on disk may cover them.
        checkpoint.lower(checkpoint.log_phy_offset, start, self._store_ms_at(start))
        self._look_for_missing(start)
        for queue in self._table:
            # Also valid-looking entries go: only the checkpoint tells which ones reached the disk.
            queue.cut(start)
        for queue in self._start.to_remake:
            queue.restart_at(0)
        self._kept_entries = self._table.entry_count({})
        self._rebuilder.begin(start)
        index_from = 0
        if self._index is not None:
            indexed_to = self._indexed_to(self._index)
            self._index.begin_recovery(start, indexed_to)
            index_from = indexed_to
        runs = BulkRecovery(
            self._rebuilder,
            self._table.is_batch_topic,
            self._index,
            index_from=index_from,
            check_crc=self._check_crc,
            delays_ms=self._delays_ms,
        )
        scan = LogScan(
            self._log,
            start,
            TrustedRange(
                checkpoint.physic_ms, checkpoint.log_phy_offset if checkpoint.has_offsets else None
            ),
            check_crc=self._check_crc,
            power_cut=self._power_cut,
            runs=runs if self._knows_all_dispatchers else None,
        )
        report = self._read(scan, start, index_from)
        report.record_count += runs.record_count
        if not checkpoint.has_offsets:
            self._check_stamps(scan, start)
        self._last_ms = scan.last_ms or checkpoint.physic_ms
        return report

    @property
    def _knows_all_dispatchers(self) -> bool:
        """Whether queues and index are the only dispatchers, so that bulk recovery works."""
        return len(self._dispatchers) == (1 if self._index is None else 2)

    def _look_for_missing(self, start: int) -> None:
        """Restart the scan at the log's start if the queues are shorter than the checkpoint says.

        Raises:
            EntriesLost: entries are missing.
        """
        expected, self._start.entries_expected = self._start.entries_expected, None
        if expected is None:
            return
        vouched_to, count = expected
        for queue in self._table:
            queue.cut(vouched_to)
        self._places = {queue: queue.max_offset for queue in self._start.to_remake}
        if (missing := count - self._table.entry_count({})) > 0:
            logger.error("queue files missing: entries=%d", missing)
            self._missed = expected
            # A shorter queue can only be rebuilt from the beginning of the log.
            if start > self._log.min_phy_offset:
                raise EntriesLost(self._log.min_phy_offset)

    def _keep_places(self) -> None:
        """Restore the end of queues that lost files, so that no queue offset is assigned twice.

        Raises:
            StoreFormatError: the end is unknown.
        """
        for queue, place in self._places.items():
            if queue.max_offset < place:
                logger.error(
                    "messages lost, queue continues: topic=%s queue_id=%d queue_offset=%d",
                    queue.topic,
                    queue.queue_id,
                    place,
                )
                queue.keep_place(place)
                self._kept_entries += place
        if self._missed is None or not self._had_queues:
            return
        vouched_to, count = self._missed
        missing = count - sum(queue.entries_before(vouched_to) for queue in self._table)
        if missing <= 0:
            return
        # The start fails: nothing that the operator may restore is given up.
        checkpoint = self._checkpoint  # the next start must find the same
        self._table.flush()
        checkpoint.queues_phy_offset, checkpoint.entry_count = vouched_to, count
        checkpoint.flush()
        raise StoreFormatError(
            f"files of consume queues are missing, {missing} entries in all, and the log does not "
            f"hold their messages any more. Bring the files back below {self._table.directory}; "
            f"or remove {self._table.directory.parent / 'checkpoint'}, and queues without files "
            "begin at 0 again"
        )

    def _indexed_to(self, index: IndexService) -> int:
        """Return the end of the indexed part of the log.

        After a crash the last message may lack some of its keys, also if they started the next file
        and that one is missing. After a clean stop nothing else is missing, unless the index was
        removed or disabled for some time.
        """
        low, last_phy = self._log.min_phy_offset, index.end_phy_offset
        found = self._log.check(last_phy, check_crc=False) if last_phy >= low else None
        # The last message may lack keys; putting them again is harmless.
        if self._after_crash or found is None:
            return max(last_phy, low)
        last = read_back(found, last_phy, self._delays_ms)
        if last is not None and index.lacks_keys_of(last):
            return last_phy
        end = last_phy + found.size_bytes
        behind = self._log.check(end, check_crc=False)
        is_blank = behind is not None and behind.state is RecordState.BLANK
        return self._log.next_file_offset(end) if is_blank else end

    def _store_ms_at(self, start: int) -> int:
        """Return the store time of the first record to read."""
        found = self._log.check(start, check_crc=False)
        if found is not None and found.state is RecordState.BLANK:
            found = self._log.check(start + found.size_bytes, check_crc=False)
        if found is None or found.state is RecordState.EMPTY:
            return _NEVER_MS
        return 0 if found.state is RecordState.BROKEN else found.store_timestamp_ms

    def _read(self, scan: LogScan, start: int, index_from: int) -> RecoveryReport:
        """Dispatch every record from an offset on to queues and index."""
        report = RecoveryReport(self._after_crash, start)
        safe_topics: dict[str, bool] = {}
        queues, *others = self._dispatchers
        for phy_offset, found in scan:
            report.record_count += 1
            request = read_back(found, phy_offset, self._delays_ms)
            if (
                request is None
                or request.queue_id < 0
                or not self._is_safe(request.topic, safe_topics)
            ):
                # A record with an impossible queue would create files outside of the store's
                # layout.
                scan.damaged.append(phy_offset)
                continue
            # Entries of batch queues have another layout and are kept unchanged.
            if not self._table.is_batch_topic(request.topic):
                queues.dispatch(request)
            # Damaged records keep their queue offset, but are not indexed.
            if phy_offset >= index_from and found.state is RecordState.RECORD:
                for dispatcher in others:
                    dispatcher.dispatch(request)
        report.end = scan.end
        report.entry_count = self._rebuilder.entry_count
        report.damaged = sorted({*scan.damaged, *self._rebuilder.damaged})
        report.holes = scan.holes
        return report

    def _check_stamps(self, scan: LogScan, start: int) -> None:
        """Restart the scan further back if only store times are known and do not match the log."""
        assumed_last_ms, self._start.assumed_last_ms = self._start.assumed_last_ms, 0
        if 0 < assumed_last_ms < scan.last_ms:
            raise EntriesLost(min(start, self._start.by_time(self._checkpoint.min_ms)))
        self._start.assumed_last_ms = assumed_last_ms
        newest_ms = min(self._checkpoint.physic_ms, self._checkpoint.logics_ms)
        if scan.last_ms < newest_ms and start > self._log.min_phy_offset:
            raise EntriesLost(self._log.min_phy_offset)

    @staticmethod
    def _is_safe(topic: str, safe_topics: dict[str, bool]) -> bool:
        """Return whether a topic name is safe; cached, because it is called for every record."""
        safe = safe_topics.get(topic)
        if safe is None:
            safe = safe_topics[topic] = is_safe_topic(topic)
        return safe

    # -- afterwards --------------------------------------------------------------------------

    def _finish(self, report: RecoveryReport) -> None:
        log, checkpoint = self._log, self._checkpoint
        if checkpoint.log_phy_offset > report.end:
            logger.error(
                "log shorter than flushed: end=%d flushed=%d", report.end, checkpoint.log_phy_offset
            )
        checkpoint.physic_ms = min(checkpoint.physic_ms, self._last_ms)
        # Before the tail of the log is erased.
        checkpoint.lower(report.end, report.end, self._last_ms)
        self._deleted.cut(report.end)
        log.set_end(report.end, self._last_ms)
        # Before the store opens: consumers must not read bytes that a power cut could still take.
        log.sync_from(report.start)
        for phy_offset in report.damaged:
            log.report_damage(phy_offset, "its body or header is not what was stored")
        for phy_offset, size_bytes in report.holes:
            logger.error("bytes skipped, no record: phy_offset=%d bytes=%d", phy_offset, size_bytes)
        log.verified_from = report.start if self._check_crc else report.end
        self._rebuilder.begin(log.min_phy_offset)
        min_phy_offset = log.min_phy_offset
        for queue in self._table:
            # Entries can reach the disk before the messages that they point to.
            if queue.max_phy_end > report.end:
                queue.cut(report.end)
            queue.correct_min_offset(min_phy_offset)
            # The next message continues exactly at the rebuilt end.
            queue.next_offset = queue.max_offset
        self._table.load_batch(report.end)
        if self._index is not None:
            self._index.cut(report.end, log.min_phy_offset)
            checkpoint.lower_index(*self._index.on_disk_to)
        if not checkpoint.has_offsets:
            checkpoint.has_offsets = True
            checkpoint.queues_phy_offset = report.start
        if checkpoint.queues_phy_offset == report.start:
            checkpoint.entry_count = self._kept_entries
        checkpoint.log_phy_offset = report.end
        checkpoint.flush()
