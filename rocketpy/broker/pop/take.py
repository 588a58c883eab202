"""Takes messages from one queue for a pop, and stores the check point that redelivers them.

A queue is popped for one group at a time. Messages are handed out only after their check point was
stored, or was added to the buffer of check points while the committed offset stays before them.
Ordered pops have no check point; the order table records what the group has not acked.

Source: PopMessageProcessor.popMsgFromQueue (5.4.0).
"""

import struct
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import ConsumerFilter
from rocketpy.broker.operation.pull.pull import MAX_PULL_BYTES, PullCounter
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.pop_locks import GroupQueue, PopLocks
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.revive.revive_log import ReviveLog
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.pop import (
    PopHandle,
    message_offsets_part,
    order_count_parts,
    retry_mark,
    start_offset_part,
)
from rocketpy.proto.record.message import decode_message, encode_message
from rocketpy.proto.record.properties import PROPERTY_POP_CK, encode_properties
from rocketpy.proto.record.record import QUEUE_OFFSET_AT
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.store.interfaces import JoiningReader
from rocketpy.store.results import GetMessageResult, GetMessageStatus, PutMessageStatus


class PopRequest(NamedTuple):
    """Parameters of a pop request.

    Attributes:
        group: consumer group.
        topic: the subscribed topic.
        queue_id: queue to pop; below 0 means all queues.
        max_count: maximal number of messages, at most `MAX_POP_COUNT`.
        invisible_ms: how long the messages are invisible to other consumers.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long the request may be suspended, counted from `born_ms`; 0: not at all.
        init_mode: first offset of a group that has none, `INIT_MIN` or `INIT_MAX`.
        expression: filter expression; empty accepts everything.
        expression_type: type of `expression`; None means TAG.
        is_ordered: whether a queue is blocked until all popped messages are acked.
        attempt_id: identifies an ordered call, so that its repetition is not blocked by itself.
    """

    group: str
    topic: str
    queue_id: int
    max_count: int
    invisible_ms: int
    born_ms: int
    poll_ms: int
    init_mode: int
    expression: str = ""
    expression_type: str | None = None
    is_ordered: bool = False
    attempt_id: str | None = None


class Popped(NamedTuple):
    """Outcome of a pop that was carried out.

    Attributes:
        code: SUCCESS; POLLING_TIMEOUT when no message was found; POLLING_FULL when no message was
            found and the pop could not be suspended.
        pop_time_ms: pop time in the handles.
        invisible_ms: invisible time in the handles.
        revive_queue_id: revive queue in the handles.
        rest_count: estimate of the messages left.
        start_offsets: first offset of the pop in each queue, in wire format.
        message_offsets: queue offsets of the messages, in wire format.
        order_counts: numbers of earlier deliveries, in wire format; None unless ordered.
        records: the messages; one item may hold several consecutive records.
        durable_at: the response may be sent once the log is flushed up to here; 0: at once.
    """

    code: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    rest_count: int = 0
    start_offsets: str = ""
    message_offsets: str = ""
    order_counts: str | None = None
    records: tuple[bytes, ...] = ()
    durable_at: int = 0


