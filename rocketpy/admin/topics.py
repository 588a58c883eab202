"""Operations on topics.

Source: UpdateTopicSubCommand, DeleteTopicSubCommand, TopicStatusSubCommand,
UpdateOrderConfCommand, StatsAllSubCommand (5.4.0).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rocketpy.admin.clusters import broker_stats
from rocketpy.admin.groups import group_lag
from rocketpy.admin.key_values import kv_delete, kv_get, kv_put
from rocketpy.admin.results import Answers, QueueStatus, TopicStatistics, TopicStatus
from rocketpy.admin.servers import Servers, no_topic
from rocketpy.errors import BrokerError, ClientError, RocketPyError, ServersFailedError
from rocketpy.proto.bodies.heartbeat import GroupList
from rocketpy.proto.bodies.stats import BrokerStatsData
from rocketpy.proto.bodies.topic import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from rocketpy.proto.headers.namesrv import GetTopicsByClusterRequestHeader
from rocketpy.proto.headers.topic import (
    CreateTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
)
from rocketpy.proto.perm import PERM_READ, PERM_WRITE
from rocketpy.proto.topic_names import (
    AUTO_CREATE_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_topic,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.runtime.config.suggestions import hint

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the name servers with the queues of globally ordered topics."""


def parse_permission(text: str) -> int:
    """Return the bits of `r`, `w` or `rw` (also Apache's 4, 2 and 6).

    Raises:
        ValueError: another text.
    """
    letters = {"r": PERM_READ, "w": PERM_WRITE}
    if text.isdecimal() and int(text) in {PERM_WRITE, PERM_READ, PERM_READ | PERM_WRITE}:
        return int(text)
    if text and set(text.lower()) <= letters.keys():
        return sum(letters[letter] for letter in set(text.lower()))
    msg = f"{text!r} is not a permission: r, w or rw"
    raise ValueError(msg)


# ---- names and configuration


async def topics(servers: Servers, *, cluster: str = "", include_system: bool = False) -> list[str]:
    """Return the names of all topics (206), or of one cluster's (224), sorted.

    Args:
        cluster: only of this cluster.
        include_system: also system, retry and dead letter topics.
    """
    if cluster:
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        response = await servers.ask_namesrv(RequestCode.GET_TOPICS_BY_CLUSTER, header)
    else:
        response = await servers.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    names = TopicList.decode(response.body).topic_list
    if not include_system:
        info = await servers.cluster_info()
        own = info.cluster_addr_table.keys() | info.broker_addr_table.keys()
        own |= {f"{name}_REPLY_TOPIC" for name in info.cluster_addr_table}
        names = {name for name in names if name not in own and not _is_internal(name)}
    return sorted(names)


async def topic_configs(servers: Servers, address: str) -> dict[str, TopicConfig]:
    """Return every topic of one broker by its name (21)."""
    response = await servers.ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    return TopicConfigSerializeWrapper.decode(response.body).topic_config_table


async def topic_config(servers: Servers, address: str, topic: str) -> TopicConfig:
    """Return the configuration of a topic at a broker (351).

    Raises:
        TopicNotExistError: the broker does not have it.
    """
    header = GetTopicConfigRequestHeader(topic=topic, lo=True)
    response = await servers.ask(address, RequestCode.GET_TOPIC_CONFIG, header)
    return TopicConfig.decode(response.body)


async def topic_groups(servers: Servers, topic: str) -> Answers[str]:
    """Return the groups that consume a topic or have offsets in it (300)."""
    found, failures = await servers.bodies(
        await servers.topic_brokers(topic),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        GroupList,
        QueryTopicConsumeByWhoRequestHeader(topic=topic),
    )
    return Answers(sorted(set().union(*(each.group_list for each in found.values()))), failures)


# ---- offsets and rates


