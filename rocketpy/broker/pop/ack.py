"""Acks, one message or many, and changes of how long a message stays invisible.

A handle comes from the network. What it says of queue, offset and topic is checked against the
store; what it says of a check point is not known here: unless that one waits in memory, an ack or a
new check point is stored, and the revive service finds out whether it belongs to anything. A handle
that no broker makes is refused, so that nothing is kept by numbers somebody thought up.

Source: AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java (5.4.0).
"""

import base64
import binascii
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.checks import bad_queue, no_topic
from rocketpy.broker.pop.order_info import NOT_POPPED, OrderTable
from rocketpy.broker.pop.positions import QueueEnds
from rocketpy.broker.pop.queue_locks import GroupQueue, PopLocks
from rocketpy.broker.pop.revive.revive_log import MAX_INVISIBLE_MS, ReviveLog, key_of
from rocketpy.broker.pop.waiters import PopWaiters
from rocketpy.proto.bodies.pop import BatchAck, CheckPoint, PopAck
from rocketpy.proto.pop import ORDER_REVIVE_QUEUE, PopHandle, parse_handle, real_topic
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageResult, PutMessageStatus

MAX_BIT_SET_CHARS: Final = 8_192
"""Longest bit set of a batch ack that is read; a pop has 32 messages and a filter between them."""
_LATE_CHANGE_MS: Final = 1_000
"""So long after a message's time another one can be asked for: it does not come back sooner."""
_CLOCK_LEEWAY_MS: Final = 24 * 3_600 * 1_000
"""How far the clock may have gone back since a message was popped: its ack counts all the same."""


class Acked(NamedTuple):
    """The outcome of an ack.

    Attributes:
        durable_at: the consumer may be told once the log is on disk up to here; 0: at once.
    """

    durable_at: int = 0


class Changed(NamedTuple):
    """The outcome of a change of the invisible time: what the new handle is made of.

    Attributes:
        pop_time_ms: in place of the old handle's.
        invisible_ms: in place of the old handle's.
        revive_queue_id: as the old handle's.
        durable_at: as in `Acked`.
    """

    pop_time_ms: int = 0
    invisible_ms: int = 0
    revive_queue_id: int = 0
    durable_at: int = 0


