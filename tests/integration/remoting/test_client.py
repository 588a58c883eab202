import asyncio

import pytest

from rocketpy.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyInFlightError,
)
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.connection.channel import Channel
from tests.integration.remoting.helpers import (
    ECHO,
    LATER,
    LIMIT_S,
    SILENT,
    client,
    make_server,
    serving,
    until,
)
from tests.ports import free_port


async def test_calls_and_their_responses() -> None:
    async with serving() as (server, address), client() as caller:
        assert not caller.is_connected(address)
        futures = [
            caller.invoke_future(address, make_request(ECHO, None, b"%d" % n), 60_000)
            for n in range(300)
        ]
        responses = await asyncio.gather(*futures)
        assert [response.body for response in responses] == [b"%d" % n for n in range(300)]
        assert caller.is_connected(address)
        assert server.connection_count == 1


async def test_msgpack_is_agreed_with_a_rocketpy_server() -> None:
    async with serving() as (_, address), client() as caller:
        first = await caller.invoke(address, make_request(ECHO), 60_000)
        second = await caller.invoke(address, make_request(ECHO, {"a": "ü"}, b"x"), 60_000)
        assert (first.serialize_type, second.serialize_type) == (0, 2)
        assert (second.ext_fields, second.body) == ({"a": "ü"}, b"x")


async def test_msgpack_can_be_switched_off() -> None:
    async with serving() as (_, address), client(use_msgpack=False) as caller:
        for _ in range(2):
            response = await caller.invoke(address, make_request(ECHO), 60_000)
            assert (response.serialize_type, response.ext_fields) == (0, {})


