"""Acks of popped messages, single or in batches, and changes of their invisible time.

A handle comes from the network. Its queue, offset and topic are checked against the store. Whether
its check point exists is not checked: unless that check point is buffered in memory, the ack or the
new check point is stored, and the revive service finds out whether they belong together. Handles
with impossible values are refused, so that a forged number cannot keep records alive for long.

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
from rocketpy.broker.pop.pop_locks import GroupQueue, PopLocks
from rocketpy.broker.pop.revive.revive_log import MAX_INVISIBLE_MS, ReviveLog, key_of
from rocketpy.broker.pop.suspended_pops import SuspendedPops
from rocketpy.proto.bodies.pop import BatchAck, CheckPoint, PopAck
from rocketpy.proto.pop import ORDER_REVIVE_QUEUE, PopHandle, parse_handle, real_topic
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import QueueBounds
from rocketpy.store.results import PutMessageResult, PutMessageStatus

MAX_BIT_SET_CHARS: Final = 8_192
"""Longest bit set of a batch ack. A pop has 32 messages, but a filter may skip many in between."""
_LATE_CHANGE_MS: Final = 1_000
"""Tolerance after the invisible time ended within which it can still be extended."""
_CLOCK_LEEWAY_MS: Final = 24 * 3_600 * 1_000
"""How far the clock may be set back between a pop and its ack."""


class Acked(NamedTuple):
    """Outcome of an ack.

    Attributes:
        durable_at: the response may be sent once the log is flushed up to here; 0: at once.
    """

    durable_at: int = 0


class Changed(NamedTuple):
    """Outcome of a change of the invisible time: the parts of the new handle.

    Attributes:
        pop_time_ms: replaces the pop time of the old handle.
        invisible_ms: replaces the invisible time of the old handle.
        revive_queue_id: revive queue, as in the old handle.
        durable_at: as in `Acked`.
    """

    pop_time_ms: int = 0
    invisible_ms: int = 0
    revive_queue_id: int = 0
    durable_at: int = 0


class AckOperation:
    """Carries out acks; safe from any thread.

    Args:
        topics: topic table.
        ends: first and last offsets of queues.
        offsets: committed offsets, which ordered acks advance.
        locks: admits one ordered operation on a queue at a time.
        order: unacknowledged messages of ordered groups.
        buffer: check points in memory.
        revive_log: stores the acks of all other check points.
        waiters: suspended pops, woken when an ordered queue becomes free.
        broker_name: name of this broker.
        sync_flush: whether responses wait until acks are on disk.
        clock: time.
    """

    def __init__(  # noqa: PLR0913 - the parts an ack touches
        self,
        *,
        topics: TopicTable,
        ends: QueueBounds,
        offsets: ConsumerOffsets,
        locks: PopLocks,
        order: OrderTable,
        buffer: CheckPointBuffer,
        revive_log: ReviveLog,
        waiters: SuspendedPops,
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
            queue: queue of the message; a retried message is in its retry topic.
            queue_offset: offset of the message.
            handle_text: the handle from the pop.
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
        """Ack messages of one pop of one queue; offsets outside the queue are skipped.

        Args:
            broker_name: broker that the messages were popped from.
            ack: the acked messages.
        """
        try:
            topic = real_topic(ack.topic, ack.group, ack.retry)
            bits = list(_bits(ack.bit_set))
        except ValueError as error:
            return Refusal(ResponseCode.SYSTEM_ERROR, str(error))
        known = self._topics.get(topic)
        if known is None or not 0 <= ack.queue_id < known.read_queue_nums:
            return Acked()  # as Apache: messages of a deleted queue need no ack
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
        """Redeliver a message at another time: store a new check point, and ack the old one.

        Args:
            queue: queue of the message.
            queue_offset: offset of the message.
            handle_text: the handle from the pop.
            invisible_ms: new invisible time, counted from now.
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
            # The message was or is about to be redelivered. A new check point would redeliver it
            # once more, even if it is acked meanwhile.
            remark = "the invisible time of the message is over"
            return Refusal(ResponseCode.NO_MESSAGE, remark)
        # It must differ from the time of the old check point: keys contain it, and the ack of the
        # old check point would otherwise ack the new one.
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
            # Two check points: the message is redelivered at the earlier time, and is not lost.
            return acked
        return Changed(pop_time_ms, invisible_ms, handle.revive_queue_id, acked.durable_at)

    # -- ordered ---------------------------------------------------------------------------

    def _ack_ordered(
        self, queue: GroupQueue, queue_offset: int, pop_time_ms: int
    ) -> Refusal | None:
        topic, group, queue_id = queue
        with self._locks.held(queue):
            committed = self._offsets.query(group, topic, queue_id)
            if queue_offset < committed:
                return None
            # The topic was deleted; the ack must not commit an offset of its successor.
            if committed == NO_OFFSET:
                return None
            next_offset = self._order.record_ack(queue, queue_offset, pop_time_ms)
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
        # Suspended pops of the queue compute their wake-up time again.
        self._waiters.wake(queue)
        return Changed(handle.pop_time_ms, visible_ms - handle.pop_time_ms, handle.revive_queue_id)

    # -- with check points -----------------------------------------------------------------

    def _store_ack(
        self, queue: GroupQueue, handle: PopHandle, offsets: list[int], *, is_batch: bool
    ) -> Acked | Refusal:
        if handle.broker_name != self._broker_name:
            return Acked()  # as Apache: another broker's check point cannot be stored here
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
        """Check queue and offset; `beyond` offsets after the end are allowed, as in Apache."""
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
        """Refuse a handle with values that no broker hands out."""
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
    """Yield the positions of the bits that are set.

    Raises:
        ValueError: the text is too long, or not Base64.
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
