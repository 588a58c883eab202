"""The message store: put, get, look up. The facade over commit log, queues and index.

One lock orders appends: under it a message gets its store time, its place in the log and in its
queue, and (without SYNC_FLUSH) its entries in queue and index. Everything else runs beside it.

Life: ``open`` (lock, load, recover), ``start`` (threads), work, ``close`` (flush, checkpoint,
remove the abort file). A simulation leaves ``start`` out and calls ``step`` of `services`.

Source: DefaultMessageStore (5.4.0).
"""

import logging
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.proto.record import topic_field
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import Service, ServiceThread
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue_table import is_safe_topic
from rocketpy.store.dispatch import (
    COMMIT_TYPE,
    ROLLBACK_TYPE,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    Arrival,
    PendingDispatch,
    delivery_time_ms,
)
from rocketpy.store.files import DiskUsage, FileLock, RealFiles, StoreFiles
from rocketpy.store.parts import StoreParts
from rocketpy.store.recovery import Recovery, RecoveryReport
from rocketpy.store.results import (
    GetMessageResult,
    MessageFilter,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
    QueryIndexResult,
)

__all__ = ["MessageStore"]

logger = logging.getLogger(__name__)

_OK: Final = PutMessageStatus.PUT_OK
_FIXED_BYTES: Final = 90
_MAX_PROPERTIES_BYTES: Final = 32_767
_V6_HOST_BYTES: Final = 20
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_LOOPBACK: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"  # 127.0.0.1:10911


class _Topic:
    """What a put needs to know of a topic, looked up once."""

    __slots__ = ("field", "queues")

    def __init__(self, field: bytes) -> None:
        self.field = field
        self.queues: dict[int, ConsumeQueue] = {}


