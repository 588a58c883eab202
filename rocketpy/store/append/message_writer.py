"""Message writer: checks a message or batch and appends it to the log.

Under the append lock a message gets its store time, its physical offset and its queue offset, and
is passed to the dispatchers. All other work is done before taking the lock.

Invariants:
    - space in queue and log is reserved before a byte is written: a failure affects one put, which
      returns a status and stores nothing. Only a failed flush stops the store;
    - store time never descends while the store is open, also if the clock is set back;
    - a deleted queue is marked under the append lock: a put that looked it up earlier goes to the
      new queue of that name.

Source: DefaultMessageStore.asyncPutMessage, CommitLog.asyncPutMessage(s), HookUtils (5.4.0).
"""

import logging
import struct
import threading
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from rocketpy.errors import DiskFullError, ResourceShortError, StoreFormatError
from rocketpy.proto.record.record import (
    CRC_MASK,
    FIXED_BYTES,
    HOST_FLAGS,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    topic_field,
)
from rocketpy.proto.record.sys_flag import (
    BORN_HOST_V6,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
)
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.runtime.clock import Clock
from rocketpy.store.append.dispatch import (
    DispatcherList,
    DispatchRequest,
    DispatchRun,
    arrival_failed,
    arrivals_of,
    delivery_time_ms,
)
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.config import MessageStoreConfig, parse_delay_levels
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable, is_safe_topic
from rocketpy.store.files.descriptor_reserve import shortage_cause
from rocketpy.store.results import (
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)
from rocketpy.store.stats import StoreStats
from rocketpy.store.store_offsets import StoreOffsets
from rocketpy.store.write_gate import WriteGate

_OK: Final = PutMessageStatus.PUT_OK
_V4_HOSTS_BYTES: Final = 2 * V4_HOST_BYTES
_new: Final = tuple.__new__
_LOOPBACK: Final = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"  # 127.0.0.1:10911

logger: logging.Logger = logging.getLogger(__name__)

# Shortest interval between two log lines about a short resource.
_QUIET_MS: Final = 10_000
_REFUSALS: Final = (ResourceShortError, StoreFormatError, struct.error, OSError)


class _Topic:
    """Cached data of a topic that puts need.

    Attributes:
        field: encoded topic field of records.
        fixed_bytes: size of a record without body and properties, with IPv4 hosts.
        queues: known queues by id.
    """

    __slots__ = ("field", "fixed_bytes", "queues")

    def __init__(self, field: bytes) -> None:
        self.field = field
        self.fixed_bytes = FIXED_BYTES + len(field)
        self.queues: dict[int, ConsumeQueue] = {}


