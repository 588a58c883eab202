import asyncio
import threading

import pytest

from rocketpy.errors import ConnectionLostError, RequestTimeoutError, StartError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import SystemClock
from tests.integration.remoting.helpers import (
    BIG,
    ECHO,
    FAIL,
    LATER,
    LIMIT_S,
    POOLED,
    SILENT,
    THREAD,
    RawPeer,
    big,
    client,
    make_server,
    numbered,
    serving,
    until,
)
from tests.ports import free_port


class Events:
    def __init__(self) -> None:
        self.names: list[str] = []
        self.channels: list[Channel] = []
        self.opened = asyncio.Event()

    def on_open(self, channel: Channel) -> None:
        self.names.append("open")
        self.channels.append(channel)
        self.opened.set()

    def on_close(self, channel: Channel) -> None:
        self.names.append("close")

    def on_idle(self, channel: Channel) -> None:
        self.names.append("idle")


async def test_every_kind_of_response() -> None:
    async with serving() as (_, address):
        peer = await RawPeer.connect(address)
        peer.send(
            numbered(LATER, 1),
            numbered(ECHO, 2, b"body", a="b"),
            numbered(FAIL, 3),
            numbered(SILENT, 4),
            numbered(4242, 5),
        )
        responses = {}
        for _ in range(4):
            response = await peer.receive()
            responses[response.opaque] = response
        assert (responses[2].body, responses[2].ext_fields) == (b"body", {"a": "b"})
        assert (responses[3].code, responses[3].remark) == (1, "ValueError: deliberate")
        assert (responses[5].code, responses[5].remark) == (3, " request type 4242 not supported")
        assert responses[1].remark == "later"
        await peer.close()


GARBAGE = [
    b"\x00\x00\x00\x00\x00\x00\x00\x00",
    b"\xff\xff\xff\xff\x00\x00\x00\x00",
    b"\x7f\xff\xff\xff\x00\x00\x00\x01",
    b"\x00\x00\x00\x08\x00\x00\xff\xff1234",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x00\x00\x00\x0e\x00\x00\x00\x0a{not json}",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_closes_its_connection_only(garbage: bytes) -> None:
    async with serving() as (server, address):
        good, bad = await RawPeer.connect(address), await RawPeer.connect(address)
        bad.writer.write(garbage)
        assert await bad.is_closed_by_peer()
        good.send(numbered(ECHO, 1))
        assert (await good.receive()).code == 0
        await until(lambda: server.connection_count == 1)
        await bad.close()
        await good.close()


async def test_half_frames_are_put_together() -> None:
    async with serving() as (_, address):
        peer = await RawPeer.connect(address)
        frame = encode_command(numbered(ECHO, 1, b"x" * 1000))
        for start in range(0, len(frame), 100):
            peer.writer.write(frame[start : start + 100])
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.receive()).body == b"x" * 1000
        await peer.close()


async def test_pool_responses_a_whole_read() -> None:
    pool = BusinessPool("biz", 1, 1000, 0)
    async with serving(pool) as (server, address):
        peer = await RawPeer.connect(address)
        peer.send(*(numbered(POOLED, n) for n in range(500)))
        assert [(await peer.receive()).opaque for _ in range(500)] == list(range(500))
        peer.send(numbered(THREAD, 1))
        assert (await peer.receive()).remark == "biz-0"
        await until(lambda: server.pool_statistics()[0].completed_count == 501)
        assert server.pool_statistics()[0].queued_count == 0
        await peer.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("biz")]


async def test_coroutine_requests_in_progress_are_limited_and_all_answered() -> None:
    async with serving(max_in_flight_per_connection=512) as (server, address):
        peer = await RawPeer.connect(address)
        (selector,) = server._selectors
        peer.send(*(numbered(LATER, n) for n in range(5_000)))
        highest, seen = 0, set()
        for _ in range(5_000):
            seen.add((await peer.receive()).opaque)
            highest = max(highest, *(each.in_progress.count for each in selector.connections))
        assert seen == set(range(5_000))
        assert 0 < highest <= 512
        await peer.close()


