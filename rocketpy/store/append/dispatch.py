"""Dispatch: passes visible messages to consume queues, index and the arrival listener.

There is one list of dispatchers (consume queue, index, and others that need every message) and one
entry point, `DispatcherList.submit`:

- a message that is visible right after its append (ASYNC_FLUSH) is dispatched at once, with the
  values of the put;
- otherwise it waits in the `PendingDispatchQueue` until `StoreOffsets.visible` has passed it;
- recovery, index catch-up and a replica create the same `DispatchRequest` from the log
  (`read_back`).

Invariants:
    - messages are dispatched in the order of the log, under the append lock;
    - space in queue and index was reserved before the append, so dispatching does not fail; if a
      dispatcher fails nevertheless, one message loses one entry, and the error is logged.

Source: DefaultMessageStore.doDispatch, CommitLogDispatcher,
CommitLog.checkMessageAndReturnSize (5.4.0).
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    parse_properties,
)
from rocketpy.proto.record.record_check import RecordCheck
from rocketpy.proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.results import BatchColumns
from rocketpy.store.store_offsets import StoreOffsets

logger: logging.Logger = logging.getLogger(__name__)

_UNKNOWN_LEVEL_MS: Final = 1_000

Arrival = tuple[str, int, int, int]
"""Arguments of `MessageStore.on_arrival`: topic, queue id, next queue offset, tags code."""


def has_queue_entry(sys_flag: int) -> bool:
    """Return whether consumers may read a message, which excludes half and rolled-back ones."""
    return sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}


def has_index_entries(sys_flag: int) -> bool:
    """Return whether a message is indexed by key."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


class DispatchRequest(NamedTuple):
    """Message for dispatchers.

    Attributes:
        queue: its consume queue if the caller knows it; None otherwise, and for a message without
            a queue entry.
        topic: stored topic.
        queue_id: queue within the topic.
        queue_offset: logical offset in that queue.
        phy_offset: physical offset of the record.
        size_bytes: size of the record.
        tags_code: tags code of the queue entry.
        store_timestamp_ms: store time.
        sys_flag: system flags.
        uniq_key: UNIQ_KEY property.
        keys: KEYS property.
        tags: TAGS property.
    """

    queue: ConsumeQueue | None
    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    sys_flag: int
    uniq_key: str | None
    keys: str | None
    tags: str | None

    @property
    def phy_end(self) -> int:
        """Physical offset after the record."""
        return self.phy_offset + self.size_bytes


class DispatchRun(NamedTuple):
    """Messages of one batch, contiguous in the log and in their queue."""

    queue: ConsumeQueue
    topic: str
    queue_offset: int
    phy_offsets: Sequence[int]
    sizes_bytes: Sequence[int]
    messages: BatchColumns
    store_timestamp_ms: int
    sys_flag: int

    @property
    def phy_end(self) -> int:
        """Physical offset after the last record."""
        return self.phy_offsets[-1] + self.sizes_bytes[-1]


class EncodedRun(NamedTuple):
    """Messages of a direct append, with encoded queue entries and hashed keys.

    Attributes:
        places: for each queue: the queue, the first entry's queue offset, the encoded entries, and
            the physical end of the last message.
        key_hashes: hashes of all keys, for the index.
        key_phy_offsets: physical offset of the message of each key.
        arrivals: arguments for the arrival listener.
        phy_end: physical offset after the last record.
        store_timestamp_ms: store time.
    """

    places: Sequence[tuple[ConsumeQueue, int, bytes, int]]
    key_hashes: Sequence[int]
    key_phy_offsets: Sequence[int]
    arrivals: Sequence[Arrival]
    phy_end: int
    store_timestamp_ms: int


class RecordRange(NamedTuple):
    """Consecutive records that a replica appended, whose entries are made from the log.

    Attributes:
        phy_offset: physical offset of the first record.
        phy_end: physical offset after the last one.
        store_timestamp_ms: store time of the last one.
        put: writes their queue entries and keys, and adds to `arrivals` (append lock held).
        arrivals: arguments for the arrival listener, once they are put.
    """

    phy_offset: int
    phy_end: int
    store_timestamp_ms: int
    put: Callable[["RecordRange"], None]
    arrivals: list[Arrival]


