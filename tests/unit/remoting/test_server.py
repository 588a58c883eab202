"""Complete server: port, processors, listeners, stop."""

import asyncio
from typing import Any

import pytest

from rocketpy.errors import ConnectError, ConnectionLostError, StartError
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.testing.sim_loop import pass_time
from tests.unit.remoting.sim import (
    ADDRESS,
    ECHO,
    FAIL,
    LATER,
    PORT,
    SILENT,
    World,
    echo,
    run,
)


class Events:
    """Listener that notes the events of connections."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_open(self, _channel: Channel) -> None:
        self.names.append("open")

    def on_close(self, _channel: Channel) -> None:
        self.names.append("close")

    def on_idle(self, _channel: Channel) -> None:
        self.names.append("idle")


class Raw(asyncio.Protocol):
    """Peer that writes arbitrary bytes."""

    def __init__(self) -> None:
        self.received = b""
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, _error: Exception | None) -> None:
        self.is_lost = True


async def raw_peer(world: World, host: str = "10.0.8.1") -> Raw:
    peer = Raw()
    await world.network.host(host).connect(lambda: peer, "10.0.0.1", PORT, tls=None)
    return peer


def test_server_answers_each_request_by_its_processor() -> None:
    async def case(world: World) -> list[tuple[int, str | None]]:
        server = world.make_server()
        server.register({98, 99}, lambda _channel, command: make_response(command, 7, "both"))
        await server.start()
        assert server.port == PORT
        client = world.client()
        found = []
        for code in (ECHO, FAIL, 98, 99, 4_242):
            response = await client.invoke(ADDRESS, make_request(code), 3_000)
            found.append((response.code, response.remark))
        return found

    assert run(case) == [
        (0, "echo"),
        (1, "ValueError: deliberate"),
        (7, "both"),
        (7, "both"),
        (3, " request type 4242 not supported"),
    ]


def test_server_default_processor_serves_unregistered_codes() -> None:
    async def case(world: World) -> list[str | None]:
        server = world.make_server()
        server.set_default(lambda _channel, command: make_response(command, 0, "default"))
        await server.start()
        client = world.client()
        return [
            (await client.invoke(ADDRESS, make_request(code), 3_000)).remark
            for code in (4_242, ECHO)
        ]

    assert run(case) == ["default", "echo"]


def test_server_pool_without_threads_runs_on_loop() -> None:
    async def case(world: World) -> None:
        server = world.make_server()
        server.register(99, echo, BusinessPool("inline", 0, 10, 0))
        await server.start()
        response = await world.client().invoke(ADDRESS, make_request(99, None, b"x"), 3_000)
        assert response.body == b"x"
        assert server.pool_statistics() == []

    run(case)


def test_server_byte_handler_serves_from_second_request() -> None:
    async def case(world: World) -> list[Any]:
        server = world.make_server()
        offered: list[bytes] = []

        def handler(_channel: Channel, data: bytes) -> tuple[int, bytes]:
            offered.append(data)
            return 0, b""

        server.set_byte_handler(handler)
        await server.start()
        peer = await raw_peer(world)
        frames = []
        for opaque in (1, 2):
            request = make_request(ECHO)
            request.opaque = opaque
            frames.append(encode_command(request))
            peer.transport.write(frames[-1])
            await pass_time(1)
        return [len(offered), offered[0] == frames[1]]

    assert run(case) == [1, True]


def test_server_notifies_listeners_of_connections() -> None:
    async def case(world: World) -> list[str]:
        server, events = world.make_server(server_channel_max_idle_time_seconds=60), Events()
        server.add_listener(events)
        await server.start()
        client = world.client()
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await pass_time(1)
        assert (events.names, server.connection_count) == (["open"], 1)
        await pass_time(100)
        assert server.connection_count == 0
        return events.names

    assert run(case) == ["open", "idle", "close"]


def test_connection_without_complete_request_is_closed() -> None:
    async def case(world: World) -> None:
        server = await world.serve(first_frame_timeout_ms=5_000)
        half = await raw_peer(world)
        half.transport.write(b"\0\0")
        await pass_time(4)
        assert not half.is_lost
        await pass_time(10)
        assert half.is_lost
        assert server.connection_count == 0

    run(case)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0\0\0\x0e\0\0\0\x0a{not json}",
    ],
)
def test_garbage_closes_its_connection_only(garbage: bytes) -> None:
    async def case(world: World) -> None:
        server, client = await world.serve(), world.client()
        bad = await raw_peer(world)
        bad.transport.write(garbage)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0
        await pass_time(2)
        assert bad.is_lost
        assert server.connection_count == 1

    run(case)


def test_connections_per_address_are_limited() -> None:
    async def case(world: World) -> None:
        server = await world.serve(server_max_connections_per_ip=2)
        for _ in range(2):
            await raw_peer(world)
        with pytest.raises(ConnectionRefusedError):
            await raw_peer(world)
        await raw_peer(world, "10.0.8.2")
        assert server.connection_count == 3

    run(case)


def test_taken_port_raises_start_error_and_starts_nothing() -> None:
    async def case(world: World) -> None:
        await world.serve()
        other = world.make_server()
        with pytest.raises(StartError, match=rf"port {PORT} on 10\.0\.0\.1 is taken.*listenPort"):
            await other.start()
        assert other.port == 0
        await other.stop()

    run(case)


def test_stop_releases_port_and_second_stop_does_nothing() -> None:
    async def case(world: World) -> None:
        first = await world.serve()
        await first.stop()
        await first.stop()
        await world.serve()
        assert (await world.client().invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)


def test_stop_answers_requests_in_progress_and_sends_go_away() -> None:
    async def case(world: World) -> list[int]:
        server, client = await world.serve(), world.client()
        first = client.invoke_future(ADDRESS, make_request(LATER), 5_000)
        await pass_time(0.5)
        stopping = asyncio.ensure_future(server.stop(3_000))
        await pass_time(0.1)
        with pytest.raises((ConnectError, ConnectionLostError)):
            # GO_AWAY sends it to a new connection, which is not accepted any more.
            await client.invoke(ADDRESS, make_request(ECHO), 2_000)
        assert (await first).remark == "later"
        await stopping
        return [server.connection_count]

    assert run(case) == [0]


def test_stop_waits_no_longer_than_grace() -> None:
    async def case(world: World) -> float:
        server = world.make_server()

        async def forever(_channel: Channel, _command: RemotingCommand) -> RemotingCommand:
            await pass_time(1_000)
            raise AssertionError

        server.register(99, forever)
        await server.start()
        call = world.client().invoke_future(ADDRESS, make_request(99), 60_000)
        await pass_time(1)
        began_s = world.loop.time()
        await server.stop(2_000)
        took_s = world.loop.time() - began_s
        with pytest.raises(ConnectionLostError):
            await call
        return took_s

    assert 1.9 <= run(case) <= 3.5


def test_register_after_start_raises() -> None:
    async def case(world: World) -> None:
        server = await world.serve()
        with pytest.raises(AssertionError, match="before start"):
            server.register(99, echo)
        with pytest.raises(AssertionError, match="before start"):
            server.set_default(echo)
        with pytest.raises(AssertionError, match="twice"):
            await server.start()

    run(case)


def test_unanswered_request_does_not_block_others() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        for _ in range(20):
            client.invoke_future(ADDRESS, make_request(SILENT), 60_000).add_done_callback(
                lambda future: future.exception()
            )
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)