class MessageStore:
    """One store directory. Every method but open, start and close may be called by any thread.

    Attributes:
        on_arrival: told (topic, queue id, next queue offset, tags code) of each message once it
            can be read; called on the putting or the flushing thread, without a lock.
        store_host: ip (4 or 16 bytes) and i32 port written into records; set it before the
            first put.
    """

    def __init__(
        self, config: MessageStoreConfig, *, clock: Clock, files: StoreFiles | None = None
    ) -> None:
        """Build a store; nothing is touched before `open`."""
        self.config = config
        self.on_arrival: Callable[[str, int, int, int], None] | None = None
        self.store_host = _LOOPBACK
        self._clock = clock
        self._time_ms = clock.time_ms
        self._monotonic_ms = clock.monotonic_ms
        self._files: StoreFiles = RealFiles() if files is None else files
        self._root = Path(config.store_path_root_dir)
        self._append_lock = threading.Lock()
        self._parts = StoreParts(
            config, clock, self._files, self._append_lock, on_flushed=self._release
        )
        parts = self._parts
        self._log, self._table, self._index = parts.log, parts.table, parts.index
        self._stats, self._pending = parts.stats, parts.pending
        self._deferred = config.is_sync_flush
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._topics: dict[str, _Topic] = {}
        self._lock_begin_ms = 0
        self._is_open = False
        self._lock: FileLock | None = None
        self._threads: list[ServiceThread] = []
        self.recovery = RecoveryReport()

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
        self._is_open = True

    def _load(self) -> None:
        parts = self._parts
        after_crash = self._files.exists(self._root / "abort")
        self._log.load()
        self._table.load()
        parts.checkpoint.load()
        if self._index is not None:
            self._index.load(after_crash, parts.checkpoint.index_ms)
        recovery = Recovery(
            self._log,
            self._table,
            parts.checkpoint,
            self._index,
            delays_ms=parts.delays_ms,
            check_crc=self.config.check_crc_on_recover,
            after_crash=after_crash,
        )
        self.recovery = recovery.run()
        parts.dispatched_phy_offset = self._log.max_phy_offset
        parts.dispatched_ms = self._log.last_store_timestamp_ms
        self._files.write_bytes(self._root / "abort", str(os.getpid()).encode())
        logger.info(
            "store is open: path=%s after_crash=%s min_phy_offset=%d max_phy_offset=%d records=%d",
            self._root,
            after_crash,
            self._log.min_phy_offset,
            self._log.max_phy_offset,
            self.recovery.record_count,
        )

    @property
    def services(self) -> Sequence[Service]:
        """The background work, for a simulation to drive."""
        return self._parts.services

    def start(self) -> None:
        """Run the services, each on its thread."""
        assert self._is_open, "open comes first"
        self._threads = [ServiceThread(each, self._clock) for each in self.services]
        by_name = dict(zip((each.name for each in self.services), self._threads, strict=True))
        self._log.on_step = by_name["AllocateService"].wake
        if self._deferred:
            self._parts.group.wake = by_name["GroupCommitService"].wake
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the services, bring everything to disk and let go; again is harmless."""
        if not self._is_open:
            return
        with self._append_lock:
            self._is_open = False
        self._log.on_step = self._parts.group.wake = _nothing
        for thread in reversed(self._threads):
            thread.stop()
        self._threads = []
        if self._parts.flush_all(self._monotonic_ms()):
            self._log.drop_spare()
            self._files.remove(self._root / "abort")
            self._files.sync_directories()
        self._let_go()

    def _let_go(self) -> None:
        self._parts.close()
        self._topics = {}
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- put -------------------------------------------------------------------------------

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Append one message.

        Returns:
            PUT_OK and its place, or why not: SERVICE_NOT_AVAILABLE (closed, read-only, disk
            nearly full), OS_PAGE_CACHE_BUSY, MESSAGE_ILLEGAL (topic, queue id, body over
            ``maxMessageSize``, a number out of range), PROPERTIES_SIZE_EXCEEDED, or
            CREATE_MAPPED_FILE_FAILED (the disk is full). Nothing is stored then.
        """
        refusal = self._refusal()
        if refusal is not None:
            return self._failed(refusal)
        begin_ms = self._monotonic_ms()
        known = self._topics.get(message.topic) or self._admit(message.topic)
        body_bytes, properties_bytes = len(message.body), len(message.properties)
        if known is None or body_bytes > self.config.max_message_size:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if properties_bytes > _MAX_PROPERTIES_BYTES:
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        field = known.field
        store_host = message.store_host or self.store_host
        sys_flag = message.sys_flag & ~(_BORN_V6 | _STORE_V6)
        size = _FIXED_BYTES + body_bytes + len(field) + properties_bytes
        if len(message.born_host) == _V6_HOST_BYTES:
            size, sys_flag = size + 12, sys_flag | _BORN_V6
        if len(store_host) == _V6_HOST_BYTES:
            size, sys_flag = size + 12, sys_flag | _STORE_V6
        crc = zlib.crc32(message.body) & 0x7FFFFFFF
        queue: ConsumeQueue | None = None
        queue_offset = 0
        try:
            with self._append_lock:
                if not self._is_open:
                    return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
                self._lock_begin_ms = now_ms = self._time_ms()
                if sys_flag & TRANSACTION_MASK in {0, COMMIT_TYPE}:
                    queue = known.queues.get(message.queue_id) or self._queue(known, message)
                    queue_offset = queue.next_offset
                    if queue_offset >= queue.reserved_offset:
                        queue.reserve()
                phy_offset = self._log.append(
                    message, size, crc, queue_offset, sys_flag, now_ms, store_host, field
                )
                if queue is not None:
                    queue.next_offset = queue_offset + 1
                code = self._dispatch(message, queue, queue_offset, phy_offset, size, now_ms)
                stats = self._stats
                stats.put_count += 1
                stats.put_bytes += size
        except (DiskFullError, StoreFormatError, struct.error, OSError) as error:
            return self._failed(self._status_of(error))
        finally:
            self._lock_begin_ms = 0
        if not self._deferred:
            if queue is not None and self.on_arrival is not None:
                self.on_arrival(message.topic, message.queue_id, queue_offset + 1, code)
        else:
            self._parts.group.request()
        elapsed_ms = self._monotonic_ms() - begin_ms
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)
        return PutMessageResult(_OK, phy_offset, size, queue_offset, now_ms)

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append messages of one queue side by side, all of them or none.

        Returns:
            As `put_message`; a batch larger than ``maxMessageSize`` or a log file is
            MESSAGE_ILLEGAL, and so is an empty one.
        """
        refusal = self._refusal()
        if refusal is not None:
            return self._failed(refusal)
        known = self._topics.get(batch.topic) or self._admit(batch.topic)
        body_bytes = sum(len(each.body) for each in batch.entries)
        if known is None or not batch.entries or body_bytes > self.config.max_message_size:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if any(len(each.properties) > _MAX_PROPERTIES_BYTES for each in batch.entries):
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        if batch.sys_flag & TRANSACTION_MASK:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        begin_ms = self._monotonic_ms()
        arrivals: list[Arrival] = []
        try:
            with self._append_lock:
                if not self._is_open:
                    return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
                self._lock_begin_ms = now_ms = self._time_ms()
                result = self._append_batch(batch, known, now_ms, arrivals)
        except (DiskFullError, StoreFormatError, struct.error, OSError) as error:
            return self._failed(self._status_of(error))
        finally:
            self._lock_begin_ms = 0
        if self._deferred:
            self._parts.group.request()
        else:
            self._announce(arrivals)
        elapsed_ms = self._monotonic_ms() - begin_ms
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)
        return result

    def _append_batch(
        self, batch: PutBatch, known: _Topic, now_ms: int, arrivals: list[Arrival]
    ) -> PutMessageResult:
        message = PutMessage(
            batch.topic,
            batch.queue_id,
            b"",
            born_host=batch.born_host,
            born_timestamp_ms=batch.born_timestamp_ms,
            reconsume_times=batch.reconsume_times,
        )
        store_host = batch.store_host or self.store_host
        sys_flag = batch.sys_flag & ~(_BORN_V6 | _STORE_V6)
        fixed = _FIXED_BYTES + len(known.field)
        if len(batch.born_host) == _V6_HOST_BYTES:
            fixed, sys_flag = fixed + 12, sys_flag | _BORN_V6
        if len(store_host) == _V6_HOST_BYTES:
            fixed, sys_flag = fixed + 12, sys_flag | _STORE_V6
        sizes = [fixed + len(each.body) + len(each.properties) for each in batch.entries]
        total = sum(sizes)
        if total + 8 > self._log.file_bytes:
            raise StoreFormatError("the batch does not fit into a commit log file")
        queue = known.queues.get(batch.queue_id) or self._queue(known, message)
        queue.reserve(len(sizes))
        self._check_numbers(batch)
        first_phy, first_offset = self._log.reserve(total), queue.next_offset
        phy_offsets = []
        for size, each in zip(sizes, batch.entries, strict=True):
            message.body, message.properties, message.flag = each.body, each.properties, each.flag
            message.tags_code, message.tags = each.tags_code, each.tags
            message.uniq_key, message.keys = each.uniq_key, each.keys
            crc = zlib.crc32(each.body) & 0x7FFFFFFF
            offset = queue.next_offset
            phy_offset = self._log.append(
                message, size, crc, offset, sys_flag, now_ms, store_host, known.field
            )
            queue.next_offset = offset + 1
            code = self._dispatch(message, queue, offset, phy_offset, size, now_ms)
            phy_offsets.append(phy_offset)
            arrivals.append((batch.topic, batch.queue_id, offset + 1, code))
        self._stats.put_count += len(sizes)
        self._stats.put_bytes += total
        return PutMessageResult(_OK, first_phy, total, first_offset, now_ms, tuple(phy_offsets))

    @staticmethod
    def _check_numbers(batch: PutBatch) -> None:
        """Raise struct.error before the first record is written, not between two."""
        struct.pack(">iqi", batch.sys_flag, batch.born_timestamp_ms, batch.reconsume_times)
        struct.pack(f">{len(batch.entries)}i", *(each.flag for each in batch.entries))

    def _dispatch(
        self,
        message: PutMessage,
        queue: ConsumeQueue | None,
        queue_offset: int,
        phy_offset: int,
        size: int,
        now_ms: int,
    ) -> int:
        """Tell queue and index of an appended record; return its tags code."""
        code = message.tags_code
        if message.delay_level and message.topic == SCHEDULE_TOPIC:
            code = delivery_time_ms(message.delay_level, now_ms, self._parts.delays_ms)
        indexed = message.sys_flag & TRANSACTION_MASK != ROLLBACK_TYPE
        if self._deferred:
            self._pending.add(
                PendingDispatch(
                    phy_offset + size,
                    queue,
                    queue_offset,
                    phy_offset,
                    size,
                    code,
                    now_ms,
                    message.topic,
                    message.uniq_key,
                    message.keys,
                    message.tags,
                    indexed,
                )
            )
            return code
        if queue is not None:
            queue.put(queue_offset, phy_offset, size, code)
        index = self._index
        if index is not None and indexed:
            index.put(
                message.topic, message.uniq_key, message.keys, message.tags, phy_offset, now_ms
            )
        parts = self._parts
        parts.dispatched_phy_offset = phy_offset + size
        parts.dispatched_ms = now_ms
        return code

    def _release(self, flushed_phy_offset: int) -> None:
        """Make messages readable that are on disk now (SYNC_FLUSH)."""
        if not self._deferred:
            return
        arrivals: list[Arrival] = []
        with self._append_lock:
            for each in self._pending.take(flushed_phy_offset):
                if each.queue is not None and each.queue_offset == each.queue.max_offset:
                    each.queue.put(
                        each.queue_offset, each.phy_offset, each.size_bytes, each.tags_code
                    )
                    arrivals.append(
                        (each.topic, each.queue.queue_id, each.queue_offset + 1, each.tags_code)
                    )
                if self._index is not None and each.indexed:
                    self._index.put(
                        each.topic,
                        each.uniq_key,
                        each.keys,
                        each.tags,
                        each.phy_offset,
                        each.store_timestamp_ms,
                    )
                self._parts.dispatched_ms = each.store_timestamp_ms
            self._parts.dispatched_phy_offset = max(
                self._parts.dispatched_phy_offset, flushed_phy_offset
            )
        self._announce(arrivals)

    def _announce(self, arrivals: Iterable[Arrival]) -> None:
        if self.on_arrival is not None:
            for arrival in arrivals:
                self.on_arrival(*arrival)

    def _refusal(self) -> PutMessageStatus | None:
        if not self._is_open or self._parts.refusal is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        begin_ms = self._lock_begin_ms
        if begin_ms and self._time_ms() - begin_ms > self._busy_ms:
            return PutMessageStatus.OS_PAGE_CACHE_BUSY
        return None

    def _failed(self, status: PutMessageStatus) -> PutMessageResult:
        self._stats.put_failed()
        return PutMessageResult(status)

    def _status_of(self, error: Exception) -> PutMessageStatus:
        if isinstance(error, DiskFullError):
            return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        if isinstance(error, OSError):
            self._parts.latch.trip("writing to the store", error)
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return PutMessageStatus.MESSAGE_ILLEGAL

    def _admit(self, topic: str) -> _Topic | None:
        """Remember a topic that may be stored; None when it may not."""
        limit = 255 if topic.startswith("%") else self.config.max_topic_length
        if not is_safe_topic(topic) or len(topic.encode()) > limit:
            return None
        if self._table.is_batch_topic(topic):
            return None
        known = _Topic(topic_field(topic))
        return self._topics.setdefault(topic, known)

    def _queue(self, known: _Topic, message: PutMessage) -> ConsumeQueue:
        """Find or create a queue (under the append lock)."""
        if self._topics.get(message.topic) is not known:  # deleted meanwhile
            self._topics.setdefault(message.topic, known)
        queue = self._table.get_or_create(message.topic, message.queue_id)
        known.queues[message.queue_id] = queue
        return queue

    # -- durability ------------------------------------------------------------------------

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once the log is on disk up to an offset.

        With ASYNC_FLUSH that is at once. With SYNC_FLUSH the answer is False when the flush
        failed, or took longer than ``syncFlushTimeout``.

        Args:
            phy_end: `PutMessageResult.phy_end`.
            callback: called once, on this or another thread.
        """
        if not self._deferred:
            callback(True)
            return
        deadline_ms = self._monotonic_ms() + self.config.sync_flush_timeout
        self._parts.group.wait_for(phy_end, deadline_ms, callback)

    # -- get -------------------------------------------------------------------------------

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002 - the interface's word
    ) -> GetMessageResult:
        """Read messages of a queue from an offset on.

        Args:
            topic: topic name.
            queue_id: queue within the topic.
            queue_offset: first entry to look at.
            max_count: messages at most; at least one is returned if there is one.
            max_bytes: bytes of records at most, for all but the first.
            filter: decides what to leave out; None takes all.
        """
        return self._parts.reader.get(topic, queue_id, queue_offset, max_count, max_bytes, filter)

    def look_message(self, phy_offset: int) -> memoryview | None:
        """Return the whole record that begins exactly at an offset; None when none does.

        The record is checked; with SYNC_FLUSH it is on disk.
        """
        return self._log.intact_record(phy_offset, self._readable_end)

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
        return self._index.query(topic, key, max_count, begin_ms, end_ms, index_type)

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
        for _, found in self._log.scan(self.min_phy_offset, self._readable_end):
            return found.store_timestamp_ms
        return -1

    def queue_entry(
        self, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[int, int, int] | None:
        """Return physical offset, size and tags code of one queue entry, or None."""
        queue = self._table.get(topic, queue_id)
        return None if queue is None else queue.entry(queue_offset)

    # -- maintenance -----------------------------------------------------------------------

    def delete_topics(self, topics: Iterable[str]) -> int:
        """Delete the queues of topics; return how many topics had any."""
        deleted = 0
        for topic in topics:
            if not is_safe_topic(topic):
                continue
            with self._append_lock:
                self._topics.pop(topic, None)
                deleted += self._table.delete_topic(topic)
        return deleted

    def clean_expired_consume_queues(self) -> int:
        """Delete queue files whose messages are all gone; return how many."""
        return self._table.delete_expired(self.min_phy_offset)

    def delete_expired_files(self) -> None:
        """Delete expired commit log files soon, whatever the hour."""
        self._parts.delete_expired_now()

    # -- state -----------------------------------------------------------------------------

    @property
    def _readable_end(self) -> int:
        return self._log.flushed_phy_offset if self._deferred else self._log.max_phy_offset

    @property
    def min_phy_offset(self) -> int:
        """Physical offset where the oldest file begins."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """Physical offset after the last record."""
        return self._log.max_phy_offset

    @property
    def flushed_phy_offset(self) -> int:
        """Everything before this physical offset is on disk."""
        return self._log.flushed_phy_offset

    @property
    def dispatch_behind_bytes(self) -> int:
        """Bytes appended that consumers cannot see yet."""
        return max(0, self._log.max_phy_offset - self._parts.dispatched_phy_offset)

    @property
    def is_writable(self) -> bool:
        """Whether puts are taken now."""
        return self._is_open and self._parts.refusal is None

    @property
    def read_only_reason(self) -> str | None:
        """Why puts are refused; None when they are taken."""
        return self._parts.refusal if self._is_open else "the store is closed"

    @property
    def lock_time_ms(self) -> int:
        """How long the append under way holds the lock; 0 when there is none."""
        begin_ms = self._lock_begin_ms
        return max(0, self._time_ms() - begin_ms) if begin_ms else 0

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


def _nothing() -> None:
    """Stand in for a wake-up nobody needs any more."""
