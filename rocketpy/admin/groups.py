"""Operations on consumer groups and producers.

Source: ConsumerProgressSubCommand, UpdateSubGroupSubCommand, ConsumerConnectionSubCommand,
ProducerConnectionSubCommand (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from rocketpy.admin.results import Answers, GroupLag, GroupSummary, Member, QueueLag
from rocketpy.admin.servers import Servers
from rocketpy.errors import (
    BrokerError,
    ConsumerNotOnlineError,
    RocketPyError,
    ServersFailedError,
    SubscriptionGroupNotExistError,
)
from rocketpy.proto.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from rocketpy.proto.bodies.heartbeat import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from rocketpy.proto.bodies.running import ConsumerRunningInfo
from rocketpy.proto.bodies.stats import ConsumeStats, OffsetWrapper
from rocketpy.proto.headers.admin import GetConsumeStatsRequestHeader
from rocketpy.proto.headers.client import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rocketpy.proto.headers.topic import DeleteSubscriptionGroupRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import is_system_group, retry_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode

T = TypeVar("T")

# ---- configuration


async def group_configs(servers: Servers, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Return every group of one broker by its name (201)."""
    response = await servers.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupWrapper.decode(response.body).subscription_group_table


async def group_config(servers: Servers, group: str) -> dict[str, SubscriptionGroupConfig]:
    """Return the configuration of a group at each broker that has it, by broker name.

    Raises:
        SubscriptionGroupNotExistError: no broker has it.
        ServersFailedError: some brokers did not answer; `done` has the others.
    """
    found, failures = await _holders(servers, group)
    if failures:
        raise ServersFailedError(found, failures)
    return found


async def _holders(
    servers: Servers, group: str
) -> tuple[dict[str, SubscriptionGroupConfig], dict[str, RocketPyError]]:
    """Return the configuration of a group by broker name, and failures of other brokers.

    Raises:
        SubscriptionGroupNotExistError: all brokers answered, and none has it.
        ServersFailedError: none has it, and some did not answer.
    """
    brokers = await servers.readable_brokers()
    tables, failures = await servers.each(brokers, lambda address: group_configs(servers, address))
    found = {name: table[group] for name, table in tables.items() if group in table}
    if not found and failures:
        # All are named: the group may exist at a broker that did not answer.
        raise ServersFailedError({}, dict.fromkeys(tables, no_group(group)) | failures)
    if not found:
        raise no_group(group)
    return found, failures


async def check_group(servers: Servers, group: str) -> None:
    """Check that a broker has a group, even if other brokers do not answer.

    Raises:
        SubscriptionGroupNotExistError: no broker has it.
    """
    await _holders(servers, group)


async def create_group(
    servers: Servers,
    group: str,
    *,
    config: SubscriptionGroupConfig | None = None,
    cluster: str = "",
    broker: str = "",
) -> dict[str, str]:
    """Create a group on every master, or replace its configuration (200).

    Args:
        group: its name.
        config: limits and switches; the defaults of automatic creation if None.
        cluster: only on brokers of this cluster.
        broker: only on this broker.

    Returns:
        Addresses of the brokers that have it now, by broker name.

    Raises:
        ServersFailedError: some brokers failed; the others have it.
    """
    masters = await servers.broker_addresses(cluster=cluster, broker=broker)
    wanted = replace(config or SubscriptionGroupConfig(), group_name=group)

    async def create(address: str) -> str:
        await _put_group(servers, address, wanted)
        return address

    return await servers.change(masters, create)


async def _put_group(servers: Servers, address: str, config: SubscriptionGroupConfig) -> None:
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await servers.ask(address, code, body=config.encode())


async def update_group(
    servers: Servers,
    group: str,
    *,
    retries: int | None = None,
    consume: bool | None = None,
    broadcast: bool | None = None,
    orderly: bool | None = None,
) -> dict[str, SubscriptionGroupConfig]:
    """Change the given settings of a group, on every broker that has it.

    Args:
        group: its name.
        retries: deliveries after the first one, then the dead letter queue.
        consume: whether its members get messages.
        broadcast: whether broadcasting members are allowed.
        orderly: whether pop keeps the order.

    Returns:
        What was set, by broker name.

    Raises:
        SubscriptionGroupNotExistError: no broker has it.
        ServersFailedError: some brokers failed; the others are changed.
    """
    masters = await servers.all_masters()
    holders, failures = await _holders(servers, group)
    for config in holders.values():
        if retries is not None:
            config.retry_max_times = retries
        if consume is not None:
            config.consume_enable = consume
        if broadcast is not None:
            config.consume_broadcast_enable = broadcast
        if orderly is not None:
            config.consume_message_orderly = orderly
    by_address = {masters[name]: config for name, config in holders.items()}

    async def update(address: str) -> SubscriptionGroupConfig:
        await _put_group(servers, address, by_address[address])
        return by_address[address]

    wanted = {name: masters[name] for name in holders}
    return await _change_holders(servers, wanted, failures, update)


