"""Text formats of pop consumption: handles of messages, and offsets in responses.

A handle (property `POP_CK`, field `extraInfo`) identifies a message and its check point:
`checkPointOffset popTime invisibleTime reviveQueueId mark brokerName queueId queueOffset`.
The mark distinguishes the topic from its two kinds of retry topics.

Source: ExtraInfoUtil, KeyBuilder, PopAckConstants of 5.4.0.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rocketpy.proto.topic_names import RETRY_PREFIX, pop_retry_topic_v1, pop_retry_topic_v2

ORDER_REVIVE_QUEUE: Final = 999
"""Revive queue id of ordered pops, which have no check point."""

MARK_NORMAL: Final = "0"
MARK_RETRY_V1: Final = "1"
MARK_RETRY_V2: Final = "2"

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"

INIT_MIN: Final = 0
INIT_MAX: Final = 1

MAX_POP_COUNT: Final = 32
"""Most messages of a pop: a check point has as many bits."""

_V2_SEPARATOR: Final = "+"
_MAX_DIGITS: Final = 20


class PopHandle(NamedTuple):
    """Handle of a popped message.

    Attributes:
        check_point_offset: first queue offset of the pop.
        pop_time_ms: wall time of the pop, at the broker.
        invisible_ms: time for which the message is invisible.
        revive_queue_id: queue of the check point, or `ORDER_REVIVE_QUEUE`.
        mark: topic or kind of retry topic.
        broker_name: of the broker it was popped from.
        queue_id: of the message.
        queue_offset: of the message; None in handles of old clients.
    """

    check_point_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    mark: str
    broker_name: str
    queue_id: int
    queue_offset: int | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether the pop was ordered."""
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def text(self) -> str:
        """Text of the handle, as in a property."""
        return " ".join([str(part) for part in self if part is not None])


def parse_handle(text: str) -> PopHandle:
    """Parse a handle.

    Raises:
        ValueError: it has too few parts, or one of them is not a number.
    """
    parts = text.split(" ")
    if len(parts) not in {7, 8}:
        raise ValueError(f"a handle has 8 parts, this one has {len(parts)}")
    numbers = [_number(parts[index]) for index in (0, 1, 2, 3, 6)]
    return PopHandle(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        parts[4],
        parts[5],
        numbers[4],
        _number(parts[7]) if len(parts) == 8 else None,
    )


def retry_mark(topic: str) -> str:
    """Return the mark of a topic from which messages were popped."""
    if not topic.startswith(RETRY_PREFIX):
        return MARK_NORMAL
    return MARK_RETRY_V2 if _V2_SEPARATOR in topic else MARK_RETRY_V1


def real_topic(topic: str, group: str, mark: str) -> str:
    """Return the topic of a mark.

    Args:
        topic: the subscribed topic.
        group: the consumer's.
        mark: of a handle.

    Raises:
        ValueError: the mark is unknown.
    """
    if mark == MARK_NORMAL:
        return topic
    if mark == MARK_RETRY_V1:
        return pop_retry_topic_v1(topic, group)
    if mark == MARK_RETRY_V2:
        return pop_retry_topic_v2(topic, group)
    raise ValueError(f"unknown mark of a topic: {mark[:32]!r}")


def normal_topic(topic: str, group: str) -> str:
    """Return the topic of a group's pop retry topic; other topics are returned unchanged."""
    for prefix in (pop_retry_topic_v2("", group), pop_retry_topic_v1("", group)):
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


def start_offset_part(topic: str, queue_id: int, offset: int) -> str:
    """Return the part of a queue in `startOffsetInfo`; parts are joined with `;`."""
    return f"{retry_mark(topic)} {queue_id} {offset}"


def message_offsets_part(topic: str, queue_id: int, offsets: Iterable[int]) -> str:
    """Return the part of a queue in `msgOffsetInfo`."""
    return f"{retry_mark(topic)} {queue_id} {','.join(map(str, offsets))}"


def order_count_parts(
    topic: str, queue_id: int, counts: Mapping[int, int], least: int
) -> list[str]:
    """Return the part of a queue in `orderCountInfo`.

    Args:
        topic: of the queue.
        queue_id: the queue.
        counts: queue offset to number of earlier deliveries, without zeros.
        least: smallest number of all messages, for old clients.
    """
    mark = retry_mark(topic)
    parts = [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in counts.items()]
    return [*parts, f"{mark} {queue_id} {least}"]


def parse_queue_values(text: str | None) -> dict[tuple[str, str], Sequence[int]]:
    """Parse `startOffsetInfo`, `msgOffsetInfo` or `orderCountInfo`.

    Returns:
        Mark and queue (or message, `qo<queue>%<offset>`) to numbers.

    Raises:
        ValueError: the text is invalid, or has a duplicate queue.
    """
    values: dict[tuple[str, str], Sequence[int]] = {}
    for part in (text or "").split(";"):
        if not part:
            continue
        fields = part.split(" ")
        if len(fields) != 3:
            raise ValueError(f"not the offsets of a queue: {part[:64]!r}")
        key = fields[0], fields[1]
        if key in values:
            raise ValueError(f"a queue twice: {part[:64]!r}")
        values[key] = [_number(each) for each in fields[2].split(",")]
    return values


def revive_topic(cluster_name: str) -> str:
    """Return the topic of a cluster's check points and acks."""
    return REVIVE_TOPIC_PREFIX + cluster_name


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        raise ValueError(f"not a number: {text[:32]!r}")
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"a number of more than 64 bits: {text[:32]!r}")
    return value
