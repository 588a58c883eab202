"""Calls by address: one connection each, responses by opaque, time-outs and failures."""

import asyncio
from typing import Any

import pytest

from rocketpy.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    IllegalMessageError,
    RequestTimeoutError,
    TooManyInFlightError,
)
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.proto.wire.compiled_requests import StoredAnswer
from rocketpy.remoting import server_peer
from rocketpy.remoting.connection.channel import Channel
from rocketpy.testing.sim_loop import pass_time
from tests.unit.remoting.sim import ADDRESS, ECHO, LATER, SILENT, World, run


def test_calls_share_connection_and_get_their_responses() -> None:
    async def case(world: World) -> None:
        server, client = await world.serve(), world.client()
        assert not client.is_connected(ADDRESS)
        futures = [
            client.invoke_future(ADDRESS, make_request(ECHO, None, b"%d" % number), 3_000)
            for number in range(200)
        ]
        responses = await asyncio.gather(*futures)
        assert [response.body for response in responses] == [b"%d" % n for n in range(200)]
        assert len({response.opaque for response in responses}) == 200
        assert client.is_connected(ADDRESS)
        assert server.connection_count == 1

    run(case)


def test_out_of_order_responses_are_matched_by_opaque() -> None:
    async def case(world: World) -> list[str]:
        await world.serve()
        client = world.client()
        order: list[str] = []

        async def call(code: int) -> None:
            response = await client.invoke(ADDRESS, make_request(code), 3_000)
            order.append(response.remark or "")

        await asyncio.gather(call(LATER), call(ECHO))
        return order

    assert run(case) == ["echo", "later"]


def test_error_code_of_server_is_returned_as_response() -> None:
    async def case(world: World) -> RemotingCommand:
        await world.serve()
        return await world.client().invoke(ADDRESS, make_request(4_242), 3_000)

    response = run(case)
    assert (response.code, response.remark) == (3, " request type 4242 not supported")


def test_msgpack_is_used_from_second_request_unless_disabled() -> None:
    async def case(world: World) -> list[int]:
        await world.serve()
        found = []
        for client in (world.client(), world.client(use_msgpack=False)):
            for _ in range(2):
                response = await client.invoke(ADDRESS, make_request(ECHO), 3_000)
                found.append(response.serialize_type)
        return found

    assert run(case) == [0, 2, 0, 0]


def test_oneway_call_is_sent_and_completes_without_response() -> None:
    async def case(world: World) -> list[RemotingCommand]:
        server = world.make_server()
        arrived: list[RemotingCommand] = []

        def note(_channel: Channel, command: RemotingCommand) -> None:
            arrived.append(command)

        server.register(99, note)
        await server.start()
        client = world.client()
        await client.invoke_oneway(ADDRESS, make_request(99), 3_000)
        await pass_time(1)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0
        return arrived

    [request] = run(case)
    assert request.is_oneway


def test_unanswered_call_times_out_without_affecting_others() -> None:
    async def case(world: World) -> float:
        await world.serve()
        client = world.client()
        slow = client.invoke_future(ADDRESS, make_request(LATER), 3_000)
        began_s = world.loop.time()
        with pytest.raises(RequestTimeoutError, match="to request 13 within 200 ms"):
            await client.invoke(ADDRESS, make_request(SILENT), 200)
        took_s = world.loop.time() - began_s
        assert (await slow).remark == "later"
        return took_s

    assert run(case) == pytest.approx(0.2, abs=0.05)


def test_call_timeout_includes_connecting() -> None:
    async def case(world: World) -> float:
        await world.serve()
        client = world.client()
        world.network.partition(["10.0.0.1"], ["10.0.9.1"])
        began_s = world.loop.time()
        with pytest.raises((RequestTimeoutError, ConnectError)):
            await client.invoke(ADDRESS, make_request(ECHO), 500)
        return world.loop.time() - began_s

    assert run(case) == pytest.approx(0.5, abs=0.2)


def test_refused_connection_fails_call_and_starts_backoff() -> None:
    async def case(world: World) -> None:
        client = world.client(reconnect_backoff_initial_ms=5_000)
        with pytest.raises(ConnectError, match=f"cannot connect to {ADDRESS}"):
            await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await world.serve()
        with pytest.raises(ConnectError):
            await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await pass_time(10)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)


