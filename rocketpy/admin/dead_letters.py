"""Dead letters of consumer groups: listing, and sending them back to their topics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rocketpy.admin.messages import message_at, messages_by_unique_id, queue_range, read_range
from rocketpy.admin.results import Answers
from rocketpy.admin.servers import Servers
from rocketpy.client.options.validation import checked_count
from rocketpy.errors import ClientError, NoRouteError
from rocketpy.proto.headers.send import SendMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.perm import is_readable, is_writeable
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_DLQ_EXCEPTION,
    PROPERTY_DLQ_MEMBER,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_DLQ_REASON,
    PROPERTY_DLQ_TIME,
    PROPERTY_INSTANCE_ID,
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    SYSTEM_PROPERTIES,
    properties_text,
)
from rocketpy.proto.record.tags import java_string_hash
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC, DLQ_PREFIX, TOOLS_CONSUMER_GROUP
from rocketpy.proto.wire.codes import RequestCode

REQUEUED_FROM: Final = "REQUEUED_FROM"
"""Property of a requeued message: `group/broker/queue/offset` of the dead letter."""

ORIGIN_TOPIC: Final = (PROPERTY_DLQ_ORIGIN_TOPIC, PROPERTY_RETRY_TOPIC)
"""Properties that name the topic that a dead letter was sent to; the first one counts."""

ORIGIN_ID: Final = (PROPERTY_DLQ_ORIGIN_MESSAGE_ID, PROPERTY_ORIGIN_MESSAGE_ID)
"""Properties with the offset id of the original message; the first one counts."""

_KEPT: Final = frozenset(
    {
        PROPERTY_INSTANCE_ID,
        PROPERTY_KEYS,
        PROPERTY_SHARDING_KEY,
        PROPERTY_TAGS,
        PROPERTY_UNIQ_KEY,
    }
)
"""System properties that a requeued message keeps."""

NOT_REQUEUED: Final = (SYSTEM_PROPERTIES - _KEPT) | {REQUEUED_FROM}
"""Properties that a requeued message does not keep: they describe the failed deliveries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Message in the dead letter topic of a group, without its body.

    Attributes:
        group: group that failed to consume it.
        queue: its queue in the dead letter topic.
        offset: its offset there.
        msg_id: the producer's id, as of the original message.
        letter_id: offset id of the letter.
        origin_topic: topic that the message was sent to.
        origin_id: offset id of the original message; its producer's id if unknown.
        stored_ms: when it became a dead letter.
        retries: deliveries after the first one.
        tag, keys: of the message.
        exception, reason, member: why and at which client the last delivery failed, as RocketPy
            records it; empty for other clients and brokers.
        failed_ms: when it failed, ms since 1970; 0 if unknown.
    """

    group: str
    queue: MessageQueue
    offset: int
    msg_id: str
    letter_id: str
    origin_topic: str
    origin_id: str
    stored_ms: int
    retries: int
    tag: str
    keys: list[str]
    exception: str = ""
    reason: str = ""
    member: str = ""
    failed_ms: int = 0

    @property
    def location(self) -> str:
        """Location of the letter, `group/broker/queue/offset`."""
        return f"{self.group}/{self.queue.broker_name}/{self.queue.queue_id}/{self.offset}"


async def dead_letters(
    servers: Servers, group: str, *, max_count: int | None = None
) -> Answers[DeadLetter]:
    """Return the dead letters of a group, oldest first.

    Args:
        group: its name.
        max_count: limit; the newest are returned. None for all.

    Raises:
        TopicNotExistError: the group has no dead letter topic.
        ClientError: the topic is not readable, as brokers before 5.0 create it.
        ValueError: `max_count` is less than 1.
    """
    if max_count is not None:
        checked_count(max_count, "max_count")
    topic = DLQ_PREFIX + group
    route = await servers.topic_route(topic)
    masters = await servers.topic_brokers(topic)
    queues = {
        masters[data.broker_name]: [
            MessageQueue(topic, data.broker_name, number) for number in range(data.read_queue_nums)
        ]
        for data in route.queue_datas
        if data.broker_name in masters and is_readable(data.perm)
    }
    if route.queue_datas and not queues:
        raise ClientError(
            f"topic {topic} is not readable: `rocketpy topic update {topic} --perm rw`"
        )

    async def read(address: str) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        for queue in queues[address]:
            begin, end = await queue_range(servers, address, queue)
            if max_count is not None:
                begin = max(begin, end - max_count - 1)
            async for message in read_range(servers, address, queue, begin, end):
                found.append(_letter(group, queue, message))  # noqa: PERF401 - asynchronous
        return found

    asked = {name: address for name, address in masters.items() if address in queues}
    tables, failures = await servers.each(asked, read)
    letters = [letter for here in tables.values() for letter in here]
    letters.sort(key=lambda each: (each.stored_ms, each.queue, each.offset))
    kept = letters if max_count is None else letters[-max_count:]
    return Answers(kept, failures, has_more=len(kept) < len(letters))


async def requeue_dead_letter(
    servers: Servers, letter: DeadLetter, *, dry_run: bool = False
) -> bool:
    """Send a dead letter back to the topic it was sent to, unless that was done before.

    The copy has the body, tag, keys, flag and user properties of the message, and its producer's
    id; its deliveries are counted from 0. Every group of the topic receives it. Its property
    `REQUEUED_FROM` is the letter's location: a message in the topic with the same id and location
    shows that the letter was requeued before. That needs the brokers' index (`messageIndexEnable`).

    Args:
        letter: one of `dead_letters`.
        dry_run: only check.

    Returns:
        Whether it was sent, or would be; False if it was requeued before.

    Raises:
        TopicNotExistError: its topic does not exist any more.
        RocketPyError: a broker of the topic did not answer, so that it is not known whether the
            letter was requeued; or the send failed.
    """
    unique_id = letter.msg_id
    copies = await messages_by_unique_id(servers, letter.origin_topic, unique_id)
    for copy in copies:
        is_newer = copy.store_timestamp_ms >= letter.stored_ms  # not of a deleted dead letter topic
        if is_newer and copy.properties.get(REQUEUED_FROM) == letter.location:
            return False
    if copies.failures:
        raise next(iter(copies.failures.values()))
    if not dry_run:
        message = await message_at(servers, letter.queue, letter.offset)
        properties = message.properties
        kept = {name: properties[name] for name in properties if name not in NOT_REQUEUED}
        kept |= {PROPERTY_UNIQ_KEY: unique_id, REQUEUED_FROM: letter.location}
        await _send(servers, letter.origin_topic, message, kept)
    return True


async def _send(
    servers: Servers, topic: str, message: MessageExt, properties: Mapping[str, str]
) -> None:
    """Send once: a send that failed may be stored, which the next run finds out."""
    route = await servers.topic_route(topic)
    masters = {
        data.broker_name: data.master_addr for data in route.broker_datas if data.master_addr
    }
    queues = [
        (masters[data.broker_name], number)
        for data in sorted(route.queue_datas, key=lambda each: each.broker_name)
        if data.broker_name in masters and is_writeable(data.perm)
        for number in range(data.write_queue_nums)
    ]
    if not queues:
        raise NoRouteError(f"topic {topic} has no queue that can be written")
    order_key = properties.get(PROPERTY_SHARDING_KEY)
    index = message.queue_offset if order_key is None else abs(java_string_hash(order_key))
    address, queue_id = queues[index % len(queues)]
    header = SendMessageRequestHeader(
        producer_group=TOOLS_CONSUMER_GROUP,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=1,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=servers.clock.time_ms(),
        flag=message.flag,
        properties=properties_text(properties),
        reconsume_times=0,
    )
    await servers.ask(address, RequestCode.SEND_MESSAGE, header, message.body)


def _letter(group: str, queue: MessageQueue, message: MessageExt) -> DeadLetter:
    properties = message.properties
    failed_ms = properties.get(PROPERTY_DLQ_TIME, "")
    return DeadLetter(
        group=group,
        queue=queue,
        offset=message.queue_offset,
        msg_id=message.msg_id,
        letter_id=message.offset_msg_id,
        origin_topic=_first(properties, ORIGIN_TOPIC) or message.topic,
        origin_id=_first(properties, ORIGIN_ID) or message.msg_id,
        stored_ms=message.store_timestamp_ms,
        retries=message.reconsume_times,
        tag=message.tags or "",
        keys=message.keys,
        failed_ms=int(failed_ms) if failed_ms.isdecimal() else 0,
        exception=properties.get(PROPERTY_DLQ_EXCEPTION, ""),
        reason=properties.get(PROPERTY_DLQ_REASON, ""),
        member=properties.get(PROPERTY_DLQ_MEMBER, ""),
    )


def _first(properties: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the first of some properties that is not empty."""
    return next((found for name in names if (found := properties.get(name))), "")
