"""Dispatch: who is told of a message once consumers may see it.

There is one list of dispatchers (consume queue, index; whatever else wants to know of every
message joins it) and one way into it, `DispatcherList.submit`:

- a message that is visible right after its append (ASYNC_FLUSH) goes to the dispatchers at once,
  with the values its sender has in hand;
- otherwise it waits in the `PendingDispatchQueue` until `StoreOffsets.visible` has passed it;
- recovery, index catch-up and a replica make the same `DispatchRequest` from the log
  (`read_back`).

Invariants:
    - messages are dispatched in the order of the log, under the append lock;
    - room in queue and index was reserved before the append, so dispatching does not fail; should
      a dispatcher fail all the same, that costs one message one entry, and is logged.

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
"""Topic, queue id, next queue offset, tags code: what `MessageStore.on_arrival` is told."""


def has_queue_entry(sys_flag: int) -> bool:
    """Whether consumers may see a message: half and rolled-back ones are not for them."""
    return sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}


def has_index_entries(sys_flag: int) -> bool:
    """Whether a message can be found by key."""
    return sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


class DispatchRequest(NamedTuple):
    """What dispatchers are told of one message; also the arguments of `Dispatcher.dispatch`.

    Attributes:
        queue: its consume queue when the caller has it in hand; None otherwise, and for a
            message that has no entry there.
        topic: stored topic.
        queue_id: queue within the topic.
        queue_offset: logical offset in that queue.
        phy_offset: where the record begins.
        size_bytes: of the record.
        tags_code: for the queue entry.
        store_timestamp_ms: when it was appended.
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
    """The messages of one batch: neighbours in the log and in their queue."""

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
    """Messages that somebody else wrote, with all that dispatchers need of them ready.

    Attributes:
        places: for each queue: itself, the first entry's queue offset, the entries as they stand in
            the file, physical end of the last one's message.
        key_hashes: of all keys, for the index.
        key_phy_offsets: for each of them where its message begins.
        arrivals: what the listener is told.
        phy_end: physical offset after the last record.
        store_timestamp_ms: when they were appended.
    """

    places: Sequence[tuple[ConsumeQueue, int, bytes, int]]
    key_hashes: Sequence[int]
    key_phy_offsets: Sequence[int]
    arrivals: Sequence[Arrival]
    phy_end: int
    store_timestamp_ms: int


class Dispatcher(Protocol):
    """Is told of every message, in the order of the log, under the append lock."""

    def dispatch(  # noqa: PLR0913, PLR0917 - an object would cost the hot path
        self,
        queue: ConsumeQueue | None,
        topic: str,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        size_bytes: int,
        tags_code: int,
        store_timestamp_ms: int,
        sys_flag: int,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
    ) -> None:
        """Take one message: the fields of a `DispatchRequest`, in its order."""
        ...

    def dispatch_run(self, run: DispatchRun) -> None:
        """Take the messages of a batch."""
        ...

    def dispatch_encoded(self, run: EncodedRun) -> None:
        """Take messages that somebody else wrote."""
        ...


def delivery_time_ms(level: int, store_timestamp_ms: int, delays_ms: tuple[int, ...]) -> int:
    """Return when a delayed message is due; it takes the place of its tags code.

    Args:
        level: delay level from 1; levels above the last one count as the last.
        store_timestamp_ms: when it was stored.
        delays_ms: the delays, level 1 first.
    """
    if level < 1 or not delays_ms:
        return store_timestamp_ms + _UNKNOWN_LEVEL_MS
    return store_timestamp_ms + delays_ms[min(level, len(delays_ms)) - 1]


def read_back(
    found: RecordCheck, phy_offset: int, delays_ms: tuple[int, ...]
) -> DispatchRequest | None:
    """Make a request from a record of the log; None when its topic is not text."""
    try:
        topic = found.topic.decode()
    except UnicodeDecodeError:
        return None
    properties = parse_properties(found.properties)
    tags = properties.get(PROPERTY_TAGS)
    code = tags_code(tags)
    delay = properties.get(PROPERTY_DELAY_TIME_LEVEL, "")
    if topic == SCHEDULE_TOPIC and delay.isascii() and delay.isdigit():
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


