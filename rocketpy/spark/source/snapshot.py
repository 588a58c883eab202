"""Snapshot of the queues to read: their ends, and the brokers that serve them.

Source: AdminBrokerProcessor.getTopicStatsInfo, MQClientInstance (5.4.0).
"""

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rocketpy.admin.servers import Servers
from rocketpy.admin.topics import topics as list_topics
from rocketpy.client.cluster.route_table import MASTER_ID, subscribe_queues
from rocketpy.errors import (
    BrokerError,
    ConfigError,
    NoRouteError,
    RocketPyError,
    TopicNotExistError,
)
from rocketpy.proto.bodies.heartbeat import CheckClientRequestBody
from rocketpy.proto.bodies.route import BrokerData, TopicRouteData
from rocketpy.proto.bodies.topic import TopicStatsTable
from rocketpy.proto.headers.topic import GetTopicStatsInfoRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace, wrap_namespace
from rocketpy.proto.perm import is_writeable
from rocketpy.proto.subscription import EXPRESSION_TAG, build_subscription
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.spark.connection import Connection, refused_static
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.read_options import ReadOptions


class Ends(NamedTuple):
    """Begin and end of a queue.

    Attributes:
        low: offset of its oldest message.
        high: offset of the next message.
        last_ms: store time of the last message, by the broker's clock, ms since 1970; 0 if empty.
    """

    low: int
    high: int
    last_ms: int = 0


class Snapshot(NamedTuple):
    """Queues, brokers and topics of a read at one time.

    Attributes:
        ends: of each readable queue.
        retired: of queues that brokers still have, without read permission.
        brokers: addresses by broker id (0 is the master), by broker name.
        topics: topics with a route.
        missing: requested topics without a route.
        unreachable: names of brokers that did not answer, and the errors.
        slaves: names of brokers without a master now; the ends of their queues are those of a
            slave, which may lag behind.
    """

    ends: Mapping[MessageQueue, Ends]
    retired: Mapping[MessageQueue, Ends]
    brokers: Mapping[str, Mapping[int, str]]
    topics: frozenset[str]
    missing: frozenset[str]
    unreachable: Mapping[str, str]
    slaves: frozenset[str] = frozenset()


def subscribed_topics(options: ReadOptions) -> frozenset[str]:
    """Return the subscribed topics by the brokers' names; empty for a pattern."""
    named = options.subscribe or {queue.topic for queue in options.assign}
    return frozenset(wrap_namespace(options.namespace, each) for each in named)


def assigned_queues(options: ReadOptions) -> frozenset[MessageQueue]:
    """Return the assigned queues by the brokers' names; empty for complete topics."""
    return frozenset(
        queue._replace(topic=wrap_namespace(options.namespace, queue.topic))
        for queue in options.assign
    )


async def take_snapshot(
    servers: Servers, options: ReadOptions, *, is_patient: bool = False
) -> Snapshot:
    """Take a snapshot of the queues to read.

    Args:
        servers: of the cluster.
        options: which topics or queues.
        is_patient: skip brokers that do not answer.

    Raises:
        NoNameServerError: no name server answers; the message names each one.
        ConfigError: one of the topics is static.
        RocketPyError: a broker that serves one of the topics does not answer.
    """
    names = await _topics(servers, options)
    routes = dict(
        zip(names, await asyncio.gather(*(_route(servers, n) for n in names)), strict=True)
    )
    found = {topic: route for topic, route in routes.items() if route is not None}
    for topic, route in sorted(found.items()):
        if route.topic_queue_mapping_by_broker:
            raise refused_static(topic)
    unreachable: dict[str, str] = {}
    tables = await asyncio.gather(
        *(
            _ends(servers, topic, data, unreachable if is_patient else None)
            for topic, route in found.items()
            for data in route.broker_datas
        )
    )
    readable = {queue for each in found.items() for queue in subscribe_queues(*each)}
    wanted = assigned_queues(options)
    ends: dict[MessageQueue, Ends] = {}
    retired: dict[MessageQueue, Ends] = {}
    for table in tables:
        for queue, bounds in table.items():
            if not wanted or queue in wanted:
                (ends if queue in readable else retired)[queue] = bounds
    brokers: dict[str, Mapping[int, str]] = {}
    for route in found.values():
        brokers |= broker_addresses(route)
    topics = frozenset(found)
    slaves = frozenset(name for name, each in brokers.items() if MASTER_ID not in each)
    missing = frozenset(names) - topics
    return Snapshot(ends, retired, brokers, topics, missing, unreachable, slaves)


