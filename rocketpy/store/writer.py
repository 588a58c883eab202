"""Writing: one message or one batch, from the checks to the entries in queue and index.

Under the append lock a message gets its store time, its place in the log and in its queue, and
(without SYNC_FLUSH) its entries in queue and index. Everything that can be done before it is.

Source: DefaultMessageStore.asyncPutMessage, CommitLog.asyncPutMessage(s), HookUtils (5.4.0).
"""

import logging
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Final

from rocketpy.errors import DiskFullError, StoreFormatError
from rocketpy.proto.record import (
    FIXED_BYTES,
    HOST_FLAGS,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    body_crc,
    topic_field,
)
from rocketpy.proto.sys_flag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.runtime.clock import Clock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue_table import is_safe_topic
from rocketpy.store.dispatch import (
    Arrival,
    PendingDispatch,
    delivery_time_ms,
)
from rocketpy.store.parts import StoreParts
from rocketpy.store.results import (
    BatchEntry,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)

_OK: Final = PutMessageStatus.PUT_OK
_V4_HOSTS_BYTES: Final = 2 * V4_HOST_BYTES
_LOOPBACK: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"  # 127.0.0.1:10911

logger = logging.getLogger(__name__)

_QUIET_MS: Final = 10_000
"""A full disk is not reported again sooner."""
_REFUSALS: Final = (DiskFullError, StoreFormatError, struct.error, OSError)


class _Topic:
    """What a put needs to know of a topic, looked up once."""

    __slots__ = ("field", "queues")

    def __init__(self, field: bytes) -> None:
        self.field = field
        self.queues: dict[int, ConsumeQueue] = {}


