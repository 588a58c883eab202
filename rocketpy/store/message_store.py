"""Message store: put, get and look up messages; facade over commit log, queues and index.

One lock orders appends: under it a message gets its store time, its physical offset and queue
offset, and (without SYNC_FLUSH) its entries in queue and index. Everything else runs concurrently.

Life: `open` (lock, load, recover), `start` (threads), work, `close` (flush, checkpoint,
remove the abort file). A simulation leaves `start` out and calls `step` of `services`.

Source: DefaultMessageStore (5.4.0).
"""

import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import ResourceShortError
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import Service, ServiceRunner, ServiceThread
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.consume_queue_table import is_safe_topic
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import DiskUsage, FileLock, StoreFiles
from rocketpy.store.parts import StoreParts
from rocketpy.store.read.message_reader import MessageReader
from rocketpy.store.recovery.foreign_store import check_kind
from rocketpy.store.recovery.missing_files import (
    check_log,
    check_place,
    has_log,
    is_log_blank,
    is_log_lost,
)
from rocketpy.store.recovery.recovery import RecoveryReport
from rocketpy.store.replication.log_identity import LogIdentity
from rocketpy.store.results import (
    GetMessageResult,
    MessageFilter,
    PutBatch,
    PutMessage,
    PutMessageResult,
    QueryIndexResult,
)

logger: logging.Logger = logging.getLogger(__name__)


