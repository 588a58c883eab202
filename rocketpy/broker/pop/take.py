"""Take messages from one queue for a pop, and store the check point that gets them back.

One pop of a queue by a group at a time. A message is handed out only when its check point is
stored, or waits for acks in memory while the committed offset stands still; in order, what is in
hand is noted instead.

Source: PopMessageProcessor.popMsgFromQueue (5.4.0).

What a pop asks for, what has been found for it so far, and its outcome.
"""

import struct
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.message_filters import ConsumerFilter
from rocketpy.broker.operation.pull.pull import MAX_PULL_BYTES, MessageReader, PullCounter
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.queue_locks import GroupQueue, PopLocks
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
from rocketpy.store.results import GetMessageResult, GetMessageStatus, PutMessageStatus


class PopRequest(NamedTuple):
    """What a consumer asks for.

    Attributes:
        group: consumer group.
        topic: as it was subscribed.
        queue_id: below 0 is any queue.
        max_count: messages at most, `MAX_POP_COUNT` or fewer.
        invisible_ms: how long nobody else gets the messages.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long it waits for messages, counted from `born_ms`; 0 does not wait.
        init_mode: where a group begins that has no offset, `INIT_MIN` or `INIT_MAX`.
        expression: what it takes; empty takes everything.
        expression_type: of `expression`; None is TAG.
        is_ordered: one pop of a queue at a time, until all of it is acked.
        attempt_id: of an ordered call, which may repeat it.
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
    """The outcome of a pop that was carried out.

    Attributes:
        code: success, or that there is nothing (POLLING_TIMEOUT) and no room to wait
            (POLLING_FULL).
        pop_time_ms: of the handles.
        invisible_ms: of the handles.
        revive_queue_id: of the handles.
        rest_count: messages left, roughly.
        start_offsets: where the pop of each queue began, as the wire has it.
        message_offsets: queue offsets of the messages, as the wire has it.
        order_counts: earlier deliveries, as the wire has it; None unless ordered.
        records: the messages, one record each or several side by side.
        durable_at: the consumer may be told once the log is on disk up to here; 0: at once.
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
    """One pop under way.

    Attributes:
        wanted: what was asked for.
        filter: what it takes; None takes everything.
        revive_queue_id: where its check points go.
        time_ms: wall time, of its handles.
        count: messages found.
        size_bytes: of their records.
        rest: messages left, roughly.
        start_offsets: parts of `Popped.start_offsets`.
        message_offsets: parts of `Popped.message_offsets`.
        order_counts: parts of `Popped.order_counts`.
        records: the messages.
        durable_at: end of the last check point, when it must be on disk.
        not_stored: why a check point could not be stored.
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
        """Whether nothing more is taken."""
        return self.count >= self.wanted.max_count or self.size_bytes >= MAX_PULL_BYTES

    def popped(self, code: int) -> Popped:
        """What is found so far, as the outcome."""
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
"""A read says where to go on instead."""
_PASSED_OVER: Final = frozenset(
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
        store: what to read.
        positions: where pops begin.
        locks: one pop of a queue at a time.
        order: what is in hand in order.
        buffer: where check points wait for acks.
        revive_log: where the others go.
        stats: counters.
        config: the broker's settings; see `configure`.
        sync_flush: consumers are told when check points are on disk.
    """

    def __init__(  # noqa: PLR0913 - the parts a pop touches
        self,
        store: MessageReader,
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
        """Take over changed settings."""
        self._config = config

    def take(self, pop: PopInProgress, queue: GroupQueue) -> None:
        """Take what a queue has for a pop; nothing when another pop is at it."""
        wanted = pop.wanted
        if not self._locks.try_lock(queue):
            if not wanted.is_ordered:
                pop.rest += self._rest(queue, self._positions.of(queue, wanted.init_mode))
            return
        try:
            offset = self._positions.take_reset(queue)
            if offset is not None or not self._positions.is_known(queue):
                self._order.clear(queue)  # what is in hand is of before
            if offset is None:
                offset = self._positions.begin(queue, wanted.init_mode)
            if wanted.is_ordered and self._order.is_blocked(queue, wanted.attempt_id):
                return
            if pop.is_full:
                pop.rest += self._rest(queue, offset)
                return
            self._take(pop, queue, offset)
        finally:
            self._locks.unlock(queue)

    def _take(self, pop: PopInProgress, queue: GroupQueue, offset: int) -> None:
        """Read a locked queue, note what was read, and hand it out."""
        read = self._read(pop, queue, offset)
        if read.status in WRONG_POSITION:
            self._positions.commit(queue, read.next_begin_offset)
            offset = read.next_begin_offset
            read = self._read(pop, queue, offset)
        if read.buffers:
            offsets = [_QUEUE_OFFSET.unpack_from(one, QUEUE_OFFSET_AT)[0] for one in read.buffers]
            if pop.wanted.is_ordered:
                self._note_order(pop, queue, offset, offsets)
            elif not self._keep_check_point(pop, queue, offset, offsets, read):
                pop.rest += read.count
                return
            pop.start_offsets.append(start_offset_part(queue.topic, queue.queue_id, offset))
            pop.message_offsets.append(message_offsets_part(queue.topic, queue.queue_id, offsets))
            self._hand_out(pop, queue, offset, read)
        elif read.status in _PASSED_OVER:
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
        counts, least = self._order.popped(
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
        """A retried message under the topic that the consumer knows, with its handle."""
        try:
            message = decode_message(record, inflate=False)
        except CorruptRecordError:
            return bytes(record)  # its consumer says what is wrong with it
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
            return bytes(record)  # under the retry topic, with a handle of the consumer's making
        message.topic = pop.wanted.topic
        return encode_message(message, properties=properties)

    def _rest(self, queue: GroupQueue, offset: int) -> int:
        return max(0, self._store.max_offset(queue.topic, queue.queue_id) - offset)