class AckOperation:
    """Takes acks; safe from any thread.

    Args:
        topics: topic table.
        ends: where queues begin and end.
        offsets: committed offsets, which acks in order move.
        locks: one operation on a queue in order at a time.
        order: what is in hand in order.
        buffer: check points that wait for acks.
        revive_log: where the other acks go.
        waiters: pops that wait for a queue in order.
        broker_name: of this broker.
        sync_flush: acks must be on disk.
        clock: time.
    """

    def __init__(  # noqa: PLR0913 - the parts an ack touches
        self,
        *,
        topics: TopicTable,
        ends: QueueEnds,
        offsets: ConsumerOffsets,
        locks: PopLocks,
        order: OrderTable,
        buffer: CheckPointBuffer,
        revive_log: ReviveLog,
        waiters: PopWaiters,
        broker_name: str,
        sync_flush: bool,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._ends = ends
        self._offsets = offsets
        self._locks = locks
        self._order = order
        self._buffer = buffer
        self._revive_log = revive_log
        self._waiters = waiters
        self._broker_name = broker_name
        self._sync_flush = sync_flush
        self._clock = clock

    def ack(self, queue: GroupQueue, queue_offset: int, handle_text: str) -> Acked | Refusal:
        """Ack one message.

        Args:
            queue: where it lies; of a retried message in its retry topic.
            queue_offset: of the message.
            handle_text: as it was handed out.
        """
        refused = self._check_place(queue, queue_offset, 1)
        if refused is not None:
            return refused
        handle = self._handle(handle_text)
        if isinstance(handle, Refusal):
            return handle
        if handle.is_ordered:
            return self._ack_ordered(queue, queue_offset, handle.pop_time_ms) or Acked()
        return self._store_ack(queue, handle, [queue_offset], is_batch=False)

    def ack_batch(self, broker_name: str, ack: BatchAck) -> Acked | Refusal:
        """Ack messages of one pop of one queue; those that cannot exist are passed over.

        Args:
            broker_name: that the consumer popped them from.
            ack: which.
        """
        try:
            topic = real_topic(ack.topic, ack.group, ack.retry)
            bits = list(_bits(ack.bit_set))
        except ValueError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        known = self._topics.get(topic)
        if known is None or not 0 <= ack.queue_id < known.read_queue_nums:
            return Acked()  # as Apache: there is nothing to ack
        least = self._ends.min_offset(topic, ack.queue_id)
        most = self._ends.max_offset(topic, ack.queue_id)
        offsets = [
            ack.start_offset + bit for bit in bits if least <= ack.start_offset + bit <= most
        ]
        if not offsets:
            return Acked()
        handle = PopHandle(
            ack.start_offset,
            ack.pop_time_ms,
            ack.invisible_ms,
            ack.revive_queue_id,
            ack.retry,
            broker_name,
            ack.queue_id,
        )
        refused = self._check_handle(handle)
        if refused is not None:
            return refused
        queue = GroupQueue(topic, ack.group, ack.queue_id)
        if not handle.is_ordered:
            return self._store_ack(queue, handle, offsets, is_batch=True)
        for offset in offsets:
            refused = self._ack_ordered(queue, offset, handle.pop_time_ms) or refused
        return refused or Acked()

    def change_invisible(
        self, queue: GroupQueue, queue_offset: int, handle_text: str, invisible_ms: int
    ) -> Changed | Refusal:
        """Let a message come back at another time: a new check point, and the old one is acked.

        Args:
            queue: where the message lies.
            queue_offset: of the message.
            handle_text: as it was handed out.
            invisible_ms: from now on.
        """
        refused = self._check_place(queue, queue_offset, 0)
        if refused is not None:
            return refused
        handle = self._handle(handle_text)
        if isinstance(handle, Refusal):
            return handle
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            remark = f"invisibleTime is 0 to {MAX_INVISIBLE_MS} ms, not {invisible_ms}"
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if handle.is_ordered:
            return self._change_ordered(queue, queue_offset, handle, invisible_ms)
        if handle.broker_name != self._broker_name:
            remark = f"the message was popped from broker {handle.broker_name[:255]}"
            return Refusal(ResponseCode.NO_MESSAGE, remark)
        now_ms = self._clock.time_ms()
        if handle.pop_time_ms + handle.invisible_ms < now_ms - _LATE_CHANGE_MS:
            # It comes back, or came: another check point would bring it once more, acked or not.
            remark = "the invisible time of the message is over"
            return Refusal(ResponseCode.NO_MESSAGE, remark)
        # Never the time of the check point that it follows: the ack of that one would be its own.
        pop_time_ms = max(now_ms, handle.pop_time_ms + 1)
        point = CheckPoint(
            queue.topic,
            queue.group,
            queue.queue_id,
            queue_offset,
            pop_time_ms,
            invisible_ms,
            1,
            [0],
            handle.broker_name,
        )
        stored = self._revive_log.put_check_point(point, handle.revive_queue_id)
        if stored.status is not PutMessageStatus.PUT_OK:
            return self._not_stored(stored)
        acked = self._store_ack(queue, handle, [queue_offset], is_batch=False)
        if isinstance(acked, Refusal):
            return acked  # it comes back earlier than wished, which is no loss
        return Changed(pop_time_ms, invisible_ms, handle.revive_queue_id, acked.durable_at)

    # -- in order --------------------------------------------------------------------------

    def _ack_ordered(
        self, queue: GroupQueue, queue_offset: int, pop_time_ms: int
    ) -> Refusal | None:
        topic, group, queue_id = queue
        with self._locks.held(queue):
            committed = self._offsets.query(group, topic, queue_id)
            if queue_offset < committed:
                return None
            if committed == NO_OFFSET:  # its topic was deleted; another one may have its name
                return None
            next_offset = self._order.acked(queue, queue_offset, pop_time_ms)
            if next_offset == NOT_POPPED:
                remark = (
                    f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, "
                    f"commit:{queue_offset}, next:{next_offset}"
                )
                return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
            if next_offset >= 0 and not self._offsets.has_reset(group, topic, queue_id):
                self._offsets.commit(group, topic, queue_id, next_offset)
        if next_offset >= 0 and not self._order.is_blocked(queue):
            self._waiters.wake(queue)
        return None

    def _change_ordered(
        self, queue: GroupQueue, queue_offset: int, handle: PopHandle, invisible_ms: int
    ) -> Changed:
        topic, group, queue_id = queue
        with self._locks.held(queue):
            if queue_offset < self._offsets.query(group, topic, queue_id):
                return Changed()
            visible_ms = self._clock.time_ms() + invisible_ms
            self._order.change_visible(queue, queue_offset, handle.pop_time_ms, visible_ms)
        self._waiters.wake(queue)  # who waits for the queue waits for another time now
        return Changed(handle.pop_time_ms, visible_ms - handle.pop_time_ms, handle.revive_queue_id)

    # -- with check points -----------------------------------------------------------------

    def _store_ack(
        self, queue: GroupQueue, handle: PopHandle, offsets: list[int], *, is_batch: bool
    ) -> Acked | Refusal:
        if handle.broker_name != self._broker_name:
            return Acked()  # as Apache: it belongs to no check point that there can be here
        topic, group, queue_id = queue
        ack = PopAck(
            topic,
            group,
            queue_id,
            handle.check_point_offset,
            handle.pop_time_ms,
            handle.broker_name,
            -1 if is_batch else offsets[0],
            offsets if is_batch else None,
        )
        if self._buffer.ack(key_of(ack), offsets):
            return Acked()
        stored = self._revive_log.put_ack(
            ack, handle.revive_queue_id, handle.pop_time_ms + handle.invisible_ms
        )
        if stored.status is not PutMessageStatus.PUT_OK:
            return self._not_stored(stored)
        return Acked(stored.phy_end if self._sync_flush else 0)

    def _not_stored(self, stored: PutMessageResult) -> Refusal:
        return Refusal(ResponseCode.SYSTEM_ERROR, f"not stored: {stored.status.value}")

    # -- checks ----------------------------------------------------------------------------

    def _check_place(self, queue: GroupQueue, queue_offset: int, beyond: int) -> Refusal | None:
        """Check queue and offset; an ack may be one beyond the last message, as Apache's may."""
        topic, _, queue_id = queue
        known = self._topics.get(topic)
        if known is None:
            return no_topic(topic)
        if not 0 <= queue_id < known.read_queue_nums:
            remark = bad_queue(topic, queue_id, known.read_queue_nums)
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        least = self._ends.min_offset(topic, queue_id)
        most = self._ends.max_offset(topic, queue_id)
        if not least <= queue_offset < most + beyond:
            remark = (
                f"offset is illegal, key:{topic}@{queue_id}, commit:{queue_offset}, "
                f"store:{least}~{most}"
            )
            return Refusal(ResponseCode.NO_MESSAGE, remark)
        return None

    def _handle(self, text: str) -> PopHandle | Refusal:
        try:
            handle = parse_handle(text)
        except ValueError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"bad extraInfo: {error}")
        return self._check_handle(handle) or handle

    def _check_handle(self, handle: PopHandle) -> Refusal | None:
        """Refuse what no broker hands out."""
        latest_ms = self._clock.time_ms() + _CLOCK_LEEWAY_MS
        if (
            not 0 <= handle.pop_time_ms <= latest_ms
            or not 0 <= handle.invisible_ms <= latest_ms
            or not (
                0 <= handle.revive_queue_id < self._revive_log.queue_nums
                or handle.revive_queue_id == ORDER_REVIVE_QUEUE
            )
        ):
            remark = f"no broker handed this out: {handle.text()[:255]}"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        return None


def _bits(text: str) -> Iterator[int]:
    """Positions of the bits that are set.

    Raises:
        ValueError: it is too long, or no Base64.
    """
    if len(text) > MAX_BIT_SET_CHARS:
        raise ValueError(f"a bit set of {len(text)} characters, at most {MAX_BIT_SET_CHARS}")
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"a bit set that is no Base64: {error}") from None
    for index, byte in enumerate(data):
        for bit in range(8):
            if byte >> bit & 1:
                yield index * 8 + bit