def test_lost_connection_fails_its_calls_and_next_call_reconnects() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        waiting = client.invoke_future(ADDRESS, make_request(SILENT), 30_000)
        await pass_time(1)
        assert world.network.cut_one()
        with pytest.raises(ConnectionLostError):
            await waiting
        assert not client.is_connected(ADDRESS)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)


def test_silent_server_is_disconnected_after_call_timeout() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await pass_time(5)
        world.host.lose_power()
        with pytest.raises(RequestTimeoutError):
            await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await pass_time(1)
        assert not client.is_connected(ADDRESS), "it may be dead: the next call reconnects"

    run(case)


def test_unused_connection_is_closed_and_reopened_by_next_call() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client(client_channel_max_idle_time_seconds=60)
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await pass_time(50)
        assert client.is_connected(ADDRESS)
        await pass_time(30)
        assert not client.is_connected(ADDRESS)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)


def test_waiting_calls_are_limited() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client(client_async_semaphore_value=3)
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        waiting = [client.invoke_future(ADDRESS, make_request(LATER), 3_000) for _ in range(3)]
        with pytest.raises(TooManyInFlightError):
            await client.invoke(ADDRESS, make_request(LATER), 3_000)
        assert [response.remark for response in await asyncio.gather(*waiting)] == ["later"] * 3
        assert (await client.invoke(ADDRESS, make_request(LATER), 3_000)).remark == "later"

    run(case)


def test_request_over_frame_limit_fails_and_connection_stays() -> None:
    async def case(world: World) -> list[int]:
        server = await world.serve(max_frame_bytes=1_000)
        client = world.client(max_frame_bytes=1_000)
        with pytest.raises(
            IllegalMessageError, match=r"1000 bytes \(max_frame_bytes here"
        ) as raised:
            await client.invoke(ADDRESS, make_request(ECHO, None, bytes(1_000)), 3_000)
        assert not raised.value.retriable
        slow = client.invoke_future(ADDRESS, make_request(LATER), 3_000)
        with pytest.raises(IllegalMessageError):
            await client.invoke_oneway(ADDRESS, make_request(ECHO, None, bytes(1_000)), 3_000)
        assert (await slow).remark == "later"
        response = await client.invoke(ADDRESS, make_request(ECHO, None, bytes(700)), 3_000)
        assert server.connection_count == 1
        return [len(response.body), response.serialize_type]

    assert run(case) == [700, 2], "the offer of MSGPACK went with the first request that was sent"


def test_go_away_resends_call_once_on_new_connection() -> None:
    async def case(world: World) -> None:
        seen: list[Channel] = []

        def leave(channel: Channel, command: RemotingCommand) -> RemotingCommand:
            seen.append(channel)
            goes = len(seen) == 1 or "always" in command.ext_fields
            return make_response(command, 1_500 if goes else 0)

        server = world.make_server()
        server.register(99, leave)
        await server.start()
        client = world.client()
        assert (await client.invoke(ADDRESS, make_request(99), 3_000)).code == 0
        assert len(seen) == 2
        assert seen[0] is not seen[1]
        again = await client.invoke(ADDRESS, make_request(99, {"always": "1"}), 3_000)
        assert again.code == 1_500
        assert len(seen) == 4

    run(case)


def test_hooks_get_requests_and_responses_and_may_raise() -> None:
    class Hook:
        def __init__(self) -> None:
            self.responses: list[tuple[str, int]] = []

        def before_request(self, address: str, command: RemotingCommand) -> None:
            if command.code == LATER:
                raise PermissionError(f"not at {address}")
            command.ext_fields["signed"] = "yes"

        def after_response(
            self, address: str, _command: RemotingCommand, response: RemotingCommand
        ) -> None:
            self.responses.append((address, response.code))
            raise ValueError("trouble of the hook's own")

    async def case(world: World) -> list[tuple[str, int]]:
        await world.serve()
        client, hook = world.client(), Hook()
        client.add_rpc_hook(hook)
        response = await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        assert response.ext_fields["signed"] == "yes"
        with pytest.raises(PermissionError, match=ADDRESS):
            await client.invoke(ADDRESS, make_request(LATER), 3_000)
        return hook.responses

    assert run(case) == [(ADDRESS, 0)]