async def test_coroutine_cancelled_from_within_is_answered_and_done() -> None:
    """Otherwise its caller waits in vain, and enough of them stop the connection."""

    async def gives_up(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        raise asyncio.CancelledError

    server = make_server()
    server.register(99, gives_up)
    await server.start()
    peer = await RawPeer.connect(f"127.0.0.1:{server.port}")
    peer.send(numbered(99, 1))
    response = await peer.receive()
    assert (response.opaque, response.code) == (1, 1)
    (connection,) = server._selectors[0].connections
    assert connection.in_progress.count == 0
    await peer.close()
    await server.stop()


async def test_several_selectors_share_the_connections() -> None:
    async with serving(server_selector_threads=3) as (server, address):
        peers = [await RawPeer.connect(address) for _ in range(6)]
        names = []
        for peer in peers:
            peer.send(numbered(THREAD, 1))
            names.append((await peer.receive()).remark or "")
        assert sorted(set(names)) == [f"test-selector-{n}" for n in range(3)]
        assert server.connection_count == 6
        for peer in peers:
            await peer.close()
    assert not [t for t in threading.enumerate() if "selector" in t.name]


async def test_peer_that_does_not_read_is_limited_and_does_not_affect_others() -> None:
    events = Events()
    server = make_server(
        write_buffer_high_water_mark=1 << 20,
        write_buffer_low_water_mark=1 << 16,
        write_buffer_hard_limit_bytes=8 << 20,
    )
    server.add_listener(events)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    slow, good = await RawPeer.connect(address), await RawPeer.connect(address)
    slow.stop_reading()
    slow.send(*(numbered(BIG, n) for n in range(400)))
    await until(lambda: len(events.channels) == 2)
    channel = events.channels[0]
    await until(lambda: not channel.is_writable)
    assert channel._transport.get_write_buffer_size() < 4 << 20
    good.send(numbered(ECHO, 1))
    assert (await good.receive()).code == 0
    slow.read_again()
    assert [(await slow.receive()).opaque for _ in range(400)] == list(range(400))
    await slow.close()
    await good.close()
    await server.stop()


@pytest.mark.parametrize("selectors", [1, 2])
async def test_requests_of_a_slow_reader_keep_their_order_on_a_pool(selectors: int) -> None:
    pool = BusinessPool("order", 1, 10_000, 0)
    server = make_server(
        server_selector_threads=selectors,
        write_buffer_high_water_mark=1 << 20,
        write_buffer_low_water_mark=1 << 16,
    )
    server.register(BIG, big, pool)
    await server.start()
    slow = await RawPeer.connect(f"127.0.0.1:{server.port}")
    for turn in range(4):
        slow.stop_reading()
        slow.send(*(numbered(BIG, turn * 100 + n) for n in range(50)))
        await asyncio.sleep(0.02)
        slow.send(*(numbered(BIG, turn * 100 + n) for n in range(50, 100)))
        slow.read_again()
    assert [(await slow.receive()).opaque for _ in range(400)] == list(range(400))
    await slow.close()
    await server.stop()


async def test_stalled_peer_is_reset_by_sweep() -> None:
    events = Events()
    server = make_server(write_buffer_high_water_mark=1 << 20, write_buffer_low_water_mark=1 << 16)
    server.add_listener(events)
    await server.start()
    slow = await RawPeer.connect(f"127.0.0.1:{server.port}")
    slow.stop_reading()
    slow.send(*(numbered(BIG, n) for n in range(200)))
    await asyncio.wait_for(events.opened.wait(), LIMIT_S)
    (channel,) = events.channels
    await until(lambda: not channel.is_writable)
    now_ms = server._clock.monotonic_ms()
    server.sweep(now_ms + 1_000)
    assert channel.close_reason is None
    server.sweep(now_ms + 60_000)
    assert "takes nothing" in str(channel.close_reason)
    await until(lambda: events.names == ["open", "close"])
    slow.writer.transport.abort()
    await server.stop()


async def test_idle_and_half_open_connections_are_closed() -> None:
    events = Events()
    server = make_server()
    server.add_listener(events)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    half, idle = await RawPeer.connect(address), await RawPeer.connect(address)
    half.writer.write(b"\x00\x00")
    idle.send(numbered(ECHO, 1))
    await idle.receive()
    now_ms = server._clock.monotonic_ms()
    server.sweep(now_ms + 20_000)
    assert await half.is_closed_by_peer()
    server.sweep(now_ms + 150_000)
    assert await idle.is_closed_by_peer()
    await until(lambda: sorted(events.names) == ["close", "close", "idle", "open", "open"])
    await half.close()
    await idle.close()
    await server.stop()


async def test_connections_over_the_limit_are_closed_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(server_max_connections_per_ip=2) as (server, address):
        peers = [await RawPeer.connect(address) for _ in range(5)]
        closed = [await peer.is_closed_by_peer() for peer in peers[2:]]
        assert closed == [True, True, True]
        peers[0].send(numbered(ECHO, 1))
        assert (await peers[0].receive()).code == 0
        assert server.connection_count == 2
        assert caplog.text.count("connections refused") == 1
        for peer in peers:
            await peer.close()


async def test_taken_port_raises_start_error() -> None:
    async with serving() as (server, _):
        other = make_server(listen_port=server.port)
        with pytest.raises(StartError, match=f"port {server.port} on 127.0.0.1 is taken"):
            await other.start()
        config = RemotingServerConfig(bind_address="127.0.0.1", listen_port=server.port)
        named = RemotingServer(config, clock=SystemClock(), port_key="controllerListenPort")
        with pytest.raises(StartError, match="or change controllerListenPort"):
            await named.start()


async def test_stop_finishes_requests_in_progress_and_releases_port() -> None:
    port = free_port()
    server = make_server(listen_port=port)
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def held(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        begun.set()
        await may_end.wait()
        return make_response(command, 0, "held")

    server.register(99, held)
    await server.start()
    peer = await RawPeer.connect(f"127.0.0.1:{port}")
    peer.send(numbered(99, 1))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    stopping = asyncio.create_task(server.stop(60_000))
    await asyncio.sleep(0)
    peer.send(numbered(ECHO, 2))
    response = await peer.receive()
    assert (response.opaque, response.code) == (2, 1500)
    may_end.set()
    response = await peer.receive()
    assert (response.opaque, response.remark) == (1, "held")
    assert await peer.is_closed_by_peer()
    await stopping
    await peer.close()
    again = make_server(listen_port=port)
    await again.start()
    await again.stop()


async def test_stop_answers_suspended_requests_of_slow_peer() -> None:
    """Suspended requests and unsent output of a slow peer count as requests in progress."""
    server = make_server(write_buffer_high_water_mark=65_536, write_buffer_low_water_mark=4_096)
    await server.start()
    peer = await RawPeer.connect(f"127.0.0.1:{server.port}")
    peer.send(numbered(ECHO, 0))
    assert (await peer.receive()).code == 0
    peer.stop_reading()
    peer.send(*(numbered(BIG, opaque) for opaque in range(1, 61)))
    (connection,) = server._selectors[0].connections
    await until(lambda: connection.in_progress.has_suspended and connection.unsent_bytes > 0)
    stopping = asyncio.create_task(server.stop(60_000))
    await asyncio.sleep(0.1)  # longer than the server waits for silence
    peer.read_again()
    responses = [await peer.receive() for _ in range(60)]
    assert [response.opaque for response in responses] == list(range(1, 61))
    assert {response.code for response in responses[-10:]} == {int(ResponseCode.GO_AWAY)}
    await stopping
    await peer.close()


async def test_stop_does_not_wait_longer_than_its_grace() -> None:
    server = make_server()

    begun = asyncio.Event()

    async def forever(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    server.register(99, forever)
    await server.start()
    peer = await RawPeer.connect(f"127.0.0.1:{server.port}")
    peer.send(numbered(99, 1))
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    await asyncio.wait_for(server.stop(50), LIMIT_S)
    assert await peer.is_closed_by_peer()
    await peer.close()


@pytest.mark.parametrize("selectors", [1, 2])
async def test_server_calls_its_client(selectors: int) -> None:
    events = Events()
    server = make_server(server_selector_threads=selectors)
    loop = asyncio.get_running_loop()

    class CrossThread(Events):
        def on_open(self, channel: Channel) -> None:
            events.channels.append(channel)
            loop.call_soon_threadsafe(events.opened.set)

    server.add_listener(CrossThread())
    await server.start()
    got: list[RemotingCommand] = []
    async with client() as caller:

        async def response(channel: Channel, command: RemotingCommand) -> RemotingCommand:
            return make_response(command, 0, "from the client")

        def note(channel: Channel, command: RemotingCommand) -> None:
            got.append(command)

        caller.register(307, response)
        caller.register(40, note)
        await caller.invoke(f"127.0.0.1:{server.port}", make_request(ECHO), 60_000)
        await asyncio.wait_for(events.opened.wait(), LIMIT_S)
        (channel,) = events.channels
        assert (await channel.invoke(make_request(307), 60_000)).remark == "from the client"
        assert (await channel.invoke(make_request(555), 60_000)).code == 3
        channel.invoke_oneway(make_request(40))
        await until(lambda: len(got) == 1)
        with pytest.raises(RequestTimeoutError):
            await channel.invoke(make_request(40), 30)
    await until(lambda: not channel.is_open)
    with pytest.raises(ConnectionLostError):
        await channel.invoke(make_request(307), 60_000)
    await server.stop()


async def test_proxy_protocol_names_the_client() -> None:
    server = make_server(proxy_protocol=True)
    server.register(98, lambda channel, c: make_response(c, 0, channel.remote_address))
    await server.start()
    peer = await RawPeer.connect(f"127.0.0.1:{server.port}")
    peer.writer.write(b"PROXY TCP4 10.1.2.3 10.0.0.1 4567 10911\r\n")
    peer.send(numbered(98, 1))
    assert (await peer.receive()).remark == "10.1.2.3:4567"
    await peer.close()
    await server.stop()