def broker_addresses(route: TopicRouteData) -> dict[str, Mapping[int, str]]:
    """Return the addresses of a topic's brokers by broker id, by broker name.

    The id of masters is 0. A slave that acts for its master, which a name server lists as id 0
    without the write permission, has another one here.
    """
    writable = {queue.broker_name for queue in route.queue_datas if is_writeable(queue.perm)}
    found: dict[str, Mapping[int, str]] = {}
    for data in route.broker_datas:
        is_acting = data.enable_acting_master and data.broker_name not in writable
        found[data.broker_name] = {
            broker_id or int(is_acting): address for broker_id, address in data.broker_addrs.items()
        }
    return found


def check_at_slaves(snapshot: Snapshot, outside: Collection[QueueRange]) -> None:
    """Check that no missing range is one that only an absent master may have.

    Args:
        snapshot: of the queues.
        outside: requested ranges that do not exist.

    Raises:
        NoRouteError: there is one: to skip it could lose messages, to go back would repeat them.
    """
    doubtful = [each for each in outside if each.broker_name in snapshot.slaves]
    if doubtful:
        ends = snapshot.ends[doubtful[0].queue]
        raise NoRouteError(
            f"the master of broker {doubtful[0].broker_name} is away, and its slave does not have "
            f"{doubtful[0]}: it has offsets {ends.low}..{ends.high}; start the master, or wait "
            "until the slave has them"
        )


async def check_filter(connection: Connection, snapshot: Snapshot, options: ReadOptions) -> None:
    """Check the filter at a broker, before tasks fail with it.

    Raises:
        BrokerError: the broker rejects the filter.
    """
    if options.expression_type == EXPRESSION_TAG or not snapshot.brokers:
        return
    topic = min(queue.topic for queue in snapshot.ends)
    subscription = build_subscription(topic, options.sub_expression, options.expression_type)
    body = CheckClientRequestBody("rocketpy-spark", options.group, subscription)
    addresses = min(snapshot.brokers.items())[1]
    try:
        await connection.api.check_client_config(addresses[min(addresses)], body.encode())
    except BrokerError as error:
        raise type(error)(error.code, f"subExpression: {error.remark}") from error


async def living_brokers(servers: Servers) -> dict[str, str]:
    """Return the address of each registered master, by broker name."""
    table = (await servers.cluster_info()).broker_addr_table
    return {name: data.master_addr for name, data in table.items() if data.master_addr is not None}


def check_complete(snapshot: Snapshot, options: ReadOptions) -> None:
    """Raise unless all requested topics and queues exist.

    Raises:
        TopicNotExistError: a topic has no route.
        ConfigError: an assigned queue does not exist.
    """
    servers = ", ".join(options.nameservers)
    if snapshot.missing:
        names = ", ".join(sorted(unwrap_namespace(options.namespace, n) for n in snapshot.missing))
        raise TopicNotExistError(17, f"no topic {names}: name server {servers} has no route for it")
    absent = sorted(assigned_queues(options) - snapshot.ends.keys())
    if absent:
        words = ", ".join("/".join(map(str, queue)) for queue in absent)
        raise ConfigError(f"queue {words} does not exist", key="assign")


async def _topics(servers: Servers, options: ReadOptions) -> list[str]:
    if not options.subscribe_pattern:
        return sorted(subscribed_topics(options))
    wanted = re.compile(options.subscribe_pattern)
    names = await list_topics(servers)
    if options.namespace:
        own = wrap_namespace(options.namespace, "x").removesuffix("x")
        names = [name for name in names if name.startswith(own)]
    return [n for n in names if wanted.fullmatch(unwrap_namespace(options.namespace, n))]


async def _route(servers: Servers, topic: str) -> TopicRouteData | None:
    try:
        return await servers.topic_route(topic)
    except TopicNotExistError:
        return None


async def _ends(
    servers: Servers, topic: str, broker: BrokerData, unreachable: dict[str, str] | None
) -> dict[MessageQueue, Ends]:
    """Return the ends of a topic's queues at one broker, or its error if `is_patient`."""
    name = broker.broker_name
    header = GetTopicStatsInfoRequestHeader(topic=topic)
    try:
        if not broker.broker_addrs:
            raise NoRouteError(f"broker {name} has no address")
        # The lowest id is the master's; without a master it is the slave that replaces it.
        address = broker.broker_addrs[min(broker.broker_addrs)]
        response = await servers.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
    except RocketPyError as error:
        # The route names this broker: one that lacks the topic is a slave that has just lost its
        # master, and learns of a new topic within a second, or the route is about to change.
        is_passing = error.retriable or isinstance(error, TopicNotExistError)
        if unreachable is None or not is_passing:
            raise
        unreachable[name] = str(error)
        return {}
    table = TopicStatsTable.decode(response.body).offset_table
    return {
        MessageQueue(topic, name, queue.queue_id): Ends(
            offsets.min_offset, offsets.max_offset, offsets.last_update_timestamp
        )
        for queue, offsets in table.items()
    }