class MessageWriter:
    """Puts messages into one store. Safe to use from any thread.

    Attributes:
        on_arrival: see `rocketpy.store.message_store.MessageStore`.
        store_host: see `rocketpy.store.message_store.MessageStore`.
        is_open: False refuses all puts; changed under the append lock.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        parts: StoreParts,
        append_lock: threading.Lock,
    ) -> None:
        self.on_arrival: Callable[[str, int, int, int], None] | None = None
        self.store_host = _LOOPBACK
        self.is_open = False
        self._parts = parts
        self._append_lock = append_lock
        self._time_ms = clock.time_ms
        self._monotonic_ms = clock.monotonic_ms
        self._log, self._table, self._index = parts.log, parts.table, parts.index
        self._stats, self._pending = parts.stats, parts.pending
        self._deferred = config.is_sync_flush
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._max_body_bytes = config.max_message_size
        self._max_topic_bytes = config.max_topic_length
        self._topics: dict[str, _Topic] = {}
        self._lock_begin_ms = 0
        self._quiet_until_ms = 0

    def configure(self, config: MessageStoreConfig) -> None:
        """Take over changed limits."""
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._max_body_bytes = config.max_message_size

    @property
    def lock_time_ms(self) -> int:
        """How long the append under way holds the lock; 0 when there is none."""
        begin_ms = self._lock_begin_ms
        return max(0, self._time_ms() - begin_ms) if begin_ms else 0

    def put(self, message: PutMessage) -> PutMessageResult:
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
        if known is None or body_bytes > self._max_body_bytes:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        try:
            result, code = self._append(message, known, body_bytes + properties_bytes)
        except _REFUSALS as error:
            return self._failed(self._status_of(error))
        finally:
            self._lock_begin_ms = 0
        if self._deferred:
            self._parts.group.request()
        elif code is not None and self.on_arrival is not None:
            self.on_arrival(message.topic, message.queue_id, result.queue_offset + 1, code)
        elapsed_ms = self._monotonic_ms() - begin_ms
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)
        return result

    def _append(
        self, message: PutMessage, known: _Topic, variable_bytes: int
    ) -> tuple[PutMessageResult, int | None]:
        """Append one checked message; return its tags code too if consumers may see it."""
        field = known.field
        store_host = message.store_host or self.store_host
        sys_flag = message.sys_flag & ~HOST_FLAGS
        size = FIXED_BYTES + len(field) + variable_bytes
        if len(message.born_host) + len(store_host) != _V4_HOSTS_BYTES:
            size, sys_flag = _with_wide_hosts(size, sys_flag, message.born_host, store_host)
        crc = body_crc(message.body)
        queue: ConsumeQueue | None = None
        queue_offset = 0
        with self._append_lock:
            if not self.is_open:
                return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE), None
            self._lock_begin_ms = now_ms = self._time_ms()
            if sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}:
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
        result = PutMessageResult(_OK, phy_offset, size, queue_offset, now_ms)
        return result, None if queue is None else code

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append messages of one queue side by side, all of them or none.

        Returns:
            As `put`; a batch larger than ``maxMessageSize`` or a log file is
            MESSAGE_ILLEGAL, and so is an empty one.
        """
        refusal = self._refusal()
        if refusal is not None:
            return self._failed(refusal)
        known = self._topics.get(batch.topic) or self._admit(batch.topic)
        body_bytes = sum(len(each.body) for each in batch.entries)
        if known is None or not batch.entries or body_bytes > self._max_body_bytes:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if any(len(each.properties) > MAX_PROPERTIES_BYTES for each in batch.entries):
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        if batch.sys_flag & TRANSACTION_MASK:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        begin_ms = self._monotonic_ms()
        arrivals: list[Arrival] = []
        try:
            with self._append_lock:
                if not self.is_open:
                    return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
                self._lock_begin_ms = now_ms = self._time_ms()
                result = self._append_batch(batch, known, now_ms, arrivals)
        except _REFUSALS as error:
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
        store_host = batch.store_host or self.store_host
        sys_flag = batch.sys_flag & ~HOST_FLAGS
        fixed = FIXED_BYTES + len(known.field)
        fixed, sys_flag = _with_wide_hosts(fixed, sys_flag, batch.born_host, store_host)
        sizes = [fixed + len(each.body) + len(each.properties) for each in batch.entries]
        total = sum(sizes)
        queue = known.queues.get(batch.queue_id) or self._queue(known, batch)
        queue.reserve(len(sizes))
        self._check_numbers(batch)
        first = queue.next_offset
        if sys_flag & HOST_FLAGS:
            self._log.reserve(total)
            phy_offsets = [
                self._log.append(
                    _message_of(batch, each),
                    size,
                    body_crc(each.body),
                    first + number,
                    sys_flag,
                    now_ms,
                    store_host,
                    known.field,
                )
                for number, (size, each) in enumerate(zip(sizes, batch.entries, strict=True))
            ]
        else:
            phy_offsets, sizes = self._log.append_run(
                batch, total, first, sys_flag, now_ms, store_host, known.field
            )
        queue.next_offset = first + len(sizes)
        self._dispatch_batch(batch, queue, first, phy_offsets, sizes, now_ms)
        arrivals.extend(
            (batch.topic, batch.queue_id, queue.next_offset, code)
            for code in {each.tags_code for each in batch.entries}
        )
        self._stats.put_count += len(sizes)
        self._stats.put_bytes += total
        return PutMessageResult(_OK, phy_offsets[0], total, first, now_ms, tuple(phy_offsets))

    def _dispatch_batch(
        self,
        batch: PutBatch,
        queue: ConsumeQueue,
        first: int,
        phy_offsets: list[int],
        sizes: list[int],
        now_ms: int,
    ) -> None:
        """Tell queue and index of the records of a batch."""
        entries = batch.entries
        if self._deferred:
            for number, each in enumerate(entries):
                self._dispatch(
                    _message_of(batch, each),
                    queue,
                    first + number,
                    phy_offsets[number],
                    sizes[number],
                    now_ms,
                )
            return
        queue.put_run(first, phy_offsets, sizes, [each.tags_code for each in entries])
        if self._index is not None:
            self._index.put_run(batch.topic, entries, phy_offsets, now_ms)
        self._parts.dispatched_phy_offset = phy_offsets[-1] + sizes[-1]
        self._parts.dispatched_ms = now_ms

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
        indexed = message.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK
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

    def release(self, flushed_phy_offset: int) -> None:
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
        if not self.is_open or self._parts.refusal is not None:
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
            now_ms = self._monotonic_ms()
            if now_ms >= self._quiet_until_ms:
                self._quiet_until_ms = now_ms + _QUIET_MS
                logger.error(
                    "no space, messages are refused: path=%s reason=%s", self._log.directory, error
                )
            return PutMessageStatus.CREATE_MAPPED_FILE_FAILED
        if isinstance(error, OSError):
            self._parts.latch.trip("writing to the store", error)
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        return PutMessageStatus.MESSAGE_ILLEGAL

    def _admit(self, topic: str) -> _Topic | None:
        """Remember a topic that may be stored; None when it may not."""
        limit = 255 if topic.startswith("%") else self._max_topic_bytes
        if not is_safe_topic(topic) or len(topic.encode()) > limit:
            return None
        if self._table.is_batch_topic(topic):
            return None
        known = _Topic(topic_field(topic))
        return self._topics.setdefault(topic, known)

    def _queue(self, known: _Topic, message: PutMessage | PutBatch) -> ConsumeQueue:
        """Find or create a queue (under the append lock)."""
        if self._topics.get(message.topic) is not known:  # deleted meanwhile
            self._topics.setdefault(message.topic, known)
        queue = self._table.get_or_create(message.topic, message.queue_id)
        known.queues[message.queue_id] = queue
        return queue

    def forget_topic(self, topic: str) -> None:
        """Drop what was looked up of a topic (under the append lock)."""
        self._topics.pop(topic, None)

    def forget_topics(self) -> None:
        """Drop what was looked up of all topics."""
        self._topics = {}


def _with_wide_hosts(
    size: int, sys_flag: int, born_host: bytes, store_host: bytes
) -> tuple[int, int]:
    """Add what IPv6 hosts take, and the flags that say so."""
    if len(born_host) == V6_HOST_BYTES:
        size, sys_flag = size + V6_HOST_BYTES - V4_HOST_BYTES, sys_flag | BORN_HOST_V6
    if len(store_host) == V6_HOST_BYTES:
        size, sys_flag = size + V6_HOST_BYTES - V4_HOST_BYTES, sys_flag | STORE_HOST_V6
    return size, sys_flag


def _message_of(batch: PutBatch, entry: BatchEntry) -> PutMessage:
    """One message of a batch, as if it had come alone."""
    return PutMessage(
        batch.topic,
        batch.queue_id,
        entry.body,
        entry.properties,
        batch.born_host,
        entry.flag,
        batch.sys_flag,
        batch.born_timestamp_ms,
        entry.tags_code,
        entry.uniq_key,
        entry.keys,
        entry.tags,
        batch.reconsume_times,
    )
