"""Check points and acks of pop consumption, as brokers store them and clients send them.

Source: PopCheckPoint, AckMsg, BatchAckMsg, BatchAck, BatchAckMessageRequestBody of 5.4.0.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import ClassVar, Self

from rocketpy.proto.pop import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG
from rocketpy.proto.wire.json_body import Body, body


@body
class CheckPoint(Body):
    """Record of a pop: messages of a queue that are redelivered unless they are acked.

    Attributes:
        start_offset: first queue offset of the pop.
        pop_time_ms: time of the pop.
        invisible_ms: time until redelivery, from `pop_time_ms`.
        bit_map: bit i: message i is acked.
        count: number of messages.
        queue_id: of the messages.
        topic: of the messages, the retry topic for those popped from there.
        group: consumer group of the pop.
        revive_offset: offset in the revive queue; set by its reader.
        offset_diffs: queue offset of each message, minus `start_offset`; empty in old check
            points, which have consecutive messages.
        broker_name: of the broker that has the messages.
        re_put_times: number of postponements because a message could not be revived.
        revive_time_ms: time of the redelivery.
    """

    wire_names: ClassVar[Mapping[str, str]] = {
        "start_offset": "so",
        "pop_time_ms": "pt",
        "invisible_ms": "it",
        "bit_map": "bm",
        "count": "n",
        "queue_id": "q",
        "topic": "t",
        "group": "c",
        "revive_offset": "ro",
        "offset_diffs": "d",
        "broker_name": "bn",
        "re_put_times": "rp",
        "revive_time_ms": "reviveTime",
    }

    topic: str = ""
    group: str = ""
    queue_id: int = 0
    start_offset: int = 0
    pop_time_ms: int = 0
    invisible_ms: int = 0
    count: int = 0
    offset_diffs: list[int] = field(default_factory=list)
    broker_name: str | None = None
    bit_map: int = 0
    revive_offset: int = 0
    re_put_times: str | None = None
    revive_time_ms: int = 0

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the message that stores it."""
        parts = (
            self.topic,
            self.queue_id,
            self.start_offset,
            self.group,
            self.pop_time_ms,
            self.broker_name,
            CHECK_POINT_TAG,
        )
        return "@".join(map(str, parts))

    def offset_at(self, index: int) -> int:
        """Return the queue offset of a message by its index."""
        if not self.offset_diffs:
            return self.start_offset + index
        return self.start_offset + self.offset_diffs[index]

    def index_of(self, queue_offset: int) -> int:
        """Return the index of a message by its queue offset; -1 if it is not in the check point."""
        diff = queue_offset - self.start_offset
        if not self.offset_diffs:
            return diff if 0 <= diff < self.count else -1
        try:
            return self.offset_diffs.index(diff)
        except ValueError:
            return -1

    def note_acked(self, queue_offsets: Iterable[int]) -> None:
        """Mark messages as acked; offsets of other messages are ignored."""
        for queue_offset in queue_offsets:
            index = self.index_of(queue_offset)
            if index >= 0:
                self.bit_map |= 1 << index

    def include(self, other: Self) -> None:
        """Add the unacked messages of another check point of the same pop.

        All of them are redelivered at the later time of both.
        """
        missing = [each for each in other.offsets(acked=False) if self.index_of(each) < 0]
        if missing:
            mine = self.offset_diffs or [*range(self.count)]
            self.offset_diffs = [*mine, *(each - self.start_offset for each in missing)]
            self.count = len(self.offset_diffs)
        self.invisible_ms = max(self.invisible_ms, other.invisible_ms)

    def offsets(self, *, acked: bool) -> list[int]:
        """Return the queue offsets of acked, or of unacked, messages, in order."""
        return [
            self.offset_at(index)
            for index in range(self.count)
            if bool(self.bit_map >> index & 1) is acked
        ]


@body
class PopAck(Body):
    """Acknowledgement of one message of a check point, or of several (`offsets`)."""

    wire_names: ClassVar[Mapping[str, str]] = {
        "offset": "ao",
        "start_offset": "so",
        "group": "c",
        "topic": "t",
        "queue_id": "q",
        "pop_time_ms": "pt",
        "broker_name": "bn",
        "offsets": "aol",
    }
    old_wire_names: ClassVar[Mapping[str, str]] = {
        "offset": "ackOffset",
        "start_offset": "startOffset",
        "group": "consumerGroup",
        "topic": "topic",
        "queue_id": "queueId",
        "pop_time_ms": "popTime",
        "broker_name": "brokerName",
        "offsets": "ackOffsetList",
    }

    topic: str = ""
    group: str = ""
    queue_id: int = 0
    start_offset: int = 0
    pop_time_ms: int = 0
    broker_name: str | None = None
    offset: int = 0
    offsets: list[int] | None = None

    @property
    def tag(self) -> str:
        """Tag of the message that stores it."""
        return ACK_TAG if self.offsets is None else BATCH_ACK_TAG

    @property
    def unique_key(self) -> str:
        """UNIQ_KEY of the message that stores it, also for batches, as Apache's."""
        parts = (
            self.topic,
            self.queue_id,
            self.offset,
            self.group,
            self.pop_time_ms,
            self.broker_name,
            ACK_TAG,
        )
        return "@".join(map(str, parts))


@body
class BatchAck(Body):
    """Acked messages of one pop of one queue.

    Attributes:
        group: consumer group.
        topic: the subscribed topic.
        retry: mark of the kind of topic.
        start_offset: of the check point.
        queue_id: of the messages.
        revive_queue_id: of the check point.
        pop_time_ms: of the check point.
        invisible_ms: of the check point.
        bit_set: little-endian bits in Base64: bit i acks offset `start_offset` + i.
    """

    wire_names: ClassVar[Mapping[str, str]] = {
        "group": "c",
        "topic": "t",
        "retry": "r",
        "start_offset": "so",
        "queue_id": "q",
        "revive_queue_id": "rq",
        "pop_time_ms": "pt",
        "invisible_ms": "it",
        "bit_set": "b",
    }

    group: str = ""
    topic: str = ""
    retry: str = ""
    start_offset: int = 0
    queue_id: int = 0
    revive_queue_id: int = 0
    pop_time_ms: int = 0
    invisible_ms: int = 0
    bit_set: str = ""


@body
class BatchAckMessageRequestBody(Body):
    """Request 200151: acks of one broker's messages."""

    broker_name: str = ""
    acks: list[BatchAck] = field(default_factory=list)