async def test_oneway_is_sent_without_response() -> None:
    server = make_server()
    arrived = asyncio.Event()

    def note(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        assert command.is_oneway
        arrived.set()
        return make_response(command)

    server.register(99, note)
    await server.start()
    async with client() as caller:
        await caller.invoke_oneway(f"127.0.0.1:{server.port}", make_request(99), 60_000)
        await asyncio.wait_for(arrived.wait(), LIMIT_S)
    await server.stop()


async def test_timeout_leaves_other_calls_alone() -> None:
    async with serving() as (_, address), client() as caller:
        later = caller.invoke_future(address, make_request(LATER), 60_000)
        with pytest.raises(RequestTimeoutError, match="to request 13 within 20 ms"):
            await caller.invoke(address, make_request(SILENT), 20)
        assert (await later).remark == "later"


async def test_connection_silent_for_call_timeout_is_aborted() -> None:
    async with serving() as (_, address), client() as caller:
        await caller.invoke(address, make_request(ECHO), 60_000)
        peer = caller._peers[address]
        (connection,) = peer.connections
        caller.sweep(caller.now_ms() - 5000)  # last read seems 5 s ago
        with pytest.raises(RequestTimeoutError):
            await caller.invoke(address, make_request(SILENT), 20)
        assert not connection.channel.is_open
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0


async def test_host_name_with_a_nul_cannot_be_connected_to() -> None:
    async with client() as caller:
        with pytest.raises(ConnectError, match="cannot connect to a"):
            await caller.invoke("a\0b:1", make_request(ECHO), 60_000)


_BACKOFF = ("reconnect_backoff_initial_ms", "reconnect_backoff_max_ms")


async def test_refused_connect_fails_at_once_and_backs_off() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    async with client(**dict.fromkeys(_BACKOFF, 60000)) as caller:
        with pytest.raises(ConnectError, match=f"cannot connect to {address}"):
            await caller.invoke(address, make_request(ECHO), 60_000)
        with pytest.raises(ConnectError) as caught:
            await caller.invoke(address, make_request(ECHO), 60_000)
        assert caught.value.retry_in_ms > 50_000, "no connection was tried"
        again = make_server(listen_port=port)
        await again.start()
        caller._peers[address]._retry_at_ms = caller.now_ms()
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0
        assert caller._peers[address]._failures_count == 0
        await again.stop()


async def test_lost_connection_fails_calls_and_reconnects() -> None:
    server = make_server()
    channels: list[Channel] = []

    def hang_up(channel: Channel, command: RemotingCommand) -> None:
        channels.append(channel)
        channel.close("test")

    server.register(99, hang_up)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with client() as caller:
        waiting = caller.invoke_future(address, make_request(SILENT), 60_000)
        with pytest.raises(ConnectionLostError, match="closed"):
            await caller.invoke(address, make_request(99), 60_000)
        with pytest.raises(ConnectionLostError):
            await waiting
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0
    await server.stop()


async def test_go_away_resends_once_on_new_connection() -> None:
    server = make_server()
    seen: list[Channel] = []

    def busy_leaving(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        seen.append(channel)
        leaving = len(seen) < 2 or command.ext_fields.get("always") == "1"
        return make_response(command, 1500 if leaving else 0)

    server.register(99, busy_leaving)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with client() as caller:
        response = await caller.invoke(address, make_request(99), 60_000)
        assert response.code == 0
        assert len(seen) == 2
        assert seen[0] is not seen[1]
        response = await caller.invoke(address, make_request(99, {"always": "1"}), 60_000)
        assert response.code == 1500
        assert len(seen) == 4
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0
    await server.stop()


async def test_go_away_lets_the_old_connection_finish_first() -> None:
    server = make_server()
    first: list[Channel] = []

    def leave_first(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        if not first:
            first.append(channel)
        return make_response(command, 1500 if channel is first[0] else 0)

    server.register(99, leave_first)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with client() as caller:
        later = caller.invoke_future(address, make_request(LATER), 60_000)
        assert (await caller.invoke(address, make_request(99), 60_000)).code == 0
        assert first[0].is_open
        assert (await later).remark == "later"
        await until(lambda: server.connection_count == 1)
    await server.stop()


async def test_hooks_see_requests_and_responses() -> None:
    class Hook:
        def __init__(self) -> None:
            self.responses: list[int] = []

        def before_request(self, address: str, command: RemotingCommand) -> None:
            if command.code == 4242:
                raise PermissionError("not this one")
            command.ext_fields["Signature"] = ",".join(sorted(command.ext_fields))

        def after_response(
            self, address: str, command: RemotingCommand, response: RemotingCommand
        ) -> None:
            self.responses.append(response.code)
            raise ValueError("hook trouble")

    async with serving() as (_, address), client() as caller:
        hook = Hook()
        caller.add_rpc_hook(hook)
        response = await caller.invoke(address, make_request(ECHO, {"a": "b"}), 60_000)
        assert response.ext_fields["Signature"] == "a,rocketpy"
        assert hook.responses == [0]
        with pytest.raises(PermissionError):
            await caller.invoke(address, make_request(4242), 60_000)


async def test_in_flight_is_bounded() -> None:
    async with serving() as (_, address), client(client_async_semaphore_value=3) as caller:
        await caller.invoke(address, make_request(ECHO), 60_000)
        waiting = [caller.invoke_future(address, make_request(LATER), 60_000) for _ in range(3)]
        with pytest.raises(TooManyInFlightError):
            await caller.invoke(address, make_request(LATER), 60_000)
        assert [response.code for response in await asyncio.gather(*waiting)] == [0, 0, 0]


async def test_idle_connection_closes_and_reopens() -> None:
    async with serving() as (_, address), client() as caller:
        await caller.invoke(address, make_request(ECHO), 60_000)
        caller.sweep(caller.now_ms())
        caller.sweep(caller.now_ms() + 121_000)
        assert not caller.is_connected(address)
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0


async def test_closed_client_fails_its_calls() -> None:
    async with serving() as (_, address), client() as caller:
        await caller.invoke(address, make_request(ECHO), 60_000)
        waiting = caller.invoke_future(address, make_request(SILENT), 60_000)
        await caller.close()
        with pytest.raises(ConnectionLostError, match="client closed"):
            await waiting
        with pytest.raises(ClosedError):
            await caller.invoke(address, make_request(ECHO), 60_000)
        with pytest.raises(ClosedError):
            await caller.invoke("127.0.0.1:1", make_request(ECHO), 60_000)


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:x", "host:65536", "a..b:1"])
async def test_invalid_addresses_raise_connect_error(address: str) -> None:
    async with client() as caller:
        with pytest.raises(ConnectError):
            await caller.invoke(address, make_request(ECHO), 1000)


async def test_cancelled_call_ignores_its_response() -> None:
    async with serving() as (_, address), client() as caller:
        later = caller.invoke_future(address, make_request(LATER), 60_000)
        await asyncio.sleep(0)
        later.cancel()
        # Its response comes before that of another that takes as long.
        assert (await caller.invoke(address, make_request(LATER), 60_000)).code == 0
        assert (await caller.invoke(address, make_request(ECHO), 60_000)).code == 0