class PopInProgress:
    """Messages found so far by one pop.

    Attributes:
        wanted: the request.
        filter: filter of the request; None accepts everything.
        revive_queue_id: revive queue of its check points.
        time_ms: wall time of the pop, as in its handles.
        count: number of messages found.
        size_bytes: total size of their records.
        rest: estimate of the messages left.
        start_offsets: parts of `Popped.start_offsets`.
        message_offsets: parts of `Popped.message_offsets`.
        order_counts: parts of `Popped.order_counts`.
        records: the messages.
        durable_at: end of the last check point, with synchronous flush.
        not_stored: why a check point could not be stored; None when all were.
    """

    __slots__ = (
        "count",
        "durable_at",
        "filter",
        "message_offsets",
        "not_stored",
        "order_counts",
        "records",
        "rest",
        "revive_queue_id",
        "size_bytes",
        "start_offsets",
        "time_ms",
        "wanted",
    )

    def __init__(
        self,
        wanted: PopRequest,
        message_filter: ConsumerFilter | None,
        revive_queue_id: int,
        time_ms: int,
    ) -> None:
        self.wanted: PopRequest = wanted
        self.filter: ConsumerFilter | None = message_filter
        self.revive_queue_id: int = revive_queue_id
        self.time_ms: int = time_ms
        self.count: int = 0
        self.size_bytes: int = 0
        self.rest: int = 0
        self.start_offsets: list[str] = []
        self.message_offsets: list[str] = []
        self.order_counts: list[str] = []
        self.records: list[bytes] = []
        self.durable_at: int = 0
        self.not_stored: PutMessageStatus | None = None

    @property
    def is_full(self) -> bool:
        """Whether the limit of messages or bytes is reached."""
        return self.count >= self.wanted.max_count or self.size_bytes >= MAX_PULL_BYTES

    def popped(self, code: int) -> Popped:
        """Return the messages found so far as an outcome."""
        return Popped(
            code,
            self.time_ms,
            self.wanted.invisible_ms,
            self.revive_queue_id,
            self.rest,
            ";".join(self.start_offsets),
            ";".join(self.message_offsets),
            ";".join(self.order_counts) if self.wanted.is_ordered else None,
            tuple(self.records),
            self.durable_at,
        )


_QUEUE_OFFSET: Final = struct.Struct(">q")
WRONG_POSITION: Final = frozenset(
    {
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.OFFSET_FOUND_NULL,
    }
)
"""Statuses of a read that names the offset at which reading must continue."""
_SKIPPED: Final = frozenset(
    {
        GetMessageStatus.NO_MATCHED_MESSAGE,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    }
)


