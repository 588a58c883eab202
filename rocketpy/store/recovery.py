"""Recovery: what the files really hold, whatever happened to the last process.

The commit log is the truth; queues are rebuilt from it. The start goes like this:

1. The checkpoint says up to which store time everything reached the disk. The last message that
   is older, and that proves itself (its bytes name their own place), is where reading begins.
2. Queue entries for messages from there on are erased, whatever they look like, and written
   again from the log. A page torn between two entries can leave one that looks whole and lies.
3. Reading goes to the end of the log. A damaged record in the middle costs only itself; a torn
   tail is cut and erased, so that stale bytes cannot look valid later.
4. When the log names a queue entry that the queue cannot have yet, the checkpoint vouched for
   too much: reading begins again further back. The same when its stamps are newer than the log.

Queue offsets never move: the place of a record that was lost in the middle is filled with the
entry of its successor, which readers show once.

Source: CommitLog.recoverNormally, recoverAbnormally; ConsumeQueue.recover (5.4.0), which trust
queue entries that look whole, and cut the log at the first damaged record.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from rocketpy.errors import QueueGapError
from rocketpy.proto.record import MIN_RECORD_BYTES
from rocketpy.proto.record_check import RecordState
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.commit_log import CommitLog
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue_table import ConsumeQueueTable, is_safe_topic
from rocketpy.store.dispatch import (
    Dispatcher,
    DispatchRequest,
    has_queue_entry,
    read_back,
)
from rocketpy.store.index_service import IndexService
from rocketpy.store.log_scan import LogScan

logger = logging.getLogger(__name__)

_ROUNDS: Final = 16


@dataclass(slots=True)
class RecoveryReport:
    """What recovery found.

    Attributes:
        start: physical offset where reading began.
        end: physical offset where the log ends now.
        record_count: records read.
        entry_count: queue entries written.
        damaged: physical offsets of damaged records.
        holes: physical offset and size of bytes that are no records.
    """

    start: int = 0
    end: int = 0
    record_count: int = 0
    entry_count: int = 0
    damaged: list[int] = field(default_factory=list)
    holes: list[tuple[int, int]] = field(default_factory=list)


class _ReadFurtherBack(Exception):  # noqa: N818 - a signal within this module
    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class Recovery:
    """One start of one store; used once."""

    def __init__(  # noqa: PLR0913 - what it needs, one by one
        self,
        log: CommitLog,
        table: ConsumeQueueTable,
        checkpoint: Checkpoint,
        index: IndexService | None,
        dispatchers: Iterable[Dispatcher],
        *,
        delays_ms: tuple[int, ...],
        check_crc: bool,
        after_crash: bool,
        power_cut: bool | None,
    ) -> None:
        self._log = log
        self._table = table
        self._checkpoint = checkpoint
        self._index = index
        self._dispatchers = tuple(dispatchers)
        self._delays_ms = delays_ms
        self._check_crc = check_crc
        self._after_crash = after_crash
        self._power_cut = power_cut
        self._touched: dict[tuple[str, int], int] = {}
        self._assumed_last_ms = 0
        self._last_ms = 0

    def run(self) -> RecoveryReport:
        """Make log, queues and index agree, and set the write positions.

        Raises:
            StoreError: the files cannot be made to agree.
            DiskFullError: no space to rebuild queues.
        """
        if not self._log.files:
            self._without_log()
            return RecoveryReport()
        start = self._trusted_start(self._trusted_ms())
        if self._after_crash:
            self._lower_queue_stamp()
        for _ in range(_ROUNDS):
            try:
                report = self._read_from(start)
                break
            except _ReadFurtherBack as further:
                logger.warning(
                    "queues lack entries the checkpoint vouched for: reading from phy_offset=%d",
                    further.start,
                )
                start = further.start
        else:
            report = self._read_from(self._log.min_phy_offset)
        self._finish(report)
        return report

    def _lower_queue_stamp(self) -> None:
        """Let the checkpoint vouch only for the queue entries that this start leaves alone.

        The others are about to be erased. Once the log's own stamp has moved on, a higher
        stamp would vouch for them again, though they may not be on disk by then.
        """
        checkpoint = self._checkpoint
        checkpoint.logics_ms = min(checkpoint.physic_ms, checkpoint.logics_ms)
        checkpoint.flush()

    def _without_log(self) -> None:
        for queue in self._table:
            if queue.max_offset:
                logger.warning(
                    "no commit log: queue is emptied: topic=%s queue_id=%d",
                    queue.topic,
                    queue.queue_id,
                )
            queue.destroy()
        self._checkpoint.distrust()
        self._log.set_end(0, 0)
        if self._index is not None:
            self._index.cut(0, 0)

    # -- where to begin ----------------------------------------------------------------------

    def _trusted_ms(self) -> int:
        """Return the store time up to which the files are trusted.

        A clean end leaves both stamps at the last message; then no margin is needed. Should the
        log go on after that, it was no clean end, and reading starts again with the margin.
        """
        checkpoint = self._checkpoint
        if not self._after_crash and checkpoint.physic_ms == checkpoint.logics_ms:
            self._assumed_last_ms = checkpoint.physic_ms
            return checkpoint.physic_ms
        return checkpoint.min_ms

    def _trusted_start(self, limit_ms: int) -> int:
        """Return the place of the last message that is not newer than a time."""
        start = self._log.min_phy_offset
        if limit_ms <= 0:
            return start
        for queue in self._table:
            start = max(start, self._last_before(queue, limit_ms))
        return start

    def _last_before(self, queue: ConsumeQueue, limit_ms: int) -> int:
        low, high = queue.min_offset, queue.max_offset
        best = -1
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
        """Return place and store time of an entry's message; far in the future without proof."""
        entry = queue.entry(queue_offset)
        if entry is None:
            return -1, 1 << 62
        if entry[0] < self._log.min_phy_offset:
            return -1, -1
        found = self._log.judge(entry[0])
        if (
            found is None
            or found.verdict is not RecordState.RECORD
            or found.size_bytes != entry[1]
            or found.queue_offset != queue_offset
            or found.topic != queue.topic.encode()
        ):
            return -1, 1 << 62
        return entry[0], found.store_timestamp_ms

    # -- reading -----------------------------------------------------------------------------

    def _read_from(self, start: int) -> RecoveryReport:
        for queue in self._table:
            queue.cut(start)
        self._touched.clear()
        index_from = 0
        if self._index is not None:
            if self._after_crash:
                self._index.begin_recovery(start, self._log.min_phy_offset)
            index_from = self._index.end_phy_offset + (0 if self._after_crash else 1)
        report = RecoveryReport(start=start)
        scan = LogScan(
            self._log,
            start,
            self._checkpoint.physic_ms,
            check_crc=self._check_crc,
            power_cut=self._power_cut,
        )
        delays_ms = self._delays_ms
        judged: dict[str, bool] = {}
        for phy_offset, found in scan:
            report.record_count += 1
            record = read_back(found, phy_offset, delays_ms)
            if record is None or record.queue_id < 0 or not self._is_safe(record.topic, judged):
                scan.damaged.append(phy_offset)
                continue
            if has_queue_entry(record.sys_flag) and not self._table.is_batch_topic(record.topic):
                report.entry_count += self._put_entry(record, start, scan)
            if phy_offset >= index_from and found.verdict is RecordState.RECORD:
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch(*record)
        if 0 < self._assumed_last_ms < scan.last_ms:
            self._assumed_last_ms = 0
            raise _ReadFurtherBack(min(start, self._trusted_start(self._checkpoint.min_ms)))
        newest_ms = min(self._checkpoint.physic_ms, self._checkpoint.logics_ms)
        if scan.last_ms < newest_ms and start > self._log.min_phy_offset:
            raise _ReadFurtherBack(self._log.min_phy_offset)
        report.end = scan.end
        report.damaged, report.holes = scan.damaged, scan.holes
        self._last_ms = scan.last_ms
        return report

    @staticmethod
    def _is_safe(topic: str, judged: dict[str, bool]) -> bool:
        """Judge each topic once; this is asked for every record."""
        safe = judged.get(topic)
        if safe is None:
            safe = judged[topic] = is_safe_topic(topic)
        return safe

    def _put_entry(self, record: DispatchRequest, start: int, scan: LogScan) -> int:
        queue = self._table.get_or_create(record.topic, record.queue_id)
        values = (record.phy_offset, record.size_bytes, record.tags_code)
        place = (record.topic, record.queue_id)
        if record.queue_offset < queue.max_offset:
            if queue.entry(record.queue_offset) == values:
                return 0
            if record.queue_offset != 0:
                scan.damaged.append(record.phy_offset)  # its header names another's place
                return 0
            queue.restart_at(0)  # the topic was deleted and made again
        try:
            written = queue.put_recovered(record.queue_offset, *values)
        except QueueGapError:
            written = self._across_gap(queue, record, start, scan)
        self._touched[place] = record.phy_offset
        return int(written)

    def _across_gap(
        self, queue: ConsumeQueue, record: DispatchRequest, start: int, scan: LogScan
    ) -> bool:
        """Handle a record whose predecessors have no entry."""
        min_phy_offset = self._log.min_phy_offset
        last_phy = self._touched.get((record.topic, record.queue_id), -1)
        if last_phy < 0 and start > min_phy_offset:  # the queue lost them, not the log
            entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
            back = entry[0] if entry is not None and min_phy_offset <= entry[0] < start else -1
            if back >= 0 and self._proven(queue, queue.max_offset - 1)[0] < 0:
                back = -1
            raise _ReadFurtherBack(back if back >= 0 else min_phy_offset)
        if last_phy < 0:
            queue.restart_at(record.queue_offset)
        else:
            missing = record.queue_offset - queue.max_offset
            if missing > (record.phy_offset - last_phy) // MIN_RECORD_BYTES:
                scan.damaged.append(record.phy_offset)  # more than the log had room for
                return False
            logger.warning(
                "lost messages leave a hole: topic=%s queue_id=%d queue_offset=%d count=%d",
                queue.topic,
                queue.queue_id,
                queue.max_offset,
                missing,
            )
            for queue_offset in range(queue.max_offset, record.queue_offset):
                queue.put_recovered(
                    queue_offset, record.phy_offset, record.size_bytes, record.tags_code
                )
        return queue.put_recovered(
            record.queue_offset, record.phy_offset, record.size_bytes, record.tags_code
        )

    # -- afterwards --------------------------------------------------------------------------

    def _finish(self, report: RecoveryReport) -> None:
        log = self._log
        log.set_end(report.end, self._last_ms)
        if self._after_crash:
            log.sync_from(report.start)
        for phy_offset in report.damaged:
            log.report_damage(phy_offset, "its body or header is not what was stored")
        for phy_offset, size_bytes in report.holes:
            logger.error("bytes that are no record: phy_offset=%d bytes=%d", phy_offset, size_bytes)
        log.verified_from = report.start if self._check_crc else report.end
        for queue in self._table:
            if queue.max_phy_end > report.end:
                queue.cut(report.end)
            queue.correct_min_offset(log.min_phy_offset)
            queue.next_offset = queue.max_offset
        if self._after_crash:  # entries were erased that the checkpoint may vouch for
            self._table.flush()
        self._table.load_batch(report.end)
        if self._index is not None:
            self._index.cut(report.end, log.min_phy_offset)
        newest_ms = min(self._checkpoint.physic_ms, self._checkpoint.logics_ms)
        if self._last_ms < newest_ms:
            self._checkpoint.distrust()
