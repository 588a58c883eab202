"""Operations on clusters and their servers: status, health, permissions, configuration.

Source: ClusterListSubCommand, BrokerStatusSubCommand, StatsAllSubCommand (5.4.0).
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from rocketpy.admin.results import BrokerStatus
from rocketpy.admin.servers import Servers
from rocketpy.errors import BrokerError, RocketPyError
from rocketpy.proto.bodies.stats import BrokerStatsData
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.headers.admin import ViewBrokerStatsDataRequestHeader
from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    GetRouteInfoRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from rocketpy.proto.topic_names import AUTO_CREATE_TOPIC
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.runtime.config.properties_file import format_properties, read_properties

# ---- status


async def brokers(servers: Servers, cluster: str = "") -> list[BrokerStatus]:
    """Return the status of every broker; one that does not answer has an `error`.

    Args:
        cluster: only this one.
    """
    info = await servers.cluster_info()
    wanted = [
        (data.cluster, data.broker_name, broker_id, address)
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(data.broker_addrs.items())
        if not cluster or name in info.cluster_addr_table.get(cluster, set())
    ]
    return list(await asyncio.gather(*(_status(servers, *each) for each in wanted)))


async def _status(
    servers: Servers, cluster: str, broker: str, broker_id: int, address: str
) -> BrokerStatus:
    silent = BrokerStatus(cluster=cluster, broker=broker, broker_id=broker_id, address=address)
    try:  # `each`, so that later requests of a command do not wait for a silent broker again
        answers, _ = await servers.each(
            {broker: address}, lambda each: broker_runtime(servers, each)
        )
    except RocketPyError as error:
        return replace(silent, error=str(error))
    runtime = answers[broker]
    now, morning = "msgPutTotalTodayNow", "msgPutTotalTodayMorning"
    got, got_morning = "msgGetTotalTodayNow", "msgGetTotalTodayMorning"
    return replace(
        silent,
        version=runtime.get("brokerVersionDesc", ""),
        in_tps=_first_number(runtime.get("putTps", "")),
        out_tps=_first_number(runtime.get("getTransferredTps", "")),
        stored_today=int(_number(runtime, now) - _number(runtime, morning)),
        delivered_today=int(_number(runtime, got) - _number(runtime, got_morning)),
        disk_ratio=_number(runtime, "commitLogDiskRatio", -1.0),
        runtime=runtime,
    )


async def broker_runtime(servers: Servers, address: str) -> dict[str, str]:
    """Return the runtime values that a broker reports, by Apache's names (28)."""
    response = await servers.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return KVTable.decode(response.body).table


async def broker_stats(
    servers: Servers, address: str, name: str, key: str
) -> BrokerStatsData | None:
    """Return one of a broker's counters over minute, hour and day (315), None without one.

    Args:
        address: of the broker.
        name: such as `TOPIC_PUT_NUMS` or `GROUP_GET_NUMS`.
        key: a topic, or `topic@group`.
    """
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    try:
        response = await servers.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
    except BrokerError as error:
        if error.code == ResponseCode.SYSTEM_ERROR:
            return None  # the broker's response for a key without a counter
        raise
    return BrokerStatsData.decode(response.body)


async def ping_namesrv(servers: Servers, address: str) -> float:
    """Ask one name server for its clusters; returns the response time in seconds.

    Raises:
        ClientError: it does not answer.
    """
    return await _timed(servers, address, RequestCode.GET_BROKER_CLUSTER_INFO)


async def ping_broker(servers: Servers, address: str) -> float:
    """Ask one broker for its runtime information; returns the response time in seconds.

    Raises:
        ClientError: it does not answer.
    """
    return await _timed(servers, address, RequestCode.GET_BROKER_RUNTIME_INFO)


async def ping_controller(servers: Servers, address: str) -> float:
    """Ask one controller for its metadata; returns the response time in seconds.

    Raises:
        ClientError: it does not answer.
    """
    return await _timed(servers, address, RequestCode.CONTROLLER_GET_METADATA_INFO)


async def namesrv_not_ready(servers: Servers, address: str) -> str:
    """Return why a name server does not answer for routes; empty if it does.

    Raises:
        ClientError: it does not answer at all.
    """
    header = GetRouteInfoRequestHeader(topic=AUTO_CREATE_TOPIC, accept_standard_json_only=True)
    request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_ext())
    response = await servers.invoke(address, request)
    if response.code in {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}:
        return ""
    return response.remark or f"code {response.code}"