class QueueTaker:
    """Takes messages from queues; safe from any thread.

    Args:
        store: source of the messages.
        positions: next offsets of the groups.
        locks: admits one pop of a queue at a time.
        order: unacknowledged messages of ordered groups.
        buffer: keeps check points that are soon acked in memory.
        revive_log: stores all other check points.
        stats: counters.
        config: the broker's settings; see `configure`.
        sync_flush: whether a response waits until its check points are on disk.
    """

    def __init__(  # noqa: PLR0913 - the parts a pop touches
        self,
        store: JoiningReader,
        *,
        positions: PopPositions,
        locks: PopLocks,
        order: OrderTable,
        buffer: CheckPointBuffer,
        revive_log: ReviveLog,
        stats: PullCounter,
        config: BrokerConfig,
        sync_flush: bool,
    ) -> None:
        self._store = store
        self._positions = positions
        self._locks = locks
        self._order = order
        self._buffer = buffer
        self._revive_log = revive_log
        self._stats = stats
        self._config = config
        self._sync_flush = sync_flush

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def take(self, pop: PopInProgress, queue: GroupQueue) -> None:
        """Add the messages of a queue to a pop; none when another pop holds the queue's lock."""
        wanted = pop.wanted
        # A pop never waits for another one: it would hold a thread of the pool meanwhile, and
        # the messages of other queues are as good.
        if not self._locks.try_lock(queue):
            if not wanted.is_ordered:
                pop.rest += self._rest(queue, self._positions.next_offset(queue, wanted.init_mode))
            return
        try:
            offset = self._positions.take_reset(queue)
            if offset is not None or not self._positions.is_known(queue):
                # The entry describes messages before the reset, or of a deleted topic.
                self._order.clear(queue)
            if offset is None:
                offset = self._positions.start_offset(queue, wanted.init_mode)
            if wanted.is_ordered and self._order.is_blocked(queue, wanted.attempt_id):
                return
            if pop.is_full:
                pop.rest += self._rest(queue, offset)
                return
            self._take(pop, queue, offset)
        finally:
            self._locks.unlock(queue)

    def _take(self, pop: PopInProgress, queue: GroupQueue, offset: int) -> None:
        """Read a locked queue, record its messages as unacknowledged, and add them to the pop."""
        read = self._read(pop, queue, offset)
        if read.status in WRONG_POSITION:
            self._positions.commit(queue, read.next_begin_offset)
            offset = read.next_begin_offset
            read = self._read(pop, queue, offset)
        if read.buffers:
            offsets = [_QUEUE_OFFSET.unpack_from(one, QUEUE_OFFSET_AT)[0] for one in read.buffers]
            # The record comes first: a message that is handed out without one, as before a
            # crash, would be lost if its consumer fails.
            if pop.wanted.is_ordered:
                self._note_order(pop, queue, offset, offsets)
            elif not self._keep_check_point(pop, queue, offset, offsets, read):
                pop.rest += read.count
                return
            pop.start_offsets.append(start_offset_part(queue.topic, queue.queue_id, offset))
            pop.message_offsets.append(message_offsets_part(queue.topic, queue.queue_id, offsets))
            self._hand_out(pop, queue, offset, read)
        elif read.status in _SKIPPED:
            self._positions.commit(queue, read.next_begin_offset)
        pop.rest += max(0, read.max_offset - read.next_begin_offset)

    def _read(self, pop: PopInProgress, queue: GroupQueue, offset: int) -> GetMessageResult:
        return self._store.get_message(
            queue.topic,
            queue.queue_id,
            offset,
            pop.wanted.max_count - pop.count,
            MAX_PULL_BYTES - pop.size_bytes,
            pop.filter,
        )

    def _note_order(
        self, pop: PopInProgress, queue: GroupQueue, offset: int, offsets: list[int]
    ) -> None:
        counts, least = self._order.record_pop(
            queue,
            offsets,
            pop_time_ms=pop.time_ms,
            invisible_ms=pop.wanted.invisible_ms,
            attempt_id=pop.wanted.attempt_id,
        )
        pop.order_counts += order_count_parts(queue.topic, queue.queue_id, counts, least)
        self._positions.commit(queue, offset)

    def _keep_check_point(
        self,
        pop: PopInProgress,
        queue: GroupQueue,
        offset: int,
        offsets: list[int],
        read: GetMessageResult,
    ) -> bool:
        point = CheckPoint(
            queue.topic,
            queue.group,
            queue.queue_id,
            offset,
            pop.time_ms,
            pop.wanted.invisible_ms,
            len(offsets),
            [one - offset for one in offsets],
            self._config.broker_name,
        )
        if self._buffer.add(point, queue, read.next_begin_offset, pop.revive_queue_id):
            return True
        stored = self._revive_log.put_check_point(point, pop.revive_queue_id)
        if stored.status is not PutMessageStatus.PUT_OK:
            pop.not_stored = stored.status
            return False
        self._positions.advance(queue, read.next_begin_offset, stored.phy_end)
        if self._sync_flush:
            pop.durable_at = max(pop.durable_at, stored.phy_end)
        return True

    def _hand_out(
        self, pop: PopInProgress, queue: GroupQueue, offset: int, read: GetMessageResult
    ) -> None:
        wanted = pop.wanted
        is_retry = queue.topic != wanted.topic
        if is_retry and not self._config.pop_response_return_actual_retry_topic:
            records = [self._as_original(pop, queue, offset, record) for record in read.buffers]
        else:
            records = [b"".join(read.buffers)]
        pop.records += records
        pop.count += read.count
        pop.size_bytes += read.size_bytes
        self._stats.inc_get(queue.group, queue.topic, read.count, read.size_bytes)

    def _as_original(
        self, pop: PopInProgress, queue: GroupQueue, offset: int, record: memoryview
    ) -> bytes:
        """Return a retried message under the topic that the consumer subscribed, with its handle.

        The record itself is returned when it is damaged (the consumer reports that), or when the
        handle does not fit into its properties (the consumer then builds the handle).
        """
        try:
            message = decode_message(record, inflate=False)
        except CorruptRecordError:
            return bytes(record)
        message.properties[PROPERTY_POP_CK] = PopHandle(
            offset,
            pop.time_ms,
            pop.wanted.invisible_ms,
            pop.revive_queue_id,
            retry_mark(queue.topic),
            self._config.broker_name,
            queue.queue_id,
            message.queue_offset,
        ).text()
        properties = encode_properties(message.properties)
        if len(properties) > MAX_PROPERTIES_BYTES:
            return bytes(record)
        message.topic = pop.wanted.topic
        return encode_message(message, properties=properties)

    def _rest(self, queue: GroupQueue, offset: int) -> int:
        return max(0, self._store.max_offset(queue.topic, queue.queue_id) - offset)