async def _change_holders(
    servers: Servers,
    holders: Mapping[str, str],
    failures: Mapping[str, RocketPyError],
    change: Callable[[str], Awaitable[T]],
) -> dict[str, T]:
    """Change the brokers that have a group; brokers that did not answer count as failed."""
    done, failed = await servers.each(holders, change)
    if failures or failed:
        raise ServersFailedError(done, {**failures, **failed})
    return done


async def delete_group(
    servers: Servers, group: str, *, keep_offsets: bool = False
) -> dict[str, str]:
    """Delete a group on every master that has it (207), its retry topic as well.

    Its dead letters stay: they are in the topic `%DLQ%<group>`.

    Args:
        group: its name.
        keep_offsets: whether a group of the same name continues at the offsets of this one.

    Returns:
        The brokers that had it, by name.

    Raises:
        SubscriptionGroupNotExistError: no broker has it.
        ServersFailedError: some brokers failed; the others have deleted it, and routes still have
            its retry topic.
    """
    masters = await servers.all_masters()
    found, failures = await _holders(servers, group)
    holders = {name: masters[name] for name in found}
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=not keep_offsets)

    async def delete(address: str) -> str:
        await servers.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        if not keep_offsets:
            await servers.drop_topic_at(address, retry_topic(group))
        return address

    await _change_holders(servers, holders, failures, delete)
    if not keep_offsets:
        failures = await servers.drop_route(retry_topic(group))
        if failures:
            raise ServersFailedError(holders, failures)
    return holders


# ---- progress


async def group_names(servers: Servers, *, include_system: bool = False) -> Answers[str]:
    """Return the names of all groups of the brokers that answer, sorted."""
    brokers = await servers.readable_brokers()
    tables, failures = await servers.each(brokers, lambda address: group_configs(servers, address))
    names = {name for table in tables.values() for name in table}
    if not include_system:
        names = {name for name in names if not is_system_group(name)}
    return Answers(sorted(names), failures)


async def groups(servers: Servers, *, include_system: bool = False) -> Answers[GroupSummary]:
    """Return a line about every group of the brokers that answer, sorted by name."""
    names = await group_names(servers, include_system=include_system)
    found: Answers[GroupSummary] = Answers(failures=names.failures)
    summaries = await asyncio.gather(*(_summary(servers, name, found.failures) for name in names))
    found += summaries
    return found


async def _summary(
    servers: Servers, group: str, failures: dict[str, RocketPyError]
) -> GroupSummary:
    """Return a line about one group; adds to `failures`."""
    masters = await servers.group_brokers(group)
    progress = await _progress(servers, masters, group, "")
    connection, failed = await _connection(servers, masters, group)
    failures |= progress.failures | failed
    return GroupSummary(
        group=group,
        members=len({each.client_id for each in connection.connection_set}),
        consume_type=connection.consume_type or "",
        message_model=connection.message_model or "",
        lag=progress.lag,
        out_tps=progress.out_tps,
    )


async def group_lag(
    servers: Servers, group: str, topic: str = "", *, owners: bool = False
) -> GroupLag:
    """Return the offsets and the lag of a group in every queue (208).

    Args:
        group: its name.
        topic: only this topic.
        owners: also ask the members which queues they have.
    """
    masters = await servers.group_brokers(group)
    found = await _progress(servers, masters, group, topic)
    if not owners:
        return found
    clients = await queue_owners(servers, group)
    queues = [replace(each, client_id=clients.get(each.queue, "")) for each in found.queues]
    return replace(found, queues=queues)


async def _progress(
    servers: Servers, masters: Mapping[str, str], group: str, topic: str
) -> GroupLag:
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic or None)
    tables, failures = await servers.bodies(
        masters, RequestCode.GET_CONSUME_STATS, ConsumeStats, header
    )
    queues = [
        _queue_lag(queue, offsets)
        for table in tables.values()
        for queue, offsets in table.offset_table.items()
    ]
    queues.sort(key=lambda each: each.queue)
    rate = sum(table.consume_tps for table in tables.values())
    return GroupLag(group=group, queues=queues, out_tps=rate, failures=failures)


