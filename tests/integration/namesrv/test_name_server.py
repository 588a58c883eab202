"""A name server asked over real connections."""

import asyncio
import random
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from rocketpy.errors import StartError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import SystemClock

LOOPBACK = RemotingServerConfig(bind_address="127.0.0.1", listen_port=0)


def new_client() -> RemotingClient:
    return RemotingClient(RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    config = NamesrvConfig(
        data_dir=str(tmp_path), server=LOOPBACK, notify_min_broker_id_changed=True
    )
    started = NameServer(config, clock=SystemClock())
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = new_client()
    yield made
    await made.close()


async def ask(
    client: RemotingClient, server: NameServer, code: int, body: bytes = b"", **fields: str
) -> RemotingCommand:
    return await client.invoke(server.address, make_request(code, fields, body), 60_000)


async def register(
    client: RemotingClient,
    server: NameServer,
    *topics: str,
    compressed: bool = False,
    number: int = 0,
    address: str = "127.0.0.1:10911",
) -> RemotingCommand:
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={name: TopicConfig(name, 4, 4, 6) for name in topics},
        data_version=DataVersion(timestamp=1, counter=len(topics)),
    )
    whole = RegisterBrokerBody(wrapper)
    body = whole.encode_compressed() if compressed else whole.encode()
    return await ask(
        client,
        server,
        RequestCode.REGISTER_BROKER,
        body,
        brokerName="broker-a",
        brokerAddr=address,
        clusterName="c1",
        haServerAddr="127.0.0.1:10912",
        brokerId=str(number),
        compressed=str(compressed).lower(),
        bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF),
    )


async def has_route(client: RemotingClient, server: NameServer, topic: str) -> bool:
    response = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    assert response.code in {0, 17}
    return response.code == 0


async def until_route_is_gone(client: RemotingClient, server: NameServer, topic: str) -> None:
    while await has_route(client, server, topic):  # noqa: ASYNC110 - asked over the network
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("compressed", [False, True])
async def test_registered_topic_is_found(
    server: NameServer, client: RemotingClient, compressed: bool
) -> None:
    assert not await has_route(client, server, "t1")
    assert (await register(client, server, "t1", "t2", compressed=compressed)).code == 0
    response = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t1")
    route = orjson.loads(response.body)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
    assert route["queueDatas"][0]["writeQueueNums"] == 4


async def test_broker_is_gone_when_its_connection_closes(
    server: NameServer, client: RemotingClient
) -> None:
    broker = new_client()
    await register(broker, server, "t1", "t2")
    assert await has_route(client, server, "t1")
    await broker.close()
    async with asyncio.timeout(60):
        await until_route_is_gone(client, server, "t1")


async def test_settings_and_values_over_the_wire(
    server: NameServer, client: RemotingClient, tmp_path: Path
) -> None:
    shown = await ask(client, server, RequestCode.GET_NAMESRV_CONFIG)
    assert b"needWaitForService=false\n" in shown.body
    changed = await ask(
        client, server, RequestCode.UPDATE_NAMESRV_CONFIG, b"needWaitForService=true\n"
    )
    assert changed.code == 0
    waiting = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t1")
    assert (waiting.code, waiting.remark) == (1, "name server not ready")
    put = await ask(client, server, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v")
    assert put.code == 0
    assert (tmp_path / "kvConfig.json").read_bytes() == b'{"configTable":{"n":{"k":"v"}}}'


async def test_name_server_invalid_requests_are_answered_and_connection_stays_open(
    server: NameServer, client: RemotingClient
) -> None:
    missing = await ask(client, server, RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert missing.code == 1
    assert "topic" in (missing.remark or "")
    damaged = await ask(
        client,
        server,
        RequestCode.REGISTER_BROKER,
        b"{",
        brokerName="b",
        brokerAddr="h:1",
        clusterName="c",
        haServerAddr="",
        brokerId="0",
        bodyCrc32="0",
    )
    assert damaged.code == 1
    unknown = await ask(client, server, 9_999)
    assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
    assert not await has_route(client, server, "t1")


async def test_name_server_lowest_broker_id_changes_notifies_brokers(
    server: NameServer, client: RemotingClient
) -> None:
    told: asyncio.Queue[RemotingCommand] = asyncio.Queue()
    slave = RemotingServer(LOOPBACK, clock=SystemClock())

    def receive(_channel: Channel, request: RemotingCommand) -> None:
        told.put_nowait(request)

    slave.register([RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE], receive, None)
    await slave.start()
    master = new_client()
    try:
        await register(master, server, "t1", "t2")
        await register(client, server, "t1", "t2", number=1, address=f"127.0.0.1:{slave.port}")
        await master.close()
        async with asyncio.timeout(60):
            notice = await told.get()
        assert notice.ext_fields["minBrokerId"] == "1"
        assert notice.ext_fields["offlineBrokerAddr"] == "127.0.0.1:10911"
    finally:
        await slave.stop()


async def test_taken_port_is_a_start_error(server: NameServer, tmp_path: Path) -> None:
    taken = RemotingServerConfig(bind_address="127.0.0.1", listen_port=server.port)
    second = NameServer(NamesrvConfig(data_dir=str(tmp_path), server=taken), clock=SystemClock())
    with pytest.raises(StartError, match=str(server.port)):
        await second.start()
    await second.stop()


async def test_stopping_before_start_or_twice_is_harmless(tmp_path: Path) -> None:
    config = NamesrvConfig(data_dir=str(tmp_path), server=LOOPBACK)
    one = NameServer(config, clock=SystemClock())
    await one.stop()
    await one.start()
    assert one.address == f"127.0.0.1:{one.port}"
    await one.stop()
    await one.stop()