async def topic_status(servers: Servers, topic: str) -> TopicStatus:
    """Return the offsets of every queue (202).

    Raises:
        TopicNotExistError: no broker serves it.
    """
    tables, failures = await servers.bodies(
        await servers.topic_brokers(topic),
        RequestCode.GET_TOPIC_STATS_INFO,
        TopicStatsTable,
        GetTopicStatsInfoRequestHeader(topic=topic),
    )
    queues = [
        QueueStatus(
            queue=queue,
            min_offset=offsets.min_offset,
            max_offset=offsets.max_offset,
            last_stored_ms=offsets.last_update_timestamp,
        )
        for table in tables.values()
        for queue, offsets in table.offset_table.items()
    ]
    queues.sort(key=lambda each: each.queue)
    rate = sum(table.topic_put_tps for table in tables.values())
    return TopicStatus(topic=topic, queues=queues, in_tps=rate, failures=failures)


async def topic_statistics(servers: Servers, topic: str) -> Answers[TopicStatistics]:
    """Return the rates of a topic, one row per group; a topic without groups has one row."""
    masters = await servers.topic_brokers(topic)
    rows: Answers[TopicStatistics] = Answers()
    stored = await _statistics(servers, masters, "TOPIC_PUT_NUMS", topic, rows.failures)
    groups = await topic_groups(servers, topic)
    rows.failures |= groups.failures
    for group in groups or [""]:
        out_tps, out_24h, lag = 0.0, 0, 0
        if group:
            out_tps, out_24h = await _statistics(
                servers, masters, "GROUP_GET_NUMS", f"{topic}@{group}", rows.failures
            )
            progress = await group_lag(servers, group, topic)
            rows.failures |= progress.failures
            lag = progress.lag
        rows.append(
            TopicStatistics(
                topic=topic,
                group=group,
                in_tps=stored[0],
                out_tps=out_tps,
                in_24h=stored[1],
                out_24h=out_24h,
                lag=lag,
            )
        )
    return rows


async def _statistics(
    servers: Servers,
    masters: Mapping[str, str],
    name: str,
    key: str,
    failures: dict[str, RocketPyError],
) -> tuple[float, int]:
    """Return the sum of a counter at all brokers; adds to `failures`."""
    found, failed = await servers.each(
        masters, lambda address: broker_stats(servers, address, name, key)
    )
    failures |= failed
    known = [each for each in found.values() if each is not None]
    return sum((_tps(each) for each in known), 0.0), sum(_day(each) for each in known)


# ---- change


async def create_topic(  # noqa: PLR0913 - all but two are options
    servers: Servers,
    topic: str,
    queues: int = 8,
    *,
    read_queues: int | None = None,
    perm: int = PERM_READ | PERM_WRITE,
    order: bool = False,
    attributes: Mapping[str, str] | None = None,
    cluster: str = "",
    broker: str = "",
) -> dict[str, str]:
    """Create a topic on every master, or replace its configuration (17).

    Args:
        topic: its name.
        queues: per broker.
        read_queues: number of queues read; as many as written by default.
        perm: bits, see `rocketpy.proto.perm`.
        order: also write the queues of an ordered topic into the name servers' table, so
            that a broker's absence does not move keys to other queues.
        attributes: such as `{"message.type": "FIFO"}`, added to the existing ones.
        cluster: only on brokers of this cluster.
        broker: only on this broker.

    Returns:
        Addresses of the brokers that have it now, by broker name.

    Raises:
        InvalidParameterError: a broker does not allow the name or a value.
        ServersFailedError: some brokers failed; the others have it.
    """
    masters = await servers.broker_addresses(cluster=cluster, broker=broker)
    config = TopicConfig(
        topic_name=topic,
        write_queue_nums=queues,
        read_queue_nums=queues if read_queues is None else read_queues,
        perm=perm,
        order=order,
    )

    async def put(address: str) -> str:
        await put_topic_config(servers, address, config, add_attributes=attributes)
        return address

    done, failures = await servers.each(masters, put)
    if order:
        value = ";".join(f"{name}:{queues}" for name in sorted(masters))
        try:
            await set_order_conf(servers, topic, value)
        except ServersFailedError as error:  # of name servers; the caller asks about brokers
            failures |= error.failures
    if failures:
        raise ServersFailedError(done, failures)
    return done


