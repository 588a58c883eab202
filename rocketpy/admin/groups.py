"""Operations on consumer groups and producers.

Source: ConsumerProgressSubCommand, UpdateSubGroupSubCommand, ConsumerConnectionSubCommand,
ProducerConnectionSubCommand (5.4.0).
"""

import asyncio
from dataclasses import replace

from rocketpy.admin.results import GroupLag, GroupSummary, Member, QueueLag
from rocketpy.admin.servers import Servers
from rocketpy.errors import (
    BrokerError,
    ConsumerNotOnlineError,
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

# ---- configuration


async def group_configs(servers: Servers, address: str) -> dict[str, SubscriptionGroupConfig]:
    """Return every group of one broker by its name (201)."""
    response = await servers.ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return SubscriptionGroupWrapper.decode(response.body).subscription_group_table


async def group_config(servers: Servers, group: str) -> dict[str, SubscriptionGroupConfig]:
    """Return the configuration of a group at each broker, by broker name.

    Raises:
        SubscriptionGroupNotExistError: no broker has it.
    """
    found = {}
    for name, address in (await servers.broker_addresses()).items():
        config = (await group_configs(servers, address)).get(group)
        if config is not None:
            found[name] = config
    if not found:
        raise no_group(group)
    return found


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
    """
    masters = await servers.broker_addresses(cluster=cluster, broker=broker)
    wanted = replace(config or SubscriptionGroupConfig(), group_name=group)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    await servers.ask_all(list(masters.values()), code, body=wanted.encode())
    return masters


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
    """
    masters = await servers.broker_addresses()
    done = {}
    for name, config in (await group_config(servers, group)).items():
        if retries is not None:
            config.retry_max_times = retries
        if consume is not None:
            config.consume_enable = consume
        if broadcast is not None:
            config.consume_broadcast_enable = broadcast
        if orderly is not None:
            config.consume_message_orderly = orderly
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await servers.ask(masters[name], code, body=config.encode())
        done[name] = config
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
    """
    masters = await servers.broker_addresses()
    holders = {name: masters[name] for name in await group_config(servers, group)}
    header = DeleteSubscriptionGroupRequestHeader(group_name=group, clean_offset=not keep_offsets)
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    await servers.ask_all(list(holders.values()), code, header)
    if not keep_offsets:
        await servers.drop_topic(retry_topic(group), list(holders.values()))
    return holders


# ---- progress


async def groups(servers: Servers, *, include_system: bool = False) -> list[GroupSummary]:
    """Return a line about every group of every broker, sorted by name."""
    names: set[str] = set()
    for address in (await servers.broker_addresses()).values():
        names |= (await group_configs(servers, address)).keys()
    if not include_system:
        names = {name for name in names if not is_system_group(name)}
    return list(await asyncio.gather(*(_summary(servers, name) for name in sorted(names))))


async def _summary(servers: Servers, group: str) -> GroupSummary:
    progress = await group_lag(servers, group)
    try:
        connection = await consumer_connection(servers, group)
    except ConsumerNotOnlineError:
        connection = ConsumerConnection()
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
    masters = await servers.group_masters(group)
    header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic or None)
    tables = await servers.bodies(
        list(masters.values()), RequestCode.GET_CONSUME_STATS, ConsumeStats, header
    )
    clients = await queue_owners(servers, group) if owners else {}
    queues = [
        _queue_lag(queue, offsets, clients.get(queue, ""))
        for table in tables.values()
        for queue, offsets in table.offset_table.items()
    ]
    queues.sort(key=lambda each: each.queue)
    rate = sum(table.consume_tps for table in tables.values())
    return GroupLag(group=group, queues=queues, out_tps=rate)


async def queue_owners(servers: Servers, group: str) -> dict[MessageQueue, str]:
    """Return which member has which queue, as the members say (307)."""
    try:
        connection = await consumer_connection(servers, group)
    except ConsumerNotOnlineError:
        return {}
    found: dict[MessageQueue, str] = {}
    for client_id in sorted({each.client_id for each in connection.connection_set}):
        try:
            info = await running_info(servers, group, client_id)
        except BrokerError:
            continue  # a member that left or does not answer must not hide the others
        found.update(dict.fromkeys(info.mq_table, client_id))
    return found


# ---- members


async def consumer_connection(servers: Servers, group: str) -> ConsumerConnection:
    """Return the connected members of a group and what they subscribe to (203).

    Raises:
        ConsumerNotOnlineError: no member is connected.
    """
    masters = await servers.group_masters(group)
    found: ConsumerConnection | None = None
    for address in masters.values():
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        try:
            response = await servers.ask(address, code, header)
        except ConsumerNotOnlineError:
            continue
        here = ConsumerConnection.decode(response.body)
        if found is None:
            found = here
        else:
            found.connection_set += here.connection_set
    if found is None:
        raise ConsumerNotOnlineError(
            ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} has no connected member"
        )
    return found


async def group_members(servers: Servers, group: str) -> list[Member]:
    """Return the connected members of a group, each once."""
    found: dict[str, Member] = {}
    for name, address in (await servers.group_masters(group)).items():
        header = GetConsumerConnectionListRequestHeader(consumer_group=group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        try:
            response = await servers.ask(address, code, header)
        except ConsumerNotOnlineError:
            continue
        for each in ConsumerConnection.decode(response.body).connection_set:
            found.setdefault(each.client_id, _member(each, name))
    return [found[client_id] for client_id in sorted(found)]


async def producer_connection(servers: Servers, group: str, topic: str) -> list[Member]:
    """Return the connected producers of a group, as brokers of a topic know them (204)."""
    found: dict[str, Member] = {}
    for name, address in (await servers.topic_masters(topic)).items():
        header = GetProducerConnectionListRequestHeader(producer_group=group)
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        try:
            response = await servers.ask(address, code, header)
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                continue  # the broker's response for an unknown group
            raise
        for each in ProducerConnection.decode(response.body).connection_set:
            found.setdefault(each.client_id, _member(each, name))
    return [found[client_id] for client_id in sorted(found)]


async def producers(servers: Servers, address: str) -> dict[str, list[ProducerInfo]]:
    """Return all producers that one broker knows, by group (328)."""
    response = await servers.ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
    return ProducerTableInfo.decode(response.body).data


async def running_info(servers: Servers, group: str, client_id: str) -> ConsumerRunningInfo:
    """Return the state that a member reports (307).

    Raises:
        BrokerError: it is not connected or does not answer.
    """
    failure: BrokerError | None = None
    for address in (await servers.group_masters(group)).values():
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=False
        )
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        try:
            response = await servers.ask(address, code, header)
        except BrokerError as error:
            failure = error
            continue
        return ConsumerRunningInfo.decode(response.body)
    assert failure is not None, "a cluster has a broker"
    raise failure


def no_group(group: str) -> SubscriptionGroupNotExistError:
    """Return the error for a group that does not exist."""
    code = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    return SubscriptionGroupNotExistError(code, f"group {group} does not exist")


def _queue_lag(queue: MessageQueue, offsets: OffsetWrapper, client_id: str) -> QueueLag:
    return QueueLag(
        queue=queue,
        broker_offset=offsets.broker_offset,
        consumer_offset=offsets.consumer_offset,
        last_consumed_ms=offsets.last_timestamp,
        client_id=client_id,
    )


def _member(connection: Connection, broker: str) -> Member:
    return Member(
        client_id=connection.client_id,
        address=connection.client_addr,
        language=connection.language or "",
        version=str(connection.version),
        broker=broker,
    )