def test_client_serves_requests_of_server() -> None:
    async def case(world: World) -> list[Any]:
        server = world.make_server()
        channels: list[Channel] = []

        def note(channel: Channel, command: RemotingCommand) -> RemotingCommand:
            channels.append(channel)
            return make_response(command)

        server.register(99, note)
        await server.start()
        client = world.client()
        client.register(40, lambda _channel, command: make_response(command, 0, "from the client"))
        await client.invoke(ADDRESS, make_request(99), 3_000)
        [channel] = channels
        answers = [await channel.invoke(make_request(code), 3_000) for code in (40, 41)]
        return [answer.remark for answer in answers]

    assert run(case) == ["from the client", " request type 41 not supported"]


def test_cancelled_call_leaves_connection_open() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        given_up = client.invoke_future(ADDRESS, make_request(LATER), 3_000)
        await pass_time(0.1)
        given_up.cancel()
        await pass_time(3)
        assert client.is_connected(ADDRESS)
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).code == 0

    run(case)


@pytest.mark.parametrize("address", ["", "nowhere", "host:", ":1", "host:x", "host:65536"])
def test_invalid_address_raises_connect_error(address: str) -> None:
    async def case(world: World) -> None:
        with pytest.raises(ConnectError):
            await world.client().invoke(address, make_request(ECHO), 1_000)

    run(case)


def test_closed_client_fails_pending_and_new_calls() -> None:
    async def case(world: World) -> None:
        server, client = await world.serve(), world.client()
        waiting = client.invoke_future(ADDRESS, make_request(SILENT), 30_000)
        await pass_time(1)
        await client.close()
        await client.close()
        with pytest.raises(ConnectionLostError, match="client closed"):
            await waiting
        for address in (ADDRESS, "10.0.0.2:1"):
            with pytest.raises(ClosedError):
                await client.invoke(address, make_request(ECHO), 3_000)
        await pass_time(1)
        assert server.connection_count == 0

    run(case)


def test_unused_client_can_be_closed() -> None:
    async def case(world: World) -> None:
        client = world.client()
        await client.close()
        with pytest.raises(ClosedError):
            await client.invoke(ADDRESS, make_request(ECHO), 3_000)

    run(case)


STORED = {"msgId": "7F00", "queueId": "1", "queueOffset": "7", "TRACE_ON": "true"}