class Dispatcher(Protocol):
    """Receives every visible message, in the order of the log, under the append lock."""

    def dispatch(self, request: DispatchRequest) -> None:
        """Process one message."""
        ...

    def dispatch_run(self, run: DispatchRun) -> None:
        """Process the messages of a batch."""
        ...

    def dispatch_encoded(self, run: EncodedRun) -> None:
        """Process the messages of a direct append."""
        ...


def delivery_time_ms(level: int, store_timestamp_ms: int, delays_ms: tuple[int, ...]) -> int:
    """Return the delivery time of a delayed message, which replaces its tags code.

    Args:
        level: delay level from 1; levels above the last one count as the last.
        store_timestamp_ms: store time.
        delays_ms: delays, level 1 first.
    """
    if level < 1 or not delays_ms:
        return store_timestamp_ms + _UNKNOWN_LEVEL_MS
    return store_timestamp_ms + delays_ms[min(level, len(delays_ms)) - 1]


def read_back(
    found: RecordCheck, phy_offset: int, delays_ms: tuple[int, ...]
) -> DispatchRequest | None:
    """Return the request of a record of the log; None if its topic is not valid text."""
    try:
        topic = found.topic.decode()
    except UnicodeDecodeError:
        return None
    properties = parse_properties(found.properties)
    tags = properties.get(PROPERTY_TAGS)
    code = tags_code(tags)
    delay = properties.get(PROPERTY_DELAY_TIME_LEVEL, "")
    if topic == SCHEDULE_TOPIC and delay.isascii() and delay.isdigit():
        # The property comes from a client: limit its digits before the conversion.
        code = delivery_time_ms(int(delay[:9]), found.store_timestamp_ms, delays_ms)
    return DispatchRequest(
        None,
        topic,
        found.queue_id,
        found.queue_offset,
        phy_offset,
        found.size_bytes,
        code,
        found.store_timestamp_ms,
        found.sys_flag,
        properties.get(PROPERTY_UNIQ_KEY),
        properties.get(PROPERTY_KEYS),
        tags,
    )


Pending: TypeAlias = DispatchRequest | DispatchRun | EncodedRun | RecordRange
"""Item of the `PendingDispatchQueue`."""


class PendingDispatchQueue(deque[Pending]):
    """Messages that are not visible yet, in the order of the log; the append lock guards it."""

    __slots__ = ()

    def take(self, visible: int) -> list[Pending]:
        """Remove and return those that end at or before a physical offset."""
        taken = []
        while self and self[0].phy_end <= visible:
            taken.append(self.popleft())
        return taken