async def broker_not_ready(servers: Servers, address: str) -> str:
    """Return why a broker does not serve clients; empty if it does.

    A broker of Apache does not tell: it counts as ready if it answers.

    Raises:
        ClientError: it does not answer at all.
    """
    return (await broker_runtime(servers, address)).get("rocketpyNotReady", "")


async def controller_not_ready(servers: Servers, address: str) -> str:
    """Return why a controller and its peers elect no masters; empty if one of them leads.

    Raises:
        ClientError: it does not answer at all.
    """
    response = await servers.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    found = GetMetaDataResponseHeader.from_ext(response.ext_fields)
    return "" if found.controller_leader_address else "no_leader: no controller leads"


async def _timed(servers: Servers, address: str, code: int) -> float:
    began_s = time.perf_counter()
    await servers.ask(address, code)
    return time.perf_counter() - began_s


# ---- permissions


async def wipe_write_permission(servers: Servers, broker: str) -> int:
    """Remove the write permission of a broker's topics (205), until it registers again.

    Returns:
        Number of affected topics, of the name server with the most.

    Raises:
        ServersFailedError: some name servers failed; `done` has the numbers of the others.
    """
    header = WipeWritePermOfBrokerRequestHeader(broker_name=broker)

    async def wipe(address: str) -> int:
        response = await servers.ask(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        found = WipeWritePermOfBrokerResponseHeader.from_ext(response.ext_fields)
        return found.wipe_topic_count

    return max((await servers.change(servers.namesrv_addresses(), wipe)).values())


async def add_write_permission(servers: Servers, broker: str) -> int:
    """Undo `wipe_write_permission` (327); returns the number of affected topics."""
    header = AddWritePermOfBrokerRequestHeader(broker_name=broker)

    async def add(address: str) -> int:
        response = await servers.ask(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return AddWritePermOfBrokerResponseHeader.from_ext(response.ext_fields).add_topic_count

    return max((await servers.change(servers.namesrv_addresses(), add)).values())


# ---- configuration


async def broker_config(servers: Servers, address: str) -> dict[str, str]:
    """Return every configuration key of a broker with its value (26)."""
    response = await servers.ask(address, RequestCode.GET_BROKER_CONFIG)
    return read_properties(response.body)


async def update_broker_config(servers: Servers, address: str, values: Mapping[str, str]) -> None:
    """Change keys of a running broker (25).

    Raises:
        BrokerError: it refuses a key or a value; nothing was changed.
    """
    body = format_properties(values).encode()
    await servers.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)


async def namesrv_config(servers: Servers) -> dict[str, dict[str, str]]:
    """Return the configuration of every name server by its address (319).

    Raises:
        ServersFailedError: some did not answer; `done` has the others.
    """

    async def ask(address: str) -> dict[str, str]:
        return read_properties((await servers.ask(address, RequestCode.GET_NAMESRV_CONFIG)).body)

    return await servers.change(servers.namesrv_addresses(), ask)


async def update_namesrv_config(servers: Servers, values: Mapping[str, str]) -> dict[str, str]:
    """Change keys of every name server (318).

    Returns:
        The addresses of the name servers, by themselves.

    Raises:
        BrokerError: all refused.
        ServersFailedError: some failed; the others have the change.
    """
    body = format_properties(values).encode()
    done = await servers.tell_namesrvs(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    return {address: address for address in done}


# ---- cleaning


async def clean_expired_queues(servers: Servers, address: str) -> None:
    """Have a broker drop consume queue entries whose messages are gone (306)."""
    await servers.ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


async def clean_unused_topics(servers: Servers, address: str) -> None:
    """Have a broker drop queues of topics that it does not have any more (316)."""
    await servers.ask(address, RequestCode.CLEAN_UNUSED_TOPIC)


async def delete_expired_log(servers: Servers, address: str) -> None:
    """Have a broker delete log files that are past their time now (329)."""
    await servers.ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)


def _first_number(text: str) -> float:
    """The first of "10 s, 60 s, 600 s", as brokers give their rates."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return 0.0


def _number(runtime: Mapping[str, str], key: str, default: float = 0.0) -> float:
    try:
        return float(runtime[key])
    except (KeyError, ValueError):
        return default
