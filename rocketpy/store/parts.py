"""Parts of a message store and how they are connected.

Source: DefaultMessageStore (5.4.0), its constructor and its list of services.
"""

import datetime as dt
import logging
import threading
from pathlib import Path

from rocketpy.errors import ResourceShortError
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import Service
from rocketpy.store.append.direct_append import DirectAppend
from rocketpy.store.append.dispatch import Dispatcher, DispatcherList, batch_arrivals
from rocketpy.store.append.dispatchers import ConsumeQueueDispatcher, IndexDispatcher
from rocketpy.store.append.flush import (
    FlushConsumeQueueService,
    FlushDeadlineService,
    FlushRealTimeService,
    GroupCommitService,
    LogFlusher,
)
from rocketpy.store.append.message_writer import MessageWriter
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.commit_log.prefetch import AllocateService, LogPrefetcher
from rocketpy.store.config import MessageStoreConfig, parse_delay_levels, parse_delete_when
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.consume_queue.queue_rebuild import QueueRebuilder
from rocketpy.store.deleted_topics import DeletedTopics, SweepDeletedService
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.index.index_service import IndexService
from rocketpy.store.read.message_reader import MessageReader
from rocketpy.store.recovery.index_catch_up import BulkReplay, IndexCatchUpService, LogSlices
from rocketpy.store.recovery.recovery import Recovery, RecoveryReport
from rocketpy.store.replication.log_reader import LogReader
from rocketpy.store.replication.replica_offsets import ReplicaOffsets
from rocketpy.store.replication.replica_writer import RecordBulk, ReplicaWriter
from rocketpy.store.retention import (
    CleanCommitLogService,
    CleanConsumeQueueService,
    DependentFiles,
    DiskRatios,
    RetentionPolicy,
)
from rocketpy.store.stats import SampleService, StoreStats
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import ReadOnlyLatch, WriteGate

logger: logging.Logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000