def stored(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
    """Answer as a broker answers a send."""
    return make_response(command, 0, None, STORED, command.body)


def test_call_for_response_gets_complete_command_for_send_answer() -> None:
    async def case(world: World) -> None:
        server, client = world.make_server(), world.client()
        server.register(310, stored)
        await server.start()
        for body in (b"", b"body"):
            for _ in range(2):
                futures = [
                    client.invoke_future(ADDRESS, make_request(code, None, body), 3_000)
                    for code in (310, 310, ECHO, 310)
                ]
                for response, remark in zip(
                    await asyncio.gather(*futures), (None, None, "echo", None), strict=True
                ):
                    wanted = {} if remark else STORED
                    found = {k: v for k, v in response.ext_fields.items() if k != "rocketpy"}
                    assert (response.code, response.remark, found) == (0, remark, wanted)
                    assert response.body == body

    run(case)


class Noted:
    """Call that notes its outcome."""

    is_prompt = True

    def __init__(self, command: RemotingCommand, loop: asyncio.AbstractEventLoop) -> None:
        self.command = command
        self.timeout_ms = 3_000
        self.deadline_s = loop.time() + 3
        self.was_resent = self.is_over = False
        self.told: list[Any] = []

    def answer(self, response: RemotingCommand) -> None:
        self.told.append(dict(response.ext_fields))

    def stored(self, answer: StoredAnswer) -> bool:
        self.told.append(answer[2:])
        return True

    def fail(self, error: Exception) -> None:
        self.told.append(error)


def test_call_for_fields_gets_them_from_answers_split_anywhere() -> None:
    async def case(world: World) -> None:
        server, client = world.make_server(), world.client()
        server.register(310, stored)
        await server.start()
        loop = asyncio.get_running_loop()
        await client.invoke(ADDRESS, make_request(310), 3_000)
        (peer,) = client._peers.values()
        connection = peer._connection
        assert connection is not None
        for cut in (1, 3, 8, 50, 200, 100_000):
            calls = [Noted(make_request(310), loop) for _ in range(5)]
            data: list[bytes] = []
            take = connection.data_received
            connection.data_received = data.append  # type: ignore[method-assign,assignment]
            for call in calls:
                client.start(ADDRESS, call)
            await pass_time(0.1)
            connection.data_received = take  # type: ignore[method-assign]
            came = b"".join(data)
            for at in range(0, len(came), cut):
                take(came[at : at + cut])
            for call in calls:
                (told,) = call.told
                fields = (1, 7, "7F00", None, "DefaultRegion", None)
                assert told == (STORED if server_peer._COMPILED is None else fields)
            assert not connection.pending_bytes

    run(case)


def test_server_that_does_not_answer_sends_is_reported_and_can_be_abandoned() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        reported: list[str] = []
        client.on_silence = reported.append
        loop = asyncio.get_running_loop()
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        pull = client.invoke_future(ADDRESS, make_request(SILENT), 30_000)
        await pass_time(10)
        assert reported == [], "a pull waits for messages"
        call = Noted(make_request(SILENT), loop)
        call.deadline_s, call.timeout_ms = loop.time() + 20, 20_000
        client.start(ADDRESS, call)
        await pass_time(0.5)
        assert (reported, call.told) == ([], [])
        await pass_time(3)
        assert reported.count(ADDRESS) in {2, 3}
        client.abandon("10.0.0.7:1", "replaced")
        assert call.told == []
        client.abandon(ADDRESS, "replaced")
        await pass_time(0.1)
        [error] = call.told
        assert isinstance(error, ConnectionLostError)
        assert "replaced" in str(error)
        with pytest.raises(ConnectionLostError, match="replaced"):
            await pull

    run(case)


def test_ended_connection_is_reported_by_its_address() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        ended: list[str] = []
        client.on_disconnect = ended.append
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        assert ended == []
        assert world.network.cut_one()
        await pass_time(0.1)
        assert ended == [ADDRESS]
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        await client.close()
        assert ended == [ADDRESS, ADDRESS]

    run(case)


def test_server_that_answers_is_not_abandoned() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        slow = client.invoke_future(ADDRESS, make_request(SILENT), 30_000)
        await pass_time(5)
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        client.abandon(ADDRESS, "replaced")
        assert not slow.done()
        slow.cancel()

    run(case)


def test_calls_that_wait_for_a_connection_are_reported_and_can_be_abandoned() -> None:
    async def case(world: World) -> None:
        client = world.client(connect_timeout_millis=60_000)
        reported: list[str] = []
        client.on_silence = reported.append
        world.network.partition(["10.0.0.1"], ["10.0.9.1"])
        call = Noted(make_request(ECHO), asyncio.get_running_loop())
        call.deadline_s, call.timeout_ms = world.loop.time() + 20, 20_000
        client.start(ADDRESS, call)
        await pass_time(3)
        assert ADDRESS in reported
        client.abandon(ADDRESS, "replaced")
        [error] = call.told
        assert isinstance(error, ConnectError)
        world.network.heal()

    run(case)


def test_unused_addresses_are_forgotten() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        for number in range(1, 100):
            with pytest.raises(ConnectError):
                await client.invoke(f"10.0.0.77:{number}", make_request(ECHO), 3_000)
        assert len(client._peers) == 100
        await pass_time(70)
        assert list(client._peers) == [ADDRESS], "it is connected"
        with pytest.raises(ConnectError):
            await client.invoke("10.0.0.77:1", make_request(ECHO), 3_000)

    run(case)


def test_connection_with_endless_frame_is_replaced() -> None:
    async def case(world: World) -> None:
        await world.serve()
        client = world.client()
        await client.invoke(ADDRESS, make_request(ECHO), 3_000)
        (peer,) = client._peers.values()
        connection = peer._connection
        assert connection is not None
        connection.data_received(b"\0\0\x40\0\0\0\0\x40")
        for _ in range(40):
            connection.data_received(b" ")
            await pass_time(1)
        assert not connection.channel.is_open
        assert (await client.invoke(ADDRESS, make_request(ECHO), 3_000)).remark == "echo"

    run(case)
