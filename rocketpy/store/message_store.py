"""The message store: put, get, look up. The facade over commit log, queues and index.

One lock orders appends: under it a message gets its store time, its place in the log and in its
queue, and (without SYNC_FLUSH) its entries in queue and index. Everything else runs beside it.

Life: ``open`` (lock, load, recover), ``start`` (threads), work, ``close`` (flush, checkpoint,
remove the abort file). A simulation leaves ``start`` out and calls ``step`` of `services`.

Step 12 of a message's life (docs/ARCHITECTURE.md).

Source: DefaultMessageStore (5.4.0).
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Sequence
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
from rocketpy.store.recovery.missing_files import check_log_is_there
from rocketpy.store.recovery.recovery import RecoveryReport
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
    """One store directory. Every method but open, start and close may be called by any thread."""

    def __init__(
        self, config: MessageStoreConfig, *, clock: Clock, files: StoreFiles | None = None
    ) -> None:
        """Build a store; nothing is touched before `open`."""
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
        self.recent_part: Final = parts.reader.recent_part
        self._lock: FileLock | None = None
        self._threads: list[ServiceRunner] = []
        self.recovery: RecoveryReport = RecoveryReport()

    # -- life ------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the directory, load it, and recover what the last process left.

        Raises:
            StoreLockedError: another process uses the directory.
            StoreFormatError: files that do not fit this configuration.
            DiskFullError: no space to recover.
        """
        self._files.make_directories(self._root)
        self._lock = self._files.lock(self._root / "lock")
        try:
            self._load()
        except BaseException:
            self._let_go()
            raise
        self._gate.set_open(True)

    def _load(self) -> None:
        parts, log, checkpoint = self._parts, self._log, self._parts.checkpoint
        after_crash, power_cut = self._last_end()
        checkpoint.load()
        check_log_is_there(log.directory, log.file_bytes, self._files, checkpoint.log_phy_offset)
        log.load()
        self._table.load(after_crash=after_crash)
        parts.deleted.load()
        if self._index is not None:
            self._index.load(after_crash, checkpoint.index_ms, checkpoint.index_phy_offset)
        self.recovery = parts.recovery(after_crash=after_crash, power_cut=power_cut).run()
        mark = f"{os.getpid()}\n{self._files.boot_id()}"
        self._files.write_bytes(self._root / "abort", mark.encode())
        logger.info(
            "store is open: path=%s after_crash=%s min_phy_offset=%d max_phy_offset=%d records=%d",
            self._root,
            after_crash,
            self.min_phy_offset,
            self.max_phy_offset,
            self.recovery.record_count,
        )

    def _last_end(self) -> tuple[bool, bool | None]:
        """Tell whether the last process crashed, and whether the machine did (None: unknown).

        The abort file holds the process id, as Apache's does, and then the id of that boot.
        """
        path = self._root / "abort"
        if not self._files.exists(path):
            return False, False
        _, _, boot_id = self._files.read_bytes(path).partition(b"\n")
        return True, None if not boot_id else boot_id != self._files.boot_id().encode()

    @property
    def services(self) -> Sequence[Service]:
        """The background work, for a simulation to drive."""
        return self._parts.services

    def start(self, run: Callable[[Service, Clock], ServiceRunner] = ServiceThread) -> None:
        """Run the services.

        Args:
            run: makes what drives a service; each on its own thread by default.
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
        """Stop the services, bring everything to disk and let go; again is harmless."""
        if not self._gate.is_open:
            return
        with self._append_lock:
            self._gate.set_open(False)
        self._log.on_step = self._parts.group.wake = self._parts.cold_reads.wake = lambda: None
        for thread in reversed(self._threads):
            thread.stop()
        self._threads = []
        try:
            if self._parts.flush_all(self._monotonic_ms()):
                self._log.drop_spare()
                self._files.remove(self._root / "abort")
                self._files.sync_directories()
        except (OSError, ResourceShortError) as error:  # the next start recovers
            logger.error("the store could not be closed cleanly: %s", error)  # noqa: TRY400 - known cause
        finally:
            self._offsets.fail()  # nobody flushes any more; who asks from now on is told, too
            self._let_go()

    def _let_go(self) -> None:
        self._parts.close()
        self._writer.forget_topics()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def configure(self, config: MessageStoreConfig) -> None:
        """Take over settings that may change while the store runs; the others stay as opened.

        Args:
            config: the settings this store was made with, live ones changed.
        """
        self.config = config
        self._writer.configure(config)
        self._parts.configure(config)

    # -- put -------------------------------------------------------------------------------

    @property
    def on_arrival(self) -> Callable[[str, int, int, int], None] | None:
        """Told (topic, queue id, next queue offset, tags code) of each readable message.

        Called on the putting or the flushing thread, without a lock.
        """
        return self._parts.dispatchers.on_arrival

    @on_arrival.setter
    def on_arrival(self, listener: Callable[[str, int, int, int], None] | None) -> None:
        self._parts.dispatchers.on_arrival = listener

    @property
    def store_host(self) -> bytes:
        """Ip (4 or 16 bytes) and i32 port written into records; set it before the first put."""
        return self._writer.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._writer.store_host = host

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Append one message.

        Returns:
            PUT_OK and its place, or why not: SERVICE_NOT_AVAILABLE (closed, read-only, disk
            nearly full), OS_PAGE_CACHE_BUSY, MESSAGE_ILLEGAL (topic, queue id, body over
            ``maxMessageSize``, a number out of range), PROPERTIES_SIZE_EXCEEDED, or
            CREATE_MAPPED_FILE_FAILED (the disk is full). Nothing is stored then.
        """
        return self._writer.put(message)

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append messages of one queue side by side, all of them or none.

        Returns:
            As `put_message`; an empty batch, or one larger than ``maxMessageSize``, is illegal.
        """
        return self._writer.put_batch(batch)

    def append_raw(self, phy_offset: int, data: bytes) -> int:
        """Append a piece of another store's log exactly at the end of this one; see `replica`.

        Args:
            phy_offset: where it lay there.
            data: records and blanks as they lay there, maybe the beginning of one.

        Returns:
            Where the next piece must begin.

        Raises:
            StoreReadOnlyError: the store takes nothing now.
            LogGapError: the piece does not begin where the log ends.
            StoreFormatError: the bytes are no records.
            DiskFullError: no space.
            ResourceShortError: the queues hold too much that is not on disk; see `replica`.
        """
        return self._parts.replica.append_raw(phy_offset, data)

    # -- durability ------------------------------------------------------------------------

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once the log is as safe as the mode asks for, up to an offset.

        With ASYNC_FLUSH that is at once. With SYNC_FLUSH it is on disk then; the answer is False
        when the flush failed, or took longer than ``syncFlushTimeout``.

        Args:
            phy_end: `PutMessageResult.phy_end`.
            callback: called once, on this or another thread.
        """
        deadline_ms = self._monotonic_ms() + self.config.sync_flush_timeout
        self._offsets.wait_for(phy_end, deadline_ms, callback)

    def flush_log(self) -> bool:
        """Bring everything appended so far to disk; False when that failed."""
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
            queue_offset: first entry to look at.
            max_count: messages at most; at least one is returned if there is one.
            max_bytes: bytes of records at most, for all but the first.
            filter: decides what to leave out; None takes all.
            may_join: records with nothing between them may come as one buffer.
        """
        return self.reader.get(
            topic, queue_id, queue_offset, max_count, max_bytes, filter, may_join=may_join
        )

    def look_message(self, phy_offset: int) -> memoryview | None:
        """Return the whole record that begins exactly at an offset; None when none does.

        The record is checked; with SYNC_FLUSH it is on disk.
        """
        return self._log.intact_record(phy_offset, self._offsets.visible)

    def query_index(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryIndexResult:
        """Find messages by key; hash collisions are among them.

        Args:
            topic: stored topic.
            key: a unique key, one of the keys, or with ``index_type`` "T" a tag.
            max_count: offsets at most.
            begin_ms: earliest store time.
            end_ms: latest store time.
            index_type: see ``key``.
        """
        if self._index is None:
            return QueryIndexResult([])
        found = self._index.query(topic, key, max_count, begin_ms, end_ms, index_type)
        covers = self._parts.deleted.covers
        kept = [each for each in found.phy_offsets if not covers(topic, each)]
        return dataclasses.replace(found, phy_offsets=kept)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset, -1 when there is no such queue."""
        queue = self._table.get(topic, queue_id) or self._table.get_batch(topic, queue_id)
        return -1 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last message, 0 when there is no such queue."""
        queue = self._table.get(topic, queue_id) or self._table.get_batch(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, upper: bool = False
    ) -> int:
        """Find a queue offset by store time.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            timestamp_ms: time looked for.
            upper: the last message not after the time, instead of the first not before it.
        """
        queue = self._table.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, self._log.store_time_ms, upper=upper)

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return the store time of one message, -1 when it is not there."""
        queue = self._table.get(topic, queue_id)
        entry = None if queue is None else queue.entry(queue_offset)
        if queue is None or entry is None or queue_offset < queue.min_offset:
            return -1
        return self._log.store_time_ms(entry[0], entry[1])

    def earliest_store_time_ms(self, topic: str | None = None, queue_id: int = 0) -> int:
        """Return the store time of the oldest message of a queue, or of all; -1 without any."""
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
            queue_offset: of the first.
            max_count: at most; perhaps fewer, but none only where none is.
        """
        return self.reader.entries(topic, queue_id, queue_offset, max_count)

    # -- maintenance -----------------------------------------------------------------------

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete topics with all their messages; return how many had any.

        On disk when this returns. Senders wait for a rename, not for the files to go.

        Raises:
            DiskFullError: no space for a directory entry; that topic and the next are not deleted.
            ResourceShortError: no descriptor; whether it is on disk is known after another call.
            OSError: the disk failed; the store is read-only then, as after any failed flush.
        """
        deleted = [topic for topic in topics if is_safe_topic(topic) and self._delete_topic(topic)]
        try:
            self._files.sync_directories()  # also what an earlier call could not bring to disk
        except OSError as error:
            self._parts.latch.trip("flush of directories", error)
            raise
        return len(deleted)

    def _delete_topic(self, topic: str) -> bool:
        """Unhook a topic's queues under the lock; their files go later, beside everything."""
        parts = self._parts
        with self._append_lock:
            if topic not in self._table.topics() or self._table.is_batch_topic(topic):
                return False
            with self._table.names:  # nobody creates a file for them in between
                parts.deleted.add(topic, self._offsets.appended, self._table.topic_directory(topic))
                queues = self._table.unhook_topic(topic)
            self._writer.forget_topic(topic)
        logger.info("topic is deleted: topic=%s queues=%d", topic, len(queues))
        return True

    def clean_expired_consume_queues(self) -> int:
        """Delete queue files whose messages are all gone; return how many."""
        return self._table.delete_expired(self.min_phy_offset)

    def delete_expired_files(self) -> None:
        """Delete expired commit log files soon, whatever the hour."""
        self._parts.delete_expired_now()

    # -- state -----------------------------------------------------------------------------

    @property
    def min_phy_offset(self) -> int:
        """Physical offset where the oldest file begins."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """Physical offset after the last record."""
        return self._offsets.appended

    @property
    def flushed_phy_offset(self) -> int:
        """Everything before this physical offset is on disk."""
        return self._offsets.flushed

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes appended that consumers cannot see yet."""
        return max(0, self._offsets.appended - self._offsets.dispatched)

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken now."""
        return self._gate.refusal is None

    @property
    def read_only_reason(self) -> str | None:
        """Why puts are refused; None when they are taken."""
        return self._gate.refusal

    @property
    def lock_time_ms(self) -> int:
        """How long the append under way holds the lock; 0 when there is none."""
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
        """Puts by duration, Apache's names for the ranges."""
        return self._stats.put_distribution()

    @property
    def damaged_phy_offsets(self) -> list[int]:
        """Damaged records met so far."""
        return sorted(self._log.damaged)

    def topics(self) -> list[str]:
        """Names of the topics that have queues."""
        return self._table.topics()

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic's queues are of a kind this store only keeps, not serves."""
        return self._table.is_batch_topic(topic)

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime table."""
        info = self._stats.runtime_info()
        info["commitLogMinOffset"] = str(self.min_phy_offset)
        info["commitLogMaxOffset"] = str(self.max_phy_offset)
        info["commitLogDiskRatio"] = str(self.commit_log_disk_ratio)
        info["consumeQueueDiskRatio"] = str(self.consume_queue_disk_ratio)
        return info