class StoreParts:
    """Parts of one store; each part gets only its own dependencies."""

    def __init__(self, config: MessageStoreConfig, clock: Clock, files: StoreFiles) -> None:
        root = Path(config.store_path_root_dir)
        self._config = config
        self._root = root
        self._files = files
        self._clock = clock
        self.append_lock: threading.Lock = threading.Lock()
        self.delays_ms: tuple[int, ...] = parse_delay_levels(config.message_delay_level)
        self.offsets: StoreOffsets = StoreOffsets(asks_flush=config.is_sync_flush)
        self.latch: ReadOnlyLatch = ReadOnlyLatch()
        self.gate: WriteGate = WriteGate(self.latch, is_slave=config.is_slave)
        # After the gate: waiters that learn of a failed flush ask the gate whether it is permanent.
        self.latch.add_listener(self.offsets.fail)
        self.log: CommitLog = CommitLog(config, files, self.offsets)
        self.table: ConsumeQueueTable = ConsumeQueueTable(config, files, self.append_lock)
        self.checkpoint: Checkpoint = Checkpoint(root / "checkpoint", files)
        self.stats: StoreStats = StoreStats(clock)
        self.index: IndexService | None = (
            self._make_index() if config.message_index_enable else None
        )
        self.deleted: DeletedTopics = DeletedTopics(root, files)
        self.rebuilder: QueueRebuilder = QueueRebuilder(self.table, self.log, self.deleted.covers)
        # Queues first: a message that is found by key must be readable.
        self.dispatcher_list: list[Dispatcher] = [ConsumeQueueDispatcher(self.rebuilder)]
        if self.index is not None:
            self.dispatcher_list.append(IndexDispatcher(self.index))
        self.dispatchers: DispatcherList = DispatcherList(
            self.dispatcher_list, self.offsets, self.append_lock
        )
        # Set later, because dispatchers and offsets refer to each other.
        self.offsets.on_visible = self.dispatchers.release
        self.cold_reads: LogPrefetcher = LogPrefetcher(self.log)
        self.reader: MessageReader = MessageReader(
            config, self.table, self.log, self.stats, clock, expect=self.cold_reads.expect
        )
        self.offsets.on_shown = self._show
        self.writer: MessageWriter = MessageWriter(
            config,
            clock,
            self.append_lock,
            gate=self.gate,
            log=self.log,
            offsets=self.offsets,
            table=self.table,
            dispatchers=self.dispatchers,
            stats=self.stats,
        )
        self.replicas: ReplicaOffsets = ReplicaOffsets(self.offsets, self.append_lock)
        self.log_reader: LogReader = LogReader(self.log, self.offsets)
        self.direct: DirectAppend = self._make_direct()
        self.replica: ReplicaWriter = self._make_replica()
        self.flusher: LogFlusher = LogFlusher(self.log, self.offsets, self.checkpoint, self.latch)
        self.group: GroupCommitService = GroupCommitService(self.flusher, self.offsets)
        self.flush_queues: FlushConsumeQueueService = self._make_flush_queues()
        self.clean_log: CleanCommitLogService = self._make_clean_log()
        self.services: list[Service] = self._make_services()

    def _make_flush_queues(self) -> FlushConsumeQueueService:
        return FlushConsumeQueueService(
            self.table,
            self.checkpoint,
            self.latch,
            self._config,
            offsets=self.offsets,
            flush_index=self._flush_full_index_files,
            append_lock=self.append_lock,
        )

    def _make_direct(self) -> DirectAppend:
        return DirectAppend(
            self.writer,
            log=self.log,
            offsets=self.offsets,
            dispatchers=self.dispatchers,
            index=self.index,
            stats=self.stats,
            answers_wait=self._config.answers_wait,
        )

    def _make_replica(self) -> ReplicaWriter:
        return ReplicaWriter(
            self.append_lock,
            gate=self.gate,
            log=self.log,
            offsets=self.offsets,
            dispatchers=self.dispatchers,
            rebuilder=self.rebuilder,
            bulk=RecordBulk(
                self.log, self.rebuilder, self.index, self.table.is_batch_topic, self.delays_ms
            ),
            delays_ms=self.delays_ms,
        )

    def _show(self, phy_offset: int) -> None:
        """Announce messages that were held back since the start."""
        for topic, queue_id, end, codes in self.reader.arrivals_from(phy_offset):
            self.dispatchers.announce(batch_arrivals(topic, queue_id, end, codes))

    def hold_back(self, report: RecoveryReport) -> None:
        """Hide messages that no replica had before the start; see `StoreOffsets`.

        Without a record of what consumers could read, that is what recovery has read: everything
        before it was visible at the last complete flush.

        Args:
            report: of the recovery.
        """
        start = self.checkpoint.visible_phy_offset or report.start
        self.offsets.hold_back(start)
        # A record beyond the end of the log would cover messages that are stored there later.
        self.checkpoint.visible_phy_offset = self.offsets.confirmed
        self.checkpoint.flush()

    def _make_index(self) -> IndexService:
        return IndexService(
            self._root / "index",
            max_hash_slots=self._config.max_hash_slot_num,
            max_index_count=self._config.max_index_num,
            clock=self._clock,
            files=self._files,
            on_file_flushed=self.checkpoint.index_reached,
            query_max=self._config.max_msgs_num_batch,
        )

    def _make_clean_log(self) -> CleanCommitLogService:
        return CleanCommitLogService(
            self.log,
            _retention_policy(self._config),
            clock=self._clock,
            disk_ratios=self.disk_ratios,
            local_hour=_local_hour,
            on_disk_full=self.gate.set_disk_full,
            secure=self._secure_oldest,
        )

    def _secure_oldest(self) -> bool:
        """Flush the queue entries of the oldest log file; return False if that failed."""
        oldest = self.log.files[0].end_offset
        return self.checkpoint.queues_on_disk_to >= oldest or self.flush_queues.flush(thorough=True)

    def configure(self, config: MessageStoreConfig) -> None:
        """Apply changed settings."""
        self.clean_log.policy = _retention_policy(config)

    def _make_services(self) -> list[Service]:
        config = self._config
        services: list[Service] = [AllocateService(self.log, self.gate), self.cold_reads]
        if config.is_sync_flush:
            services.append(self.group)
        else:
            services.append(FlushRealTimeService(self.flusher, config))
        if config.answers_wait:
            services.append(FlushDeadlineService(self.offsets))
        services += [self.flush_queues, SampleService(self.stats), self.clean_log]
        dependents: list[DependentFiles] = [self.table, self.deleted]
        if self.index is not None:
            dependents.append(self.index)
            slices = LogSlices(self.log, self.offsets, self.deleted, self.delays_ms)
            runs = BulkReplay(self.index, self.log, self.offsets, self.deleted)
            services.append(
                IndexCatchUpService(self.index, slices.read, self.append_lock, runs=runs)
            )
        services.append(
            CleanConsumeQueueService(
                lambda: self.log.min_phy_offset,
                dependents,
                interval_ms=config.clean_resource_interval,
            )
        )
        services.append(SweepDeletedService(self.deleted))
        return services

    def recovery(self, *, after_crash: bool, power_cut: bool | None) -> Recovery:
        """Create the recovery of the loaded files."""
        return Recovery(
            self.log,
            self.table,
            self.checkpoint,
            rebuilder=self.rebuilder,
            deleted=self.deleted,
            index=self.index,
            dispatchers=self.dispatcher_list,
            delays_ms=self.delays_ms,
            check_crc=self._config.check_crc_on_recover,
            after_crash=after_crash,
            power_cut=power_cut,
        )

    def disk_ratios(self) -> DiskRatios:
        """Return the used part of the file systems of commit log and queues."""
        log = self.log.directory
        return DiskRatios(
            self._used_ratio(log), self._used_ratio(self._root), str(log), str(self._root)
        )

    def _used_ratio(self, directory: Path) -> float:
        path = directory if self._files.exists(directory) else self._root
        try:
            return self._files.disk_usage(path).used_ratio
        except OSError:
            # Unknown: below every limit, so that a failed query deletes no messages.
            return -1.0

    def _flush_full_index_files(self) -> None:
        if self.index is not None:
            self.index.flush_full_files()

    def delete_expired_now(self) -> None:
        """Delete expired commit log files soon, regardless of the hour."""
        self.clean_log.delete_now()

    def flush_all(self, now_ms: int) -> bool:
        """Flush everything before closing; return False if that failed."""
        flushed = self.flusher.flush()
        # Answers the waiting senders before the slower flush of the queues.
        self.group.step(now_ms)
        # The log first: queue entries on disk must not refer to bytes that are not.
        flushed = flushed and self.flush_queues.flush(thorough=True)
        if not flushed or self.index is None:
            return flushed and not self.dispatchers.pending_count
        try:
            self.index.flush()
        except OSError as error:
            self.latch.trip("flush of the index", error)
            return False
        except ResourceShortError:
            return False
        # Not a clean end: the next start must not trust the index up to the last message.
        if self.index.missing_from is not None:
            logger.info("index incomplete at close, the next start completes it")
            return False
        return not self.dispatchers.pending_count

    def close(self) -> None:
        """Close all files."""
        self.log.close()
        self.checkpoint.close()
        self.table.close()
        if self.index is not None:
            try:
                self.index.close()
            except (OSError, ResourceShortError) as error:
                logger.error("index close failed: error=%s", error)  # noqa: TRY400 - known cause


def _retention_policy(config: MessageStoreConfig) -> RetentionPolicy:
    return RetentionPolicy(
        file_reserved_ms=config.file_reserved_time * _HOUR_MS,
        delete_hours=parse_delete_when(config.delete_when),
        max_used_ratio=config.disk_max_used_space_ratio / 100,
        clean_forcibly_ratio=config.disk_space_clean_forcibly_ratio / 100,
        warning_ratio=config.disk_space_warning_level_ratio / 100,
        clean_forcibly=config.clean_file_forcibly_enable,
        delete_batch_max=config.delete_file_batch_max,
        delete_interval_ms=config.delete_commit_log_files_interval,
        round_interval_ms=config.clean_resource_interval,
    )


def _local_hour(time_ms: int) -> int:
    return dt.datetime.fromtimestamp(time_ms / 1_000).astimezone().hour