class MessageStore:
    """Store directory. All methods except open, start and close are safe from any thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        *,
        clock: Clock,
        files: StoreFiles | None = None,
        new_log_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        """Build a store without touching files; `open` does."""
        self.config: MessageStoreConfig = config
        self._clock = clock
        self._monotonic_ms = clock.monotonic_ms
        self._files: StoreFiles = RealFiles() if files is None else files
        self._root = Path(config.store_path_root_dir)
        parts = self._parts = StoreParts(config, clock, self._files)
        self._append_lock, self._gate, self._offsets = parts.append_lock, parts.gate, parts.offsets
        self._log, self._table, self._index = parts.log, parts.table, parts.index
        self._writer, self._stats = parts.writer, parts.stats
        self.direct: Final = parts.direct
        self.reader: MessageReader = parts.reader
        self.max_offset: Final = parts.reader.max_offset
        self.recent_part: Final = parts.reader.recent_part
        self.replicas: Final = parts.replicas
        self.rebuilder: Final = parts.rebuilder
        self.log_part: Final = parts.log_reader.part
        self.log_samples: Final = parts.log_reader.samples
        self.first_difference: Final = parts.log_reader.first_difference
        self.topics: Final = parts.table.topics
        self.is_batch_topic: Final = parts.table.is_batch_topic
        self.queue_count_from: Final = parts.table.queue_count_from
        self._identity = LogIdentity(self._root, self._files, new_log_id)
        self._locks: list[FileLock] = []
        self._threads: list[ServiceRunner] = []
        self.recovery: RecoveryReport = RecoveryReport()

    # -- life ------------------------------------------------------------------------------

    def open(
        self, *, start_empty: bool = False, hold_back: bool = False, has_controller: bool = False
    ) -> None:
        """Lock the directory, load it, and recover from the last process.

        Args:
            start_empty: start with an empty commit log if it is missing.
            hold_back: let consumers wait for messages that no replica had (SYNC_MASTER).
            has_controller: a controller has given the role in which the store is opened.

        Raises:
            StoreLockedError: another process uses the directory, or another store its log.
            StoreFormatError: files that do not fit this configuration.
            DiskFullError: no space to recover.
        """
        check_kind(self._root, self._files, has_controller=has_controller)
        if not (start_empty or has_controller):  # a replica copies its messages
            check_place(self._root, self._log.directory, self._files)
        self._files.make_directories(self._root)
        # Before anything is read: another process may be writing.
        self._locks.append(self._files.lock(self._root / "lock"))
        try:
            self._load(start_empty=start_empty, has_controller=has_controller)
            if hold_back:
                self._parts.hold_back(self.recovery)
        except BaseException:
            self._let_go()
            raise
        # Last: no put may happen before recovery is complete.
        self._gate.set_open(True)

    def _load(self, *, start_empty: bool, has_controller: bool) -> None:
        parts, log, checkpoint = self._parts, self._log, self._parts.checkpoint
        after_crash, power_cut = self._last_end()
        checkpoint.load()
        log.queue.check_no_directories()  # before loading, which removes empty files
        had_log = has_log(log.directory, self._files)
        started_empty = is_log_blank(log.directory, self._files) and is_log_lost(
            self._root, log.directory, self._files, checkpoint, power_cut, start_empty=start_empty
        )
        # Before the check, whose advice must not be followed while another store uses the log.
        self._locks.append(self._files.lock_directory(log.directory))
        if had_log and not started_empty:
            check_log(self._root, log, self._files, checkpoint)
        log.load()
        self._table.load(after_crash=after_crash)
        parts.deleted.load()
        if self._index is not None:
            self._index.load(after_crash, checkpoint.index_ms, checkpoint.index_phy_offset)
        self.recovery = parts.recovery(after_crash=after_crash, power_cut=power_cut).run()
        self.recovery.started_empty = started_empty
        mark = f"{os.getpid()}\n{self._files.boot_id()}"
        # After recovery: until then the mark of the previous process must stay.
        self._files.write_bytes(self._root / "abort", mark.encode())
        is_copy = has_controller and self.max_phy_offset > self.min_phy_offset
        is_other = started_empty or not (had_log or has_controller)
        self._identity.open(is_slave=self.config.is_slave, is_copy=is_copy, is_other=is_other)
        logger.info(
            "store opened: path=%s after_crash=%s min_phy_offset=%d max_phy_offset=%d records=%d",
            self._root,
            after_crash,
            self.min_phy_offset,
            self.max_phy_offset,
            self.recovery.record_count,
        )

    def _last_end(self) -> tuple[bool, bool | None]:
        """Return whether the last process crashed, and whether the machine did (None: unknown)."""
        # The abort file holds the process id, like Apache's, and the boot id.
        path = self._root / "abort"
        if not self._files.exists(path):
            return False, False
        _, _, boot_id = self._files.read_bytes(path).partition(b"\n")
        return True, None if not boot_id else boot_id != self._files.boot_id().encode()

    @property
    def services(self) -> Sequence[Service]:
        """Background services, for a simulation to drive."""
        return self._parts.services

    def start(self, run: Callable[[Service, Clock], ServiceRunner] = ServiceThread) -> None:
        """Run the services.

        Args:
            run: creates the runner of a service; by default a thread for each.
        """
        assert self._gate.is_open, "open comes first"
        self._threads = [run(each, self._clock) for each in self.services]
        by_name = dict(zip((each.name for each in self.services), self._threads, strict=True))
        self._log.on_step = by_name["AllocateService"].wake
        self._parts.cold_reads.wake = by_name[self._parts.cold_reads.name].wake
        if self._parts.group in self.services:
            self._parts.group.wake = by_name[self._parts.group.name].wake
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the services, flush everything and release the directory; idempotent."""
        if not self._gate.is_open:
            return
        # A put in progress finishes first; later ones see the closed gate.
        with self._append_lock:
            self._gate.set_open(False)
        # The threads are about to stop and must not be woken any more.
        self._log.on_step = self._parts.group.wake = self._parts.cold_reads.wake = lambda: None
        for thread in reversed(self._threads):
            thread.stop()
        self._threads = []
        try:
            if self._parts.flush_all(self._monotonic_ms()):
                self._log.drop_spare()
                # Only after a successful flush: its absence means a clean stop.
                self._files.remove(self._root / "abort")
                self._files.sync_directories()
        except (OSError, ResourceShortError) as error:  # the next start recovers
            logger.error("store close failed: error=%s", error)  # noqa: TRY400 - known cause
        finally:
            self._offsets.fail()  # no more flushes: fail current and later waiters
            self._let_go()

    def _let_go(self) -> None:
        self._parts.close()
        # Queues of a closed store must not be used by a store opened later.
        self._writer.forget_topics()
        while self._locks:
            self._locks.pop().close()

    def configure(self, config: MessageStoreConfig) -> None:
        """Apply settings that may change while the store runs; the others stay as opened.

        Args:
            config: the store's settings with changed live ones.
        """
        self.config = config
        self._writer.configure(config)
        self._parts.configure(config)

    # -- put -------------------------------------------------------------------------------

    @property
    def on_arrival(self) -> Callable[[str, int, int, int], None] | None:
        """Listener called with (topic, queue id, next queue offset, tags code) of new messages.

        It runs on the putting or the flushing thread, without a lock.
        """
        return self._parts.dispatchers.on_arrival

    @on_arrival.setter
    def on_arrival(self, listener: Callable[[str, int, int, int], None] | None) -> None:
        self._parts.dispatchers.on_arrival = listener

    @property
    def store_host(self) -> bytes:
        """IP address (4 or 16 bytes) and i32 port in records; set it before the first put."""
        return self._writer.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._writer.store_host = host

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Append one message.

        Returns:
            PUT_OK and the position, or the reason: SERVICE_NOT_AVAILABLE (closed, read-only, disk
            nearly full), OS_PAGE_CACHE_BUSY, MESSAGE_ILLEGAL (topic, queue id, body over
            `maxMessageSize`, a number out of range), PROPERTIES_SIZE_EXCEEDED, or
            CREATE_MAPPED_FILE_FAILED (see `shortage`). Then nothing is stored.
        """
        return self._writer.put(message)

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append messages of one queue contiguously, all of them or none.

        Returns:
            See `put_message`; an empty batch, or one larger than `maxMessageSize`, is illegal.
        """
        return self._writer.put_batch(batch)

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append a part of another store's log exactly at the end of this one.

        Arguments, result and errors are those of `ReplicaWriter.append_raw`.
        """
        return self._parts.replica.append_raw(phy_offset, data)

    def drop_incomplete(self) -> None:
        """Remove the appended bytes behind the last record: the rest may come from another log."""
        if self._parts.replica.drop_incomplete():
            # Before new records overwrite a part of them.
            self.flush_log()

    @property
    def write_end(self) -> int:
        """Offset of the next `append_raw`; ahead of `max_phy_offset` within a record."""
        return self._log.write_end

    @property
    def log_identity(self) -> str:
        """Random id that a master and its slaves share; empty if the log has none."""
        return self._identity.text

    def adopt_log_identity(self, text: str) -> None:
        """Take over the identity of the master; see `LogIdentity.adopt`."""
        self._identity.adopt(text)

    # -- durability ------------------------------------------------------------------------

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back when the log is as durable as the configuration requires, up to an offset.

        With ASYNC_FLUSH and without replicas that is at once. With SYNC_FLUSH it is after the
        flush, on a SYNC_MASTER when enough replicas have it. The argument is False if the flush
        failed or took longer than `syncFlushTimeout`, or the replicas longer than `slaveTimeout`.

        Args:
            phy_end: `PutMessageResult.phy_end`.
            callback: called once, on this or another thread.
        """
        now_ms, replica_ms = self._monotonic_ms(), self.replicas.timeout_ms
        deadline_ms = now_ms + self.config.sync_flush_timeout
        self._offsets.wait_for(
            phy_end, deadline_ms, callback, replica_deadline_ms=now_ms + replica_ms
        )

    def when_flushed(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Like `when_durable`, but without waiting for replicas: for what may be repeated."""
        deadline_ms = self._monotonic_ms() + self.config.sync_flush_timeout
        self._offsets.wait_for_flush(phy_end, deadline_ms, callback)

    def is_confirmed(self, phy_end: int) -> bool:
        """Return whether enough replicas have the log up to an offset; True if none is needed."""
        return self._offsets.confirmed >= phy_end

    def flush_log(self) -> bool:
        """Flush everything appended so far; return False if that failed."""
        return self._parts.flusher.flush()

    # -- get -------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002 - the interface's word
        *,
        may_join: bool = False,
    ) -> GetMessageResult:
        """Read messages of a queue from an offset on.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            queue_offset: first entry to read.
            max_count: most messages; at least one is returned if there is one.
            max_bytes: most bytes of records, for all but the first.
            filter: selects messages; None selects all.
            may_join: adjacent records may be returned as one buffer.
        """
        wanted = topic, queue_id, queue_offset, max_count, max_bytes
        return self.reader.get(*wanted, filter, may_join=may_join)

    def look_message(self, phy_offset: int) -> memoryview | None:
        """Return the checked, visible record that starts exactly at an offset, or None."""
        # The offset comes from the network: only a complete, visible, intact record is returned.
        return self._log.intact_record(phy_offset, self._offsets.visible)

    def look_appended(self, phy_offset: int) -> memoryview | None:
        """Like `look_message`, but also return a record that waits for a flush or replicas."""
        return self._log.intact_record(phy_offset, self._offsets.appended)

    def query_index(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
        *,
        accept: Callable[[int], bool] | None = None,
    ) -> QueryIndexResult:
        """Find messages by key.

        Args:
            topic: stored topic.
            key: a unique key, one of the keys, or with `index_type` "T" a tag.
            max_count: most offsets.
            begin_ms: earliest store time.
            end_ms: latest store time.
            index_type: see `key`.
            accept: returns whether the record at a physical offset has the key; None accepts every
                record with the key's hash, which other keys may have as well.
        """
        if self._index is None:
            return QueryIndexResult([])
        covers = self._parts.deleted.covers

        def is_wanted(phy_offset: int) -> bool:
            # The index still holds entries of deleted topics.
            return not covers(topic, phy_offset) and (accept is None or accept(phy_offset))

        times = begin_ms, end_ms
        return self._index.query(topic, key, max_count, *times, index_type, accept=is_wanted)

    def set_unread_by(self, unread_by: Callable[[int], Collection[str]]) -> None:
        """Set the function that names the groups with unread messages before a file's end."""
        self._parts.clean_log.unread_by = unread_by

    def queue_offset_from(self, topic: str, queue_id: int, phy_offset: int) -> int:
        """Return the first queue offset whose message is at or after a physical offset; or -1."""
        queue = self._table.get(topic, queue_id)
        return -1 if queue is None else queue.entries_before(phy_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset, -1 if the queue does not exist."""
        queue = self._table.get(topic, queue_id) or self._table.get_batch(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False
    ) -> int:
        """Find a queue offset by store time.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            timestamp_ms: time to find.
            upper: find the last message not after the time instead of the first not before it.
        """
        queue = self._table.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, self._log.store_time_ms, upper=upper)

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of one message, -1 if it does not exist."""
        queue = self._table.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue_offset)
        if queue is None or entry is None or queue_offset < queue.min_offset:
            return -1
        return self._log.store_time_ms(entry[0], entry[1])

    def earliest_store_time_ms(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time of the oldest message of a queue, or of all; -1 if none."""
        if topic is not None:
            low = self.min_offset(topic, queue_id)
            return -1 if low < 0 else self.store_time_ms(topic, queue_id, low)
        for _, found in self._log.scan(self.min_phy_offset, self._offsets.visible):
            return found.store_timestamp_ms
        return -1

    def queue_entry(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code of one queue entry, or None."""
        queue = self._table.get(topic, queue_id)
        return None if queue is None else queue.entry(queue_offset)

    def queue_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]:
        """Return physical offset, size and tags code of entries from an offset on.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            queue_offset: first entry.
            max_count: most entries; fewer may be returned, none only if there are none.
        """
        return self.reader.entries(topic, queue_id, queue_offset, max_count)

    # -- maintenance -----------------------------------------------------------------------

    def delete_topics(self, topics: Iterable[str], before: int | None = None) -> int:
        """Delete topics with all their messages; return how many had any.

        The deletion is on disk when this returns. Senders wait for renames only; files are removed
        later. Topics with messages from physical offset `before` on stay.

        Raises:
            DiskFullError: no space for a directory entry; that topic and later ones stay.
            ResourceShortError: no descriptor; repeat the call to be sure that it is on disk.
            OSError: the disk failed; the store is read-only, as after any failed flush.
        """
        deleted = sum(is_safe_topic(each) and self._delete_topic(each, before) for each in topics)
        try:
            self._files.sync_directories()  # also renames that an earlier call could not sync
        except OSError as error:
            # A failed sync leaves unknown what is on disk, like a failed flush of the log.
            self._parts.latch.trip("flush of directories", error)
            raise
        return deleted

    def _delete_topic(self, topic: str, before: int | None) -> bool:
        """Remove a topic's queues under the lock; their files are deleted in the background."""
        parts = self._parts
        with self._append_lock:
            end = self._offsets.appended if before is None else min(before, self._offsets.appended)
            if not self._table.ends_before(topic, end):
                return False
            with self._table.file_creation_lock:  # no queue creates a file in between
                parts.deleted.add(topic, end, self._table.topic_directory(topic))
                queues = self._table.unhook_topic(topic)
            # Under the lock: the next put must look the queue up again.
            self._writer.forget_topic(topic)
        logger.info("topic deleted: topic=%s queues=%d", topic, len(queues))
        return True

    def clean_expired_consume_queues(self) -> int:
        """Delete queue files whose messages are all deleted; return how many."""
        return self._table.delete_expired(self.min_phy_offset)

    def delete_expired_files(self) -> None:
        """Delete expired commit log files soon, regardless of the hour."""
        self._parts.delete_expired_now()

    # -- state -----------------------------------------------------------------------------

    @property
    def min_phy_offset(self) -> int:
        """Physical offset of the first byte of the oldest file."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """Physical offset after the last record."""
        return self._offsets.appended

    @property
    def flushed_phy_offset(self) -> int:
        """Physical offset up to which the log is on disk."""
        return self._offsets.flushed

    @property
    def kept_phy_offset(self) -> int:
        """End of the log that stays: on disk, and not cut when another replica is elected."""
        return self._offsets.kept

    @property
    def dispatch_behind_bytes(self) -> int:
        """Appended bytes that consumers cannot read yet."""
        offsets = self._offsets
        return max(0, offsets.appended - min(offsets.dispatched, offsets.held_from))

    @property
    def is_writable(self) -> bool:
        """Whether the store accepts puts."""
        return self._gate.refusal is None

    @property
    def read_only_reason(self) -> str | None:
        """Reason for rejecting puts; None if the store accepts them."""
        return self._gate.refusal

    @property
    def log_refusal(self) -> str | None:
        """Reason for rejecting parts of a master's log; None if the store accepts them."""
        return self._gate.log_refusal

    @property
    def has_failed(self) -> bool:
        """Whether a flush failed: the store is read-only until it is restarted."""
        return self._parts.latch.reason is not None

    @property
    def shortage(self) -> str | None:
        """Resource that the last refused put lacked; None once it is available again."""
        return self._gate.shortage

    @property
    def lock_time_ms(self) -> int:
        """Time that the current append has held the lock; 0 if there is none."""
        return self._writer.lock_time_ms

    @property
    def commit_log_disk_ratio(self) -> float:
        """Used part of the file system of the commit log, 0.0 to 1.0."""
        return self._parts.disk_ratios().commit_log

    @property
    def consume_queue_disk_ratio(self) -> float:
        """Used part of the file system of the consume queues, 0.0 to 1.0."""
        return self._parts.disk_ratios().consume_queue

    def disk_usage(self) -> DiskUsage:
        """Space of the file system of the store directory."""
        return self._files.disk_usage(self._root)

    @property
    def put_latency_buckets(self) -> dict[str, int]:
        """Number of puts by duration, with Apache's names for the ranges."""
        return self._stats.put_distribution()

    @property
    def damaged_phy_offsets(self) -> list[int]:
        """Physical offsets of damaged records found so far."""
        return sorted(self._log.damaged)

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime table."""
        info = self._stats.runtime_info()
        info["commitLogMinOffset"] = str(self.min_phy_offset)
        info["commitLogMaxOffset"] = str(self.max_phy_offset)
        info["commitLogDiskRatio"] = str(self.commit_log_disk_ratio)
        info["consumeQueueDiskRatio"] = str(self.consume_queue_disk_ratio)
        return info
