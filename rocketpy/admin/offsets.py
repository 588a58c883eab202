"""Operations that move consumer groups: to a time, an offset, or the offsets of another group.

Source: ResetOffsetByTimeCommand, SkipAccumulationSubCommand, CloneGroupOffsetCommand (5.4.0).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from rocketpy.admin.groups import check_group, group_configs, group_lag, no_group
from rocketpy.admin.results import OffsetMove, QueueLag
from rocketpy.admin.servers import Servers
from rocketpy.client.options.validation import fits
from rocketpy.errors import (
    BrokerError,
    ClientError,
    InvalidParameterError,
    QueryNotFoundError,
    own_copy,
)
from rocketpy.proto.bodies.offset import ResetOffsetBody
from rocketpy.proto.bodies.topic import TopicOffset, TopicStatsTable
from rocketpy.proto.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.proto.headers.topic import GetTopicStatsInfoRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import is_retry_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.runtime.config.suggestions import hint

ResetTarget = Literal["earliest", "latest"] | datetime | int
"""Target of a reset: an end of the queues, a time, or an offset of one queue."""


async def reset_offset(
    servers: Servers,
    group: str,
    topic: str,
    to: ResetTarget,
    *,
    queue: MessageQueue | None = None,
    dry_run: bool = False,
) -> list[OffsetMove]:
    """Reset the offsets of a group (222); connected members follow at once.

    Args:
        group: its name; it must exist.
        topic: topic of the queues.
        to: `"earliest"`, `"latest"`, a time, or (with `queue`) an offset.
        queue: only this queue.
        dry_run: only return the moves; raises the errors that a broker would answer.

    Returns:
        The old and the new offset, by queue.

    Raises:
        TypeError, ValueError: `to` has another type or value; nothing is reset.
        ClientError: an offset without a queue.
        SubscriptionGroupNotExistError: the group does not exist.
        InvalidParameterError: the queue does not exist.
        BrokerError: the offset is outside the queue.
        ServersFailedError: some brokers failed; the others are reset, and `done` has their moves.
    """
    _check_target(to)
    if isinstance(to, int) and queue is None:
        raise ClientError("an offset belongs to one queue: name it")
    masters = await servers.topic_masters(topic, queue.broker_name if queue is not None else "")
    if queue is not None:
        name = queue.broker_name
        if name not in masters:
            raise ClientError(f"broker {name} does not serve topic {topic}{hint(name, masters)}")
        masters = {name: masters[name]}
    before = {each.queue: each for each in (await group_lag(servers, group, topic)).queues}
    names = {address: name for name, address in masters.items()}

    async def reset(address: str) -> list[OffsetMove]:
        if not dry_run:
            after = await _reset_at(servers, address, group, topic, to, queue)
        elif group in await group_configs(servers, address):
            after = await _reset_targets(servers, address, names[address], topic, to, queue)
        else:
            raise no_group(group)
        return [
            OffsetMove(
                queue=each,
                from_offset=before[each].consumer_offset if each in before else -1,
                to_offset=offset,
            )
            for each, offset in sorted(after.items())
        ]

    moves = await servers.change(masters, reset)
    return sorted((each for here in moves.values() for each in here), key=lambda move: move.queue)


def _check_target(to: ResetTarget) -> None:
    if fits(ResetTarget, to):
        return
    kind = ValueError if isinstance(to, str) else TypeError
    raise kind(f'{to!r} is neither "earliest" nor "latest", a datetime or an offset')


async def _reset_at(
    servers: Servers,
    address: str,
    group: str,
    topic: str,
    to: ResetTarget,
    queue: MessageQueue | None,
) -> dict[MessageQueue, int]:
    header = ResetOffsetRequestHeader(
        group=group,
        topic=topic,
        queue_id=-1 if queue is None else queue.queue_id,
        offset=to if isinstance(to, int) else None,
        timestamp=_reset_time_ms(to),
        is_force=True,
    )
    response = await servers.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return ResetOffsetBody.decode(response.body).offset_table


async def _reset_targets(
    servers: Servers,
    address: str,
    broker: str,
    topic: str,
    to: ResetTarget,
    queue: MessageQueue | None,
) -> dict[MessageQueue, int]:
    header = GetTopicStatsInfoRequestHeader(topic=topic)
    response = await servers.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
    found: dict[MessageQueue, int] = {}
    for each, offsets in TopicStatsTable.decode(response.body).offset_table.items():
        if queue is not None and each.queue_id != queue.queue_id:
            continue
        key = MessageQueue(topic, broker, each.queue_id)
        if to == "earliest":
            found[key] = offsets.min_offset
        elif to == "latest":
            found[key] = offsets.max_offset
        elif isinstance(to, int):
            _check_offset(to, offsets)
            found[key] = to
        else:
            found[key] = await _offset_at(servers, address, key, _reset_time_ms(to))
    if queue is not None and not found:
        remark = f"Queue {queue.queue_id} of topic {topic} does not exist"
        raise InvalidParameterError(ResponseCode.INVALID_PARAMETER, remark)
    return found


def _check_offset(to: int, offsets: TopicOffset) -> None:
    """Raise the errors that brokers answer; they accept an offset one beyond the end."""
    low, high = offsets.min_offset, offsets.max_offset
    if not low <= to <= high + 1:
        remark = f"Target offset {to} not in consume queue range [{low}-{high}]"
        raise BrokerError.from_code(ResponseCode.SYSTEM_ERROR, remark)


async def _offset_at(servers: Servers, address: str, queue: MessageQueue, time_ms: int) -> int:
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
    )
    response = await servers.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return OffsetResponseHeader.from_ext(response.ext_fields).offset


async def clone_offsets(
    servers: Servers, source: str, target: str, topic: str, *, dry_run: bool = False
) -> list[OffsetMove]:
    """Copy the offsets of one group to another (15 for each queue, as mqadmin does).

    Queues in which the source has no offset stay as they are; brokers report 0 for them.

    Args:
        source: the group to copy from; it must exist.
        target: the group to copy to; it must exist.
        topic: topic of the queues.
        dry_run: only return the moves.

    Returns:
        The old and the new offset of the target, by queue.

    Raises:
        SubscriptionGroupNotExistError: one of the groups does not exist; nothing was stored.
        ServersFailedError: some brokers failed; at the others the offsets are copied, and `done`
            has their moves.
    """
    masters = await servers.topic_masters(topic)
    for group in (source, target):
        await check_group(servers, group)
    progress = await group_lag(servers, source, topic)
    known = await group_lag(servers, target, topic)
    before = {each.queue: each for each in known.queues}
    failures = {**progress.failures, **known.failures}
    wanted: dict[str, list[QueueLag]] = {name: [] for name in masters}
    for each in progress.queues:
        if not is_retry_topic(each.queue.topic):
            wanted.setdefault(each.queue.broker_name, []).append(each)
    _check_known(wanted, masters)
    names = {address: name for name, address in masters.items()}

    async def clone(address: str) -> list[OffsetMove]:
        failure = failures.get(names[address])
        if failure is not None:
            raise own_copy(failure)
        moves = [
            OffsetMove(
                queue=each.queue,
                from_offset=before[each.queue].consumer_offset if each.queue in before else -1,
                to_offset=each.consumer_offset,
            )
            for each in wanted[names[address]]
            if await _is_stored(servers, source, each, address)
        ]
        if not dry_run:
            await _store(servers, address, target, {each.queue: each.to_offset for each in moves})
        return moves

    moves = await servers.change(masters, clone)
    return sorted((each for here in moves.values() for each in here), key=lambda move: move.queue)


def _check_known(brokers: Iterable[str], masters: Mapping[str, str]) -> None:
    unknown = sorted(set(brokers) - masters.keys())
    if unknown:
        raise ClientError(f"broker {', '.join(unknown)} has no registered master to store offsets")


async def _is_stored(servers: Servers, group: str, progress: QueueLag, address: str) -> bool:
    """Return whether a group has an offset in a queue; the statistics report 0 without one (14)."""
    queue = progress.queue
    if progress.consumer_offset != 0:
        return progress.consumer_offset >= 0
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
    )
    try:
        await servers.ask(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    except QueryNotFoundError:
        return False
    return True


async def set_offsets(
    servers: Servers,
    group: str,
    offsets: Mapping[MessageQueue, int],
    masters: Mapping[str, str] | None = None,
) -> None:
    """Store offsets of a group without members (15); connected members would overwrite them.

    Args:
        group: its name; it must exist.
        offsets: of the next message to consume.
        masters: addresses by broker name; queried if None.

    Raises:
        ClientError: a queue's broker is not registered; nothing was stored.
        ValueError: an offset is negative; nothing was stored.
        ServersFailedError: some brokers failed; the others have the offsets.
    """
    for queue, offset in offsets.items():
        if offset < 0:
            raise ValueError(f"the offset of {queue} is {offset}, not 0 or more")
    known = masters if masters is not None else await servers.broker_addresses()
    asked = {queue.broker_name for queue in offsets}
    _check_known(asked, known)
    names = {known[name]: name for name in asked}

    async def store(address: str) -> None:
        here = {
            queue: offset
            for queue, offset in offsets.items()
            if queue.broker_name == names[address]
        }
        await _store(servers, address, group, here)

    await servers.change({name: known[name] for name in sorted(asked)}, store)


async def _store(
    servers: Servers, address: str, group: str, offsets: Mapping[MessageQueue, int]
) -> None:
    for queue, offset in offsets.items():
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await servers.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def _reset_time_ms(to: ResetTarget) -> int:
    """Return the time on the wire: -1 is the end, 0 the beginning."""
    if isinstance(to, datetime):
        return int(to.timestamp() * 1000)
    return -1 if to == "latest" else 0