class DispatcherList:
    """Calls every dispatcher with every visible message, and then the arrival listener.

    Attributes:
        pending: messages and batches that are not visible yet; guarded by the append lock.
        on_arrival: called for each readable message, without a lock; see
            `rocketpy.store.message_store.MessageStore`.
    """

    def __init__(
        self,
        dispatchers: Iterable[Dispatcher],
        offsets: StoreOffsets,
        append_lock: threading.Lock,
    ) -> None:
        """Build the list.

        Args:
            dispatchers: called in this order.
            offsets: defines the visible part; its `dispatched` is advanced here.
            append_lock: held by callers of `submit`.
        """
        self._dispatchers = tuple(dispatchers)
        self._dispatch = tuple(each.dispatch for each in self._dispatchers)
        self._offsets = offsets
        self._append_lock = append_lock
        self.pending: PendingDispatchQueue = PendingDispatchQueue()
        self.on_arrival: Callable[[str, int, int, int], None] | None = None

    @property
    def pending_count(self) -> int:
        """Number of messages and batches that are not visible yet."""
        return len(self.pending)

    def submit(self, request: DispatchRequest | DispatchRun | RecordRange) -> bool:
        """Dispatch appended messages now, or when they become visible (append lock held).

        Returns:
            Whether it was dispatched; the caller then announces it without the lock.
        """
        offsets, phy_end = self._offsets, request.phy_end
        # A message must not overtake pending ones, even if it is visible itself.
        if self.pending or phy_end > offsets.visible_bound:
            self.pending.append(request)
            return False
        self._dispatch_one(request)
        # Advanced even after a failure: the message would otherwise block all later ones.
        offsets.dispatched = phy_end
        offsets.dispatched_ms = request.store_timestamp_ms
        return True

    def submit_later(self, run: EncodedRun) -> None:
        """Dispatch messages as soon as they become visible (append lock held)."""
        self.pending.append(run)

    def release(self, visible: int) -> None:
        """Dispatch messages that have become visible, and call the listener."""
        arrivals: list[Arrival] = []
        offsets = self._offsets
        # Queue entries are written under the append lock, like those of direct dispatch.
        with self._append_lock:
            # More may be visible by now. A message that was appended meanwhile waits behind pending
            # ones, also if nothing will move the offsets any more.
            for each in self.pending.take(max(visible, offsets.visible)):
                self._dispatch_one(each)
                arrivals += arrivals_of(each)
                offsets.dispatched = each.phy_end
                offsets.dispatched_ms = each.store_timestamp_ms
        # Without the lock: a listener may take a lock of the broker that a put holds.
        self.announce(arrivals)

    def _dispatch_one(self, request: Pending) -> None:
        try:
            if isinstance(request, DispatchRequest):  # the common case first
                for dispatch in self._dispatch:
                    dispatch(request)
            elif isinstance(request, DispatchRun):
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch_run(request)
            elif isinstance(request, EncodedRun):
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch_encoded(request)
            else:
                request.put(request)
        except Exception:  # the message is in the log: a failure costs one entry
            logger.exception("dispatch failed: phy_end=%d", request.phy_end)

    def announce(self, arrivals: Iterable[Arrival]) -> None:
        """Call the listener for readable messages (append lock not held)."""
        if self.on_arrival is None:
            return
        for arrival in arrivals:
            try:
                self.on_arrival(*arrival)
            except Exception as error:  # noqa: BLE001 - see `arrival_failed`
                arrival_failed(arrival[0], arrival[1], error)


def arrival_failed(topic: str, queue_id: int, error: Exception) -> None:
    """Log a listener's error; the put succeeds, because a retry would duplicate the message."""
    logger.error("arrival listener failed: topic=%s queue_id=%d", topic, queue_id, exc_info=error)


def arrivals_of(request: Pending) -> list[Arrival]:
    """Return the arrivals of a request: one per message, or one per tags code of a batch."""
    if isinstance(request, EncodedRun):
        # Topics may be deleted while their messages wait for the flush.
        gone = {(q.topic, q.queue_id) for q, *_ in request.places if q.is_deleted}
        return [each for each in request.arrivals if each[:2] not in gone]
    if isinstance(request, RecordRange):
        return request.arrivals
    queue = request.queue
    if not has_queue_entry(request.sys_flag) or (queue is not None and queue.is_deleted):
        return []
    if isinstance(request, DispatchRequest):
        return [(request.topic, request.queue_id, request.queue_offset + 1, request.tags_code)]
    following = request.queue_offset + len(request.messages)
    codes = request.messages.tags_codes
    return batch_arrivals(request.topic, request.queue.queue_id, following, codes)


def batch_arrivals(
    topic: str, queue_id: int, following: int, tags_codes: Iterable[int]
) -> list[Arrival]:
    """Return the arrivals of a batch.

    Args:
        topic: stored topic.
        queue_id: queue within the topic.
        following: queue offset after its last message.
        tags_codes: tags codes of its messages.
    """
    # One arrival for each tags code is enough to wake every matching pull.
    return [(topic, queue_id, following, code) for code in set(tags_codes)]