async def queue_owners(servers: Servers, group: str) -> dict[MessageQueue, str]:
    """Return which member has which queue, as the members say (307)."""
    masters = await servers.group_brokers(group)
    connection, _ = await _connection(servers, masters, group)
    found: dict[MessageQueue, str] = {}
    for client_id in sorted({each.client_id for each in connection.connection_set}):
        try:
            info = await running_info(servers, group, client_id)
        except RocketPyError:
            continue  # a member that left or does not answer must not hide the others
        found.update(dict.fromkeys(info.mq_table, client_id))
    return found


# ---- members


async def consumer_connection(servers: Servers, group: str) -> ConsumerConnection:
    """Return the connected members of a group and what they subscribe to (203).

    Brokers that do not answer are left out if others know members.

    Raises:
        ConsumerNotOnlineError: no member is connected.
        RocketPyError: no member is known, and some brokers did not answer.
    """
    masters = await servers.group_brokers(group)
    found, failures = await _connection(servers, masters, group)
    if not found.connection_set:
        missing = ConsumerNotOnlineError(
            ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} has no connected member"
        )
        raise next(iter(failures.values()), missing)
    return found


async def _connection(
    servers: Servers, masters: Mapping[str, str], group: str
) -> tuple[ConsumerConnection, dict[str, RocketPyError]]:
    """Return the members of a group at all brokers, and the failures by broker name."""
    tables, failures = await _connections(servers, masters, group)
    found = ConsumerConnection()
    for here in tables.values():
        if here.connection_set:
            found = replace(here, connection_set=found.connection_set + here.connection_set)
    return found, failures


async def _connections(
    servers: Servers, masters: Mapping[str, str], group: str
) -> tuple[dict[str, ConsumerConnection], dict[str, RocketPyError]]:
    header = GetConsumerConnectionListRequestHeader(consumer_group=group)

    async def ask(address: str) -> ConsumerConnection:
        try:
            response = await servers.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except ConsumerNotOnlineError:
            return ConsumerConnection()
        return ConsumerConnection.decode(response.body)

    return await servers.each(masters, ask)


async def group_members(servers: Servers, group: str) -> Answers[Member]:
    """Return the connected members of a group, each once."""
    masters = await servers.group_brokers(group)
    tables, failures = await _connections(servers, masters, group)
    return _members({name: each.connection_set for name, each in tables.items()}, failures)


async def producer_connection(servers: Servers, group: str, topic: str) -> Answers[Member]:
    """Return the connected producers of a group, as brokers of a topic know them (204)."""
    header = GetProducerConnectionListRequestHeader(producer_group=group)

    async def ask(address: str) -> list[Connection]:
        try:
            response = await servers.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                return []  # the broker's response for an unknown group
            raise
        return ProducerConnection.decode(response.body).connection_set

    return _members(*await servers.each(await servers.topic_brokers(topic), ask))


def _members(
    connections: Mapping[str, list[Connection]], failures: Mapping[str, RocketPyError]
) -> Answers[Member]:
    found: dict[str, Member] = {}
    for name, here in connections.items():
        for each in here:
            found.setdefault(each.client_id, _member(each, name))
    return Answers((found[client_id] for client_id in sorted(found)), failures)


async def producers(servers: Servers, address: str) -> dict[str, list[ProducerInfo]]:
    """Return all producers that one broker knows, by group (328)."""
    response = await servers.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
    return ProducerTableInfo.decode(response.body).data


async def running_info(servers: Servers, group: str, client_id: str) -> ConsumerRunningInfo:
    """Return the state that a member reports (307).

    Raises:
        BrokerError: it is not connected or does not answer.
    """
    failure: RocketPyError | None = None
    for address in (await servers.group_brokers(group)).values():
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=False
        )
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        try:
            response = await servers.ask(address, code, header)
        except RocketPyError as error:
            failure = error
            continue
        return ConsumerRunningInfo.decode(response.body)
    assert failure is not None, "a cluster has a broker"
    raise failure


def no_group(group: str) -> SubscriptionGroupNotExistError:
    """Return the error for a group that does not exist."""
    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    return SubscriptionGroupNotExistError(code, f"group {group} does not exist")


def _queue_lag(queue: MessageQueue, offsets: OffsetWrapper) -> QueueLag:
    return QueueLag(
        queue=queue,
        broker_offset=offsets.broker_offset,
        consumer_offset=offsets.consumer_offset,
        last_consumed_ms=offsets.last_timestamp,
    )


def _member(connection: Connection, broker: str) -> Member:
    return Member(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=connection.language or "",
        version=str(connection.version),
        broker=broker,
    )