async def update_topic(
    servers: Servers,
    topic: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    perm: int | None = None,
    attributes: Mapping[str, str] | None = None,
    broker: str = "",
) -> dict[str, TopicConfig]:
    """Change the given settings of a topic, on every broker that has it.

    Args:
        topic: its name.
        queues: number of queues written. As many are read if there were fewer; if there were
            more, all of them are still read, so that their messages can be consumed.
        read_queues: number of queues read; messages of further queues are not reachable.
        perm: bits, see `rocketpy.proto.perm`.
        attributes: added to the existing ones.
        broker: only on this broker.

    Returns:
        The new configuration, by broker name.

    Raises:
        TopicNotExistError: no broker has it.
        ServersFailedError: some brokers failed; the others are changed.
    """
    masters = known = await servers.topic_masters(topic, broker)
    if broker:
        masters = {name: address for name, address in masters.items() if name == broker}
    if not masters:
        raise ClientError(f"broker {broker} does not serve topic {topic}{hint(broker, known)}")

    async def update(address: str) -> TopicConfig:
        config = await topic_config(servers, address, topic)
        if queues is not None:
            reads = max(queues, config.read_queue_nums)
            config = replace(config, write_queue_nums=queues, read_queue_nums=reads)
        if read_queues is not None:
            config = replace(config, read_queue_nums=read_queues)
        if perm is not None:
            config = replace(config, perm=perm)
        await put_topic_config(servers, address, config, add_attributes=attributes)
        return config

    return await servers.change(masters, update)


async def put_topic_config(
    servers: Servers,
    address: str,
    config: TopicConfig,
    *,
    add_attributes: Mapping[str, str] | None = None,
) -> None:
    """Set a topic at one broker (17); attributes in `config` itself are not sent."""
    added = ",".join(f"+{key}={value}" for key, value in (add_attributes or {}).items())
    header = CreateTopicRequestHeader(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=added,
    )
    await servers.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def delete_topic(servers: Servers, topic: str, *, cluster: str = "") -> dict[str, str]:
    """Delete a topic and its messages on every master (215) and in the routes (216).

    Args:
        topic: its name.
        cluster: only on brokers of this cluster.

    Returns:
        The brokers that deleted it, by name.

    Raises:
        TopicNotExistError: no name server and no broker has it.
        ServersFailedError: some brokers failed; the others have deleted it.
    """
    masters = await servers.all_masters(cluster=cluster)
    tables, _ = await servers.each(masters, lambda address: topic_configs(servers, address))
    known = any(topic in table for table in tables.values())
    if not known and topic not in await topics(servers, include_system=True):
        raise no_topic(topic)
    await servers.drop_topic(topic, masters, cluster)
    if await order_conf(servers, topic) is not None:
        try:
            await delete_order_conf(servers, topic)
        except ServersFailedError as error:  # of name servers; the caller asks about brokers
            raise ServersFailedError(masters, error.failures) from error
    return masters


# ---- globally ordered topics


async def order_conf(servers: Servers, topic: str) -> str | None:
    """Return the queues of an ordered topic, `broker-a:4;broker-b:4`, None without one."""
    return await kv_get(servers, ORDER_TOPIC_CONFIG, topic)


async def set_order_conf(servers: Servers, topic: str, value: str) -> None:
    """Fix the queues of an ordered topic: `broker-a:4;broker-b:4`."""
    await kv_put(servers, ORDER_TOPIC_CONFIG, topic, value)


async def delete_order_conf(servers: Servers, topic: str) -> None:
    """Delete the fixed queues of an ordered topic."""
    await kv_delete(servers, ORDER_TOPIC_CONFIG, topic)


async def topic_exists(servers: Servers, topic: str) -> bool:
    """Return whether a broker serves a topic."""
    try:
        await servers.topic_route(topic)
    except BrokerError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return False
        raise
    return True


def _is_internal(topic: str) -> bool:
    return is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic)


def _tps(data: BrokerStatsData) -> float:
    return data.stats_minute.tps if data.stats_minute is not None else 0.0


def _day(data: BrokerStatsData) -> int:
    """Return the sum of the longest period that has one."""
    for item in (data.stats_day, data.stats_hour, data.stats_minute):
        if item is not None and item.sum:
            return item.sum
    return 0