class MessageWriter:
    """Puts messages into one store. Safe to use from any thread.

    Attributes:
        store_host: see `rocketpy.store.message_store.MessageStore`.
    """

    def __init__(  # noqa: PLR0913 - what it needs, one by one
        self,
        config: MessageStoreConfig,
        clock: Clock,
        append_lock: threading.Lock,
        *,
        gate: WriteGate,
        log: CommitLog,
        offsets: StoreOffsets,
        table: ConsumeQueueTable,
        dispatchers: DispatcherList,
        stats: StoreStats,
    ) -> None:
        """Build a writer.

        Args:
            config: limits.
            clock: wall time for store times, monotonic time for durations.
            append_lock: orders all appends to the log.
            gate: decides whether messages are accepted.
            log: the commit log.
            offsets: offsets of the store; a waiting message requests a flush there.
            table: finds and creates queues.
            dispatchers: called with appended messages.
            stats: statistics.
        """
        self.store_host = _LOOPBACK
        self._append_lock = append_lock
        self._time_ms = clock.time_ms
        self._monotonic_ms = clock.monotonic_ms
        self._gate = gate
        self._log = log
        self._offsets = offsets
        self._table = table
        self._dispatchers = dispatchers
        self._stats = stats
        self._delays_ms = parse_delay_levels(config.message_delay_level)
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._max_body_bytes = config.max_message_size
        self._max_topic_bytes = config.max_topic_length
        self._topics: dict[str, _Topic] = {}
        self._lock_begin_ms = 0
        self._last_ms = 0
        self._quiet_until_ms = 0

    def configure(self, config: MessageStoreConfig) -> None:
        """Apply changed limits."""
        self._busy_ms = config.os_page_cache_busy_time_out_mills
        self._max_body_bytes = config.max_message_size

    @property
    def lock_time_ms(self) -> int:
        """Time that the current append has held the lock; 0 if there is none."""
        begin_ms = self._lock_begin_ms
        return max(0, self._monotonic_ms() - begin_ms) if begin_ms else 0

    def put(self, message: PutMessage) -> PutMessageResult:
        """Append one message.

        Returns:
            PUT_OK and the position, or the reason: SERVICE_NOT_AVAILABLE (closed, read-only, disk
            nearly full), OS_PAGE_CACHE_BUSY, MESSAGE_ILLEGAL (topic, queue id, body over
            `maxMessageSize`, a number out of range), PROPERTIES_SIZE_EXCEEDED, or
            CREATE_MAPPED_FILE_FAILED (space, descriptors or memory run short). Then nothing is
            stored.
        """
        # Both are plain attribute reads: the common case takes no lock and makes no call.
        if self._gate.refusal is not None or self._lock_begin_ms:
            refusal = self._refusal()
            if refusal is not None:
                return self._failed(refusal)
        begin_ms = self._monotonic_ms()
        # Sizes and names are checked before the lock, so that an invalid message delays no other.
        known = self._topics.get(message.topic) or self._admit(message.topic)
        body_bytes, properties_bytes = len(message.body), len(message.properties)
        if known is None or body_bytes > self._max_body_bytes:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if properties_bytes > MAX_PROPERTIES_BYTES:
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        try:
            result, code = self._append(message, known, body_bytes + properties_bytes, begin_ms)
        except _REFUSALS as error:
            return self._failed(self._status_of(error))
        finally:
            self._lock_begin_ms = 0
        # Listeners run without the lock: they may put messages themselves.
        if code is not None:
            on_arrival = self._dispatchers.on_arrival
            if on_arrival is not None:
                try:
                    on_arrival(message.topic, message.queue_id, result.queue_offset + 1, code)
                except Exception as error:  # noqa: BLE001 - see `arrival_failed`
                    arrival_failed(message.topic, message.queue_id, error)
        # With SYNC_FLUSH the sender waits: request a flush instead of waiting for the next check.
        elif result.phy_end > self._offsets.visible:
            self._offsets.ask()
        elapsed_ms = self._monotonic_ms() - begin_ms
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)
        return result

    def _append(
        self, message: PutMessage, known: _Topic, variable_bytes: int, begin_ms: int
    ) -> tuple[PutMessageResult, int | None]:
        """Append one checked message; also return its tags code if it is visible at once."""
        store_host = message.store_host or self.store_host
        sys_flag = message.sys_flag & ~HOST_FLAGS
        size = known.fixed_bytes + variable_bytes
        if len(message.born_host) + len(store_host) != _V4_HOSTS_BYTES:
            size, sys_flag = _with_wide_hosts(size, sys_flag, message.born_host, store_host)
        # The checksum is computed outside of the lock: it is the longest part of a put.
        crc = crc32(message.body) & CRC_MASK  # `body_crc`, inlined
        code = message.tags_code
        queue: ConsumeQueue | None = None
        queue_offset = 0
        with self._append_lock:
            # Checked again under the lock: `close` sets it there, and nothing is appended
            # afterwards.
            if not self._gate.is_open:
                return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE), None
            self._lock_begin_ms = begin_ms
            now_ms = self._time_ms()
            # Index files and the checkpoint rely on store times that never descend.
            if now_ms < self._last_ms:  # `next_store_ms`, inlined
                now_ms = self._last_ms
            else:
                self._last_ms = now_ms
            # Half and rolled-back messages have no queue entry and take no queue offset.
            if sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}:
                queue = known.queues.get(message.queue_id)
                # A deletion marks the queue under this lock, so a stale cached queue is detected
                # here.
                if queue is None or queue.is_deleted:
                    queue = self._queue(known, message)
                queue_offset = queue.next_offset
                # Reserving before the append makes a full queue memory fail this put only.
                if queue_offset >= queue.reserved_offset:
                    queue.reserve()
            phy_offset = self._log.append(
                message, size, crc, queue_offset, sys_flag, now_ms, store_host, known.field
            )
            if queue is not None:
                # Advanced after the append, so that a failed append leaves no gap in the queue.
                queue.next_offset = queue_offset + 1
            # Only now is the store time known, from which the delivery time is computed.
            if message.delay_level and message.topic == SCHEDULE_TOPIC:
                code = delivery_time_ms(message.delay_level, now_ms, self._delays_ms)
            # Equivalent to `DispatchRequest(...)`, without its Python frame.
            is_visible = self._dispatchers.submit(_new(DispatchRequest, (
                queue, message.topic, message.queue_id, queue_offset, phy_offset, size, code,
                now_ms, sys_flag, message.uniq_key, message.keys, message.tags,
            )))  # fmt: skip
            stats = self._stats
            stats.put_count += 1
            stats.put_bytes += size
        # Equivalent to `PutMessageResult(...)`, without its Python frame.
        result = _new(PutMessageResult, (_OK, phy_offset, size, queue_offset, now_ms, ()))
        return result, code if is_visible and queue is not None else None

    def next_store_ms(self) -> int:
        """Return the store time of the next record, which never descends (append lock held)."""
        now_ms = self._time_ms()
        if now_ms < self._last_ms:
            return self._last_ms
        self._last_ms = now_ms
        return now_ms

    def lock(self) -> int | None:
        """Take the append lock for a direct append, and return the store time.

        Returns:
            None if messages are rejected or another thread is appending; nothing was done.
        """
        # A direct append never waits: the general path reports the reason and a bounded wait.
        if self._gate.refusal is not None or not self._append_lock.acquire(False):
            return None
        if not self._gate.is_open:
            self._append_lock.release()
            return None
        self._lock_begin_ms = self._monotonic_ms()
        now_ms = self._time_ms()
        if now_ms < self._last_ms:  # `next_store_ms`, inlined
            return self._last_ms
        self._last_ms = now_ms
        return now_ms

    def unlock(self) -> None:
        """Release the append lock after `lock`."""
        elapsed_ms = self._monotonic_ms() - self._lock_begin_ms
        self._lock_begin_ms = 0
        self._append_lock.release()
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)

    def known_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a cached queue; None if `put` must find or create it."""
        known = self._topics.get(topic)
        return None if known is None else known.queues.get(queue_id)

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Append messages of one queue contiguously, all of them or none.

        Returns:
            See `put`; an empty batch, or one larger than `maxMessageSize` or a log file, is
            MESSAGE_ILLEGAL.
        """
        refusal = self._refusal()
        if refusal is not None:
            return self._failed(refusal)
        known = self._topics.get(batch.topic) or self._admit(batch.topic)
        messages = batch.messages
        body_bytes = sum(map(len, messages.bodies))
        if known is None or not messages or body_bytes > self._max_body_bytes:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        if max(map(len, messages.properties)) > MAX_PROPERTIES_BYTES:
            return self._failed(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)
        # Apache rejects transactional batches as well.
        if batch.sys_flag & TRANSACTION_MASK:
            return self._failed(PutMessageStatus.MESSAGE_ILLEGAL)
        begin_ms = self._monotonic_ms()
        crcs = [crc32(body) & CRC_MASK for body in messages.bodies]
        try:
            with self._append_lock:
                if not self._gate.is_open:
                    return self._failed(PutMessageStatus.SERVICE_NOT_AVAILABLE)
                self._lock_begin_ms = begin_ms
                run = self._append_batch(batch, known, crcs, self.next_store_ms())
                is_visible = self._dispatchers.submit(run)
                total_bytes = run.phy_end - run.phy_offsets[0]
                self._stats.put_count += len(messages)
                self._stats.put_bytes += total_bytes
        except _REFUSALS as error:
            return self._failed(self._status_of(error))
        finally:
            self._lock_begin_ms = 0
        if is_visible:
            self._dispatchers.announce(arrivals_of(run))
        else:
            self._offsets.ask()
        elapsed_ms = self._monotonic_ms() - begin_ms
        if elapsed_ms > 0:
            self._stats.put_took(elapsed_ms)
        return PutMessageResult(
            _OK,
            run.phy_offsets[0],
            total_bytes,
            run.queue_offset,
            run.store_timestamp_ms,
            tuple(run.phy_offsets),
        )

    def _append_batch(
        self, batch: PutBatch, known: _Topic, crcs: Sequence[int], now_ms: int
    ) -> DispatchRun:
        store_host = batch.store_host or self.store_host
        sys_flag = batch.sys_flag & ~HOST_FLAGS
        fixed, sys_flag = _with_wide_hosts(known.fixed_bytes, sys_flag, batch.born_host, store_host)
        messages = batch.messages
        lengths = zip(map(len, messages.bodies), map(len, messages.properties), strict=True)
        sizes = [fixed + body_bytes + rest_bytes for body_bytes, rest_bytes in lengths]
        queue = known.queues.get(batch.queue_id)
        if queue is None or queue.is_deleted:
            queue = self._queue(known, batch)
        # All entries are reserved at once: a batch is stored completely or not at all.
        queue.reserve(len(sizes))
        first = queue.next_offset
        phy_offsets = self._log.append_run(
            batch, sizes, crcs, first, sys_flag, now_ms, store_host, known.field
        )
        queue.next_offset = first + len(sizes)
        return DispatchRun(
            queue, batch.topic, first, phy_offsets, sizes, messages, now_ms, sys_flag
        )

    def _refusal(self) -> PutMessageStatus | None:
        if self._gate.refusal is not None:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        begin_ms = self._lock_begin_ms
        if begin_ms:
            left_ms = begin_ms + self._busy_ms - self._monotonic_ms()
            # The wait is bounded, because requests that run on a connection's event loop would
            # block it while another append hangs.
            if left_ms < 0 or not self._append_lock.acquire(timeout=left_ms / 1000):
                return PutMessageStatus.OS_PAGE_CACHE_BUSY
            # Acquired only to wait for the current append; the put takes it again for itself.
            self._append_lock.release()
        return None

    def _failed(self, status: PutMessageStatus) -> PutMessageResult:
        self._stats.put_failed()
        return PutMessageResult(status)

    def _status_of(self, error: Exception) -> PutMessageStatus:
        """Return the status of a failed put; a short resource may be available for the next one."""
        if not isinstance(error, (ResourceShortError, OSError)):
            return PutMessageStatus.MESSAGE_ILLEGAL
        self._gate.note_shortage(shortage_cause(error))
        now_ms = self._monotonic_ms()
        # A full disk would otherwise write a log line for each send, to the same disk.
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            what = "no space" if isinstance(error, DiskFullError) else "a resource runs short"
            logger.error(
                "%s, messages rejected: path=%s reason=%s", what, self._log.directory, error
            )
        return PutMessageStatus.CREATE_MAPPED_FILE_FAILED

    def _admit(self, topic: str) -> _Topic | None:
        """Cache a valid topic; return None if the topic is invalid."""
        # Names of retry and dead-letter topics are longer than the topic or group that they
        # contain.
        limit = 255 if topic.startswith("%") else self._max_topic_bytes
        if not is_safe_topic(topic) or len(topic.encode()) > limit:
            return None
        # Messages of batch queues have another layout that other brokers would misread.
        if self._table.is_batch_topic(topic):
            return None
        known = _Topic(topic_field(topic))
        # Two threads may get here at once; both must use the same object, because it caches queues.
        return self._topics.setdefault(topic, known)

    def _queue(self, known: _Topic, message: PutMessage | PutBatch) -> ConsumeQueue:
        """Find or create a queue (under the append lock)."""
        if self._topics.get(message.topic) is not known:  # deleted meanwhile
            self._topics.setdefault(message.topic, known)
        queue = self._table.get_or_create(message.topic, message.queue_id)
        known.queues[message.queue_id] = queue
        return queue

    def forget_topic(self, topic: str) -> None:
        """Drop the cached data of a topic (append lock held)."""
        self._topics.pop(topic, None)

    def forget_topics(self) -> None:
        """Drop the cached data of all topics."""
        self._topics = {}


def _with_wide_hosts(
    size: int, sys_flag: int, born_host: bytes, store_host: bytes
) -> tuple[int, int]:
    """Add the size of IPv6 hosts, and their flags."""
    if len(born_host) == V6_HOST_BYTES:
        size, sys_flag = size + V6_HOST_BYTES - V4_HOST_BYTES, sys_flag | BORN_HOST_V6
    if len(store_host) == V6_HOST_BYTES:
        size, sys_flag = size + V6_HOST_BYTES - V4_HOST_BYTES, sys_flag | STORE_HOST_V6
    return size, sys_flag