Pending: TypeAlias = DispatchRequest | DispatchRun | EncodedRun
"""What waits to become visible."""


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
    """Tells every dispatcher of every visible message, and then the listener for arrivals.

    Attributes:
        pending: messages and batches that wait to become visible; the append lock guards it.
        on_arrival: told of each readable message, without a lock; see
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
            dispatchers: told of each message in this order.
            offsets: says what is visible; its ``dispatched`` is moved here.
            append_lock: held by whoever calls `submit` or `submit_run`.
        """
        self._dispatchers = tuple(dispatchers)
        self._dispatch = tuple(each.dispatch for each in self._dispatchers)
        self._offsets = offsets
        self._append_lock = append_lock
        self.pending: PendingDispatchQueue = PendingDispatchQueue()
        self.on_arrival: Callable[[str, int, int, int], None] | None = None

    @property
    def pending_count(self) -> int:
        """Messages and batches that wait to become visible."""
        return len(self.pending)

    def submit(  # noqa: PLR0913, PLR0917 - an object would cost the hot path
        self,
        queue: ConsumeQueue | None,
        topic: str,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        size_bytes: int,
        tags_code: int,
        store_timestamp_ms: int,
        sys_flag: int,
        uniq_key: str | None,
        keys: str | None,
        tags: str | None,
    ) -> bool:
        """Dispatch an appended message now, or when it becomes visible (append lock held).

        The arguments are the fields of a `DispatchRequest`.

        Returns:
            Whether it was dispatched; the caller then announces it without the lock.
        """
        offsets = self._offsets
        if self.pending or phy_offset + size_bytes > offsets.visible_bound:
            self.pending.append(
                DispatchRequest(
                    queue,
                    topic,
                    queue_id,
                    queue_offset,
                    phy_offset,
                    size_bytes,
                    tags_code,
                    store_timestamp_ms,
                    sys_flag,
                    uniq_key,
                    keys,
                    tags,
                )
            )
            return False
        try:
            for dispatch in self._dispatch:
                dispatch(
                    queue,
                    topic,
                    queue_id,
                    queue_offset,
                    phy_offset,
                    size_bytes,
                    tags_code,
                    store_timestamp_ms,
                    sys_flag,
                    uniq_key,
                    keys,
                    tags,
                )
        except Exception:  # the message is in the log: it costs one entry
            logger.exception("dispatch failed: phy_offset=%d", phy_offset)
        offsets.dispatched = phy_offset + size_bytes
        offsets.dispatched_ms = store_timestamp_ms
        return True

    def submit_run(self, run: DispatchRun) -> bool:
        """Dispatch the messages of a batch; see `submit`."""
        offsets = self._offsets
        if self.pending or run.phy_end > offsets.visible_bound:
            self.pending.append(run)
            return False
        self._dispatch_one(run)
        offsets.dispatched = run.phy_end
        offsets.dispatched_ms = run.store_timestamp_ms
        return True

    def submit_later(self, run: EncodedRun) -> None:
        """Dispatch messages that are not visible yet when they are (append lock held)."""
        self.pending.append(run)

    def release(self, visible: int) -> None:
        """Dispatch what has become visible, and announce it."""
        arrivals: list[Arrival] = []
        offsets = self._offsets
        with self._append_lock:
            for each in self.pending.take(visible):
                self._dispatch_one(each)
                arrivals += arrivals_of(each)
                offsets.dispatched = each.phy_end
                offsets.dispatched_ms = each.store_timestamp_ms
        self.announce(arrivals)

    def _dispatch_one(self, request: Pending) -> None:
        try:
            if isinstance(request, DispatchRun):
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch_run(request)
            elif isinstance(request, EncodedRun):
                for dispatcher in self._dispatchers:
                    dispatcher.dispatch_encoded(request)
            else:
                for dispatch in self._dispatch:
                    dispatch(*request)
        except Exception:  # whatever it is must not cost the messages behind it
            logger.exception("dispatch failed: phy_end=%d", request.phy_end)

    def announce(self, arrivals: Iterable[Arrival]) -> None:
        """Tell the listener of readable messages (append lock not held)."""
        if self.on_arrival is None:
            return
        for arrival in arrivals:
            try:
                self.on_arrival(*arrival)
            except Exception as error:  # noqa: BLE001 - see `arrival_failed`
                arrival_failed(arrival[0], arrival[1], error)


def arrival_failed(topic: str, queue_id: int, error: Exception) -> None:
    """Log what a listener raised: the message is stored, and storing it again would double it."""
    logger.error("a listener failed: topic=%s queue_id=%d", topic, queue_id, exc_info=error)


def arrivals_of(request: Pending) -> list[Arrival]:
    """Return what the listener is told: one arrival a message, or one a tags code of a batch."""
    if isinstance(request, EncodedRun):
        gone = {(q.topic, q.queue_id) for q, *_ in request.places if q.is_deleted}
        return [each for each in request.arrivals if each[:2] not in gone]
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
    """Return what the listener is told of a batch.

    Args:
        topic: stored topic.
        queue_id: queue within the topic.
        following: queue offset after its last message.
        tags_codes: of its messages.
    """
    return [(topic, queue_id, following, code) for code in set(tags_codes)]
