"""Finding and printing messages.

Source: QueryMsgByIdSubCommand, QueryMsgByKeySubCommand, QueryMsgByUniqueKeySubCommand,
QueryMsgByOffsetSubCommand, PrintMessageSubCommand (5.4.0).
"""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import Final

from rocketpy.admin.results import Answers
from rocketpy.admin.servers import Servers, checked
from rocketpy.client.options.validation import checked_count
from rocketpy.errors import ClientError, QueryNotFoundError
from rocketpy.proto.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
)
from rocketpy.proto.headers.pull import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryMessageRequestHeader,
    ViewMessageRequestHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.perm import is_readable
from rocketpy.proto.record.message import MessageExt, decode_message, decode_messages
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.record.properties import PROPERTY_UNIQ_KEY
from rocketpy.proto.topic_names import TOOLS_CONSUMER_GROUP
from rocketpy.proto.trace import (
    TRACE_TOPIC,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    TraceRecord,
    decode_traces,
    trace_keys,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.runtime.config.suggestions import hint

_LONG_MAX: Final = (1 << 63) - 1
_SUBSCRIPTION_GIVEN: Final = 4  # PullSysFlag: the request carries its filter
_NOTHING_THERE: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
_PULL_COUNT: Final = 32
_QUERY_COUNT: Final = 64
"""Messages that a broker returns for a query (`maxMsgsNumBatch`), however many are asked for."""


async def message_by_offset_id(servers: Servers, message_id: str) -> MessageExt:
    """Return the message with an offset id, which names a broker and a log offset (33).

    Only brokers of this cluster are asked, because an id may come from anywhere.

    Args:
        message_id: 32 or 56 hex digits, as in a send result's `offset_msg_id`.

    Raises:
        ClientError: the id is malformed, or its broker is not in this cluster.
        SystemFaultError: the broker has no message at that offset.
    """
    try:
        host, phy_offset = decode_message_id(message_id)
    except ValueError as error:
        raise ClientError(f"{message_id!r} is not a message id: {error}") from error
    address = await _known_address(servers, host)
    if address is None:
        raise ClientError(f"{message_id} names {host}, which is not a broker of this cluster")
    header = ViewMessageRequestHeader(offset=phy_offset)
    response = await servers.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    return decode_message(response.body)


async def message_by_unique_id(servers: Servers, topic: str, unique_id: str) -> MessageExt:
    """Return the message with a producer's id, `msg_id` (12).

    Raises:
        QueryNotFoundError: no broker of the topic has it.
        RocketPyError: no broker that answers has it, and others did not answer.
    """
    found = await messages_by_unique_id(servers, topic, unique_id)
    if found:
        return found[0]
    if found.failures:
        raise next(iter(found.failures.values()))
    raise _not_found(f"topic {topic} has no message with the id {unique_id}")


async def messages_by_unique_id(
    servers: Servers, topic: str, unique_id: str
) -> Answers[MessageExt]:
    """Return all messages with a producer's id (12), oldest first: a repeated send has several."""
    found = await _query(servers, topic, unique_id, 32, unique=True)
    return Answers(
        (each for each in found if each.properties.get(PROPERTY_UNIQ_KEY) == unique_id),
        found.failures,
    )


async def message_by_id(servers: Servers, topic: str, message_id: str) -> MessageExt:
    """Return the message with an id of either kind.

    Raises:
        ClientError: there is none.
    """
    try:
        return await message_by_unique_id(servers, topic, message_id)
    except QueryNotFoundError as error:
        try:
            return await message_by_offset_id(servers, message_id)
        except ClientError:
            raise error from None


async def messages_by_key(
    servers: Servers,
    topic: str,
    key: str,
    *,
    max_count: int = 64,
    begin_ms: int = 0,
    end_ms: int = _LONG_MAX,
) -> Answers[MessageExt]:
    """Return messages with a key (12), oldest first; those of one broker in stored order.

    Args:
        topic: topic to search.
        key: one of the keys the message was sent with.
        max_count: limit of all brokers together; the newest are returned. A broker returns 64
            messages at most. `has_more` says whether there are others, or may be.
        begin_ms: earliest store time.
        end_ms: latest store time.

    Raises:
        ValueError: `max_count` is less than 1.
    """
    checked_count(max_count, "max_count")
    found = await _query(servers, topic, key, max_count + 1, begin_ms=begin_ms, end_ms=end_ms)
    matching = [each for each in found if key in each.keys]
    return Answers(
        matching[-max_count:],
        found.failures,
        has_more=found.has_more or len(matching) > max_count,
    )


async def trace(
    servers: Servers, message_id: str, *, topic: str = TRACE_TOPIC, max_count: int = 64
) -> Answers[TraceRecord]:
    """Return the trace records of a message, in the order of time.

    Args:
        message_id: the producer's id, or one of the message's keys.
        topic: the trace topic.
        max_count: limit of trace messages.

    Raises:
        TopicNotExistError: the trace topic does not exist.
        ValueError: `max_count` is less than 1.
    """
    found = await messages_by_key(servers, topic, message_id, max_count=max_count)
    records = [
        record
        for message in found
        for record in decode_traces(message.body.decode("utf-8", "replace"))
        if message_id in trace_keys(record)
    ]
    begins = {
        each.request_id: each.time_ms for each in records if isinstance(each, ConsumeBeginTrace)
    }

    def when(record: TraceRecord) -> int:
        if isinstance(record, ConsumeEndTrace) and not record.time_ms:  # of an old client
            return begins.get(record.request_id, 0) + record.cost_ms
        return record.time_ms

    return Answers(sorted(records, key=when), found.failures, has_more=found.has_more)


async def _query(
    servers: Servers,
    topic: str,
    key: str,
    max_count: int,
    *,
    unique: bool = False,
    begin_ms: int = 0,
    end_ms: int = _LONG_MAX,
) -> Answers[MessageExt]:
    masters = await servers.topic_brokers(topic)
    header = QueryMessageRequestHeader(
        topic=topic,
        key=key,
        max_num=max_count,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
    )
    ext_fields = header.to_ext() | ({"_UNIQUE_KEY_QUERY": "true"} if unique else {})

    async def query(address: str) -> list[MessageExt]:
        request = make_request(RequestCode.QUERY_MESSAGE, dict(ext_fields))
        response = await servers.invoke(address, request)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        return decode_messages(checked(response).body)

    tables, failures = await servers.each(masters, query)
    found = [message for messages in tables.values() for message in messages]
    # A broker stores many messages in one millisecond, so the log offset breaks the tie.
    found.sort(key=lambda each: (each.store_timestamp_ms, each.store_host, each.phy_offset))
    most = min(max_count, _QUERY_COUNT)
    return Answers(
        found, failures, has_more=any(len(messages) >= most for messages in tables.values())
    )


async def message_at(servers: Servers, queue: MessageQueue, offset: int) -> MessageExt:
    """Return the message at an offset of a queue.

    Raises:
        QueryNotFoundError: there is none.
    """
    masters = await servers.topic_brokers(queue.topic)
    if queue.broker_name not in masters:
        name = queue.broker_name
        raise ClientError(f"broker {name} does not serve topic {queue.topic}{hint(name, masters)}")
    address = masters[queue.broker_name]
    found, _ = await _read(servers, address, queue, offset, 1)
    if not found or found[0].queue_offset != offset:
        raise _not_found(f"{queue.broker_name}:{queue.queue_id} has no message at {offset}")
    return found[0]


async def peek(
    servers: Servers,
    topic: str,
    *,
    max_count: int = 32,
    broker: str = "",
    queue_id: int | None = None,
    offset: int | None = None,
    newest: bool = False,
    tag: str = "*",
) -> Answers[MessageExt]:
    """Return messages of a topic without consuming them, oldest first.

    Args:
        topic: topic to search.
        max_count: limit of all queues together.
        broker: only this broker.
        queue_id: only this queue of each broker.
        offset: first offset in each queue; None for the first message.
        newest: start near the end of each queue, so that the newest are included.
        tag: filter, `"a || b"`.

    Raises:
        ClientError: the broker does not serve the topic, or no queue is readable that was asked
            for by number.
        ValueError: `max_count` is less than 1.
    """
    checked_count(max_count, "max_count")
    route = await servers.topic_route(topic)
    masters = await servers.topic_brokers(topic)
    if broker and broker not in masters:
        raise ClientError(f"broker {broker} does not serve topic {topic}{hint(broker, masters)}")
    queues = {
        masters[data.broker_name]: [
            MessageQueue(topic, data.broker_name, number)
            for number in range(data.read_queue_nums)
            if queue_id in {None, number}
        ]
        for data in route.queue_datas
        if data.broker_name in masters and broker in {"", data.broker_name}
        if is_readable(data.perm)
    }
    if queue_id is not None and not any(queues.values()):
        where = f" on broker {broker}" if broker else ""
        raise ClientError(f"topic {topic} has no readable queue {queue_id}{where}")

    async def read(address: str) -> list[MessageExt]:
        here: list[MessageExt] = []
        for queue in queues[address]:
            begin = await _begin(servers, address, queue, offset, max_count if newest else None)
            here += await _read_many(servers, address, queue, begin, max_count, tag)
        return here

    tables, failures = await servers.each(
        {name: address for name, address in masters.items() if address in queues}, read
    )
    found = [message for messages in tables.values() for message in messages]
    found.sort(key=lambda each: (each.store_timestamp_ms, each.queue_id, each.queue_offset))
    return Answers(found[-max_count:] if newest else found[:max_count], failures)


async def _begin(
    servers: Servers, address: str, queue: MessageQueue, offset: int | None, back: int | None
) -> int:
    if offset is not None:
        return offset
    if back is None:
        return await _first_offset(servers, address, queue)
    begin, end = await queue_range(servers, address, queue)
    return max(begin, end - back)


async def _first_offset(servers: Servers, address: str, queue: MessageQueue) -> int:
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    response = await servers.ask(address, RequestCode.GET_MIN_OFFSET, header)
    return max(0, OffsetResponseHeader.from_ext(response.ext_fields).offset)


async def queue_range(servers: Servers, address: str, queue: MessageQueue) -> tuple[int, int]:
    """Return the first offset of a queue, and that of the next message."""
    begin = await _first_offset(servers, address, queue)
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
    response = await servers.ask(address, RequestCode.GET_MAX_OFFSET, header)
    return begin, OffsetResponseHeader.from_ext(response.ext_fields).offset


async def read_range(
    servers: Servers, address: str, queue: MessageQueue, begin: int, end: int
) -> AsyncIterator[MessageExt]:
    """Yield the messages of a queue from one offset to before another."""
    while begin < end:
        messages, next_offset = await _read(servers, address, queue, begin, _PULL_COUNT)
        for message in messages:
            if message.queue_offset < end:
                yield message
        if next_offset <= begin:
            return
        begin = next_offset


async def _read_many(
    servers: Servers, address: str, queue: MessageQueue, begin: int, max_count: int, tag: str
) -> list[MessageExt]:
    found: list[MessageExt] = []
    while len(found) < max_count:
        wanted = min(_PULL_COUNT, max_count - len(found))
        messages, next_offset = await _read(servers, address, queue, begin, wanted, tag)
        found += messages
        if next_offset <= begin:
            break
        begin = next_offset
    return found[:max_count]


async def _read(
    servers: Servers, address: str, queue: MessageQueue, offset: int, max_count: int, tag: str = "*"
) -> tuple[list[MessageExt], int]:
    """Pull once; returns the messages and the next offset, `offset` itself at the end."""
    header = PullMessageRequestHeader(
        consumer_group=TOOLS_CONSUMER_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=max_count,
        sys_flag=_SUBSCRIPTION_GIVEN,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=tag,
        sub_version=servers.clock.time_ms(),
        expression_type="TAG",
    )
    request = make_request(RequestCode.PULL_MESSAGE, header.to_ext())
    response = await servers.invoke(address, request)
    if response.code not in _NOTHING_THERE:
        checked(response)
    next_offset = PullMessageResponseHeader.from_ext(response.ext_fields).next_begin_offset
    if response.code in _NOTHING_THERE:
        at_end = response.code == ResponseCode.PULL_NOT_FOUND
        return [], offset if at_end else next_offset
    return decode_messages(response.body), next_offset


async def _known_address(servers: Servers, host: str) -> str | None:
    """Return the registered address of the cluster's broker at an `ip:port`."""
    info = await servers.cluster_info()
    known = [
        address
        for data in info.broker_addr_table.values()
        for address in data.broker_addrs.values()
    ]
    if host in known:
        return host
    loop = asyncio.get_running_loop()
    ip, _, port = host.rpartition(":")
    for address in known:
        name, _, its_port = address.rpartition(":")
        if its_port == port and not _is_ip(name):
            try:
                found = await loop.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)
            except OSError:
                continue
            if ip.strip("[]") in {each[4][0] for each in found}:
                return address
    return None


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _not_found(reason: str) -> QueryNotFoundError:
    return QueryNotFoundError(ResponseCode.QUERY_NOT_FOUND, reason)
