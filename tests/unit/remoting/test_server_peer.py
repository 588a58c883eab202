"""Back-off and addresses of one server; connecting itself is tested on loopback."""

import random
from collections.abc import Awaitable
from typing import Any

import pytest

from rocketpy.errors import ClosedError, ConnectError
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request, make_response
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.remoting.connection.calls import PendingRequest
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnScheduler
from rocketpy.remoting.connection.frame_connection import FLUSH_BYTES
from rocketpy.remoting.server_peer import ClientConnection, ServerPeer, split_address
from tests.unit.remoting.fakes import (
    LIMITS,
    FakeFuture,
    FakeLoop,
    FakeTransport,
    ManualClock,
    echo,
    request,
)


class FakeContext:
    def __init__(self, **settings: Any) -> None:
        self.config = RemotingClientConfig(**settings)
        self.table = ProcessorTable()
        self.limits = LIMITS
        self.hooks: list[Any] = []
        self.loop = FakeLoop()
        self.rng = random.Random(3)
        self.tls = None
        self.network: Any = None
        self.turns = TurnScheduler(self.loop, lambda: 0)
        self.next_opaque = iter(range(1000)).__next__
        self.clock = ManualClock()
        self.connects = 0

    def now_ms(self) -> int:
        return self.clock.now

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Count a connect; it is never made here."""
        self.connects += 1
        coroutine.close()  # type: ignore[attr-defined]


def call(peer: ServerPeer, context: FakeContext, timeout_ms: int = 3000) -> FakeFuture:
    future = FakeFuture()
    deadline_s = context.loop.time() + timeout_ms / 1000
    peer.start(PendingRequest(make_request(1), future, timeout_ms, deadline_s))  # type: ignore[arg-type]
    return future


def make_peer(context: FakeContext) -> ServerPeer:
    return ServerPeer("10.0.0.1:10911", context)  # type: ignore[arg-type]


def test_split_address_reads_host_and_port_or_fails() -> None:
    assert split_address("broker-1:10911") == ("broker-1", 10911)
    assert split_address("[::1]:9876") == ("::1", 9876)
    with pytest.raises(ConnectError, match="host:port"):
        split_address("broker-1")


def test_waiting_calls_share_one_connect_and_time_out_separately() -> None:
    context = FakeContext()
    peer = make_peer(context)
    first, second = call(peer, context, 100), call(peer, context, 500)
    assert context.connects == 1
    context.loop.advance(0.2)
    assert isinstance(first.error, ConnectError)
    assert str(first.error).endswith("within 100 ms; nothing was sent")
    assert not second.done()


def test_failed_connect_fails_waiting_calls_and_backoff_grows_to_limit() -> None:
    context = FakeContext(reconnect_backoff_jitter=0.0)
    peer = make_peer(context)
    waiting = call(peer, context)
    pauses = []
    for _ in range(12):
        before_ms = context.clock.now
        peer._connect_failed("refused")
        peer._is_connecting = False
        pauses.append(peer._retry_at_ms - before_ms)
        context.clock.now = peer._retry_at_ms
    assert isinstance(waiting.error, ConnectError)
    assert pauses[:4] == [100, 160, 256, 409]
    assert pauses[-1] == 1000
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("failure", "words"),
    [(ConnectionResetError(), "ConnectionResetError"), (OSError(111, "refused"), "refused")],
)
async def test_failed_connect_error_has_reason(failure: OSError, words: str) -> None:
    class NoNetwork:
        async def connect(self, *_: Any, **__: Any) -> None:
            raise failure

    context = FakeContext()
    context.network = NoNetwork()
    peer = make_peer(context)
    waiting = call(peer, context)
    await peer._connect()
    assert isinstance(waiting.error, ConnectError)
    assert str(waiting.error).startswith("cannot connect to 10.0.0.1:10911: ")
    assert str(waiting.error).endswith(words)


def test_call_during_backoff_fails_at_once_with_reason() -> None:
    context = FakeContext(reconnect_backoff_jitter=0.0)
    peer = make_peer(context)
    peer._connect_failed("cannot connect to 10.0.0.1:10911: refused")
    future = call(peer, context)
    assert str(future.error) == "cannot connect to 10.0.0.1:10911: refused"
    assert isinstance(future.error, ConnectError)
    assert future.error.retry_in_ms == 100
    assert isinstance(future.error, ConnectError)
    assert future.error.retry_in_ms == 100
    assert context.connects == 0
    context.clock.now += 100
    assert not call(peer, context).done()
    assert context.connects == 1


def test_backoff_jitter_stays_within_its_share() -> None:
    context = FakeContext(reconnect_backoff_jitter=0.2)
    pauses = set()
    for _ in range(50):
        peer = make_peer(context)
        peer._connect_failed("refused")
        pauses.add(peer._retry_at_ms - context.clock.now)
    assert min(pauses) >= 80
    assert max(pauses) <= 120
    assert len(pauses) > 10


def test_closed_peer_fails_waiting_and_new_calls() -> None:
    context = FakeContext()
    peer = make_peer(context)
    waiting = call(peer, context)
    peer.close()
    assert isinstance(waiting.error, ClosedError)
    assert isinstance(call(peer, context).error, ClosedError)


class ConnectedKit:
    """A peer with one open connection; request code 7 is echoed, 8 is answered at length."""

    def __init__(self) -> None:
        self.context = FakeContext()
        self.context.table.register(7, echo, None)
        self.context.table.register(8, long_response, None)
        self.peer = make_peer(self.context)
        self.connection = ClientConnection(self.peer)
        self.transport = FakeTransport()
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.peer._connected(self.connection)

    def receive(self, *commands: RemotingCommand) -> None:
        self.connection.data_received(b"".join(map(encode_command, commands)))

    def responses(self) -> list[int]:
        return [command.opaque for command in self.transport.responses()]


def long_response(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, None, None, bytes(FLUSH_BYTES // 2))


def test_client_connection_gives_response_to_call_and_answers_requests_in_one_write() -> None:
    kit = ConnectedKit()
    future = call(kit.peer, kit.context)
    asked = kit.transport.responses()[0]
    kit.transport.writes.clear()
    kit.receive(request(7, 1), make_response(asked, 5, "said"), request(7, 2))
    assert (future.value.code, future.value.remark) == (5, "said")
    assert kit.responses() == [1, 2]
    assert len(kit.transport.writes) == 1


def test_client_connection_stops_reading_while_server_does_not_take_and_loses_nothing() -> None:
    kit = ConnectedKit()
    future = call(kit.peer, kit.context)
    asked = kit.transport.responses()[0]
    kit.transport.writes.clear()
    kit.connection.pause_writing()
    assert not kit.transport.is_reading
    kit.receive(request(7, 1), make_response(asked, 5))
    assert (kit.responses(), future.done()) == ([], False)
    kit.connection.resume_writing()
    kit.context.loop.run()
    assert kit.transport.is_reading
    assert (kit.responses(), future.value.code) == ([1], 5)


def test_client_connection_holds_requests_back_while_its_responses_fill_the_transport() -> None:
    kit = ConnectedKit()
    write = kit.transport.write

    def fill(data: bytes) -> None:
        write(data)
        kit.connection.pause_writing()

    kit.transport.write = fill  # type: ignore[method-assign]
    kit.receive(*(request(8, opaque) for opaque in range(6)))
    assert kit.responses() == [0, 1]
    kit.receive(request(8, 6), request(8, 7))
    for served in (4, 6, 8):
        assert not kit.transport.is_reading
        kit.connection.resume_writing()
        kit.context.loop.run()
        assert kit.responses() == list(range(served))
    kit.connection.resume_writing()
    kit.context.loop.run()
    assert kit.transport.is_reading


def test_client_connection_is_busy_until_deferred_response_is_set() -> None:
    kit = ConnectedKit()
    held: list[DeferredResponse] = []

    def defer(channel: Channel, command: RemotingCommand) -> DeferredResponse:
        held.append(channel.defer(command))
        return held[0]

    kit.context.table.register(9, defer, None)
    kit.receive(request(9, 1))
    assert kit.connection.is_busy
    held[0].set(make_response(held[0].request, 3))
    kit.context.loop.run()
    assert (kit.responses(), kit.connection.is_busy) == ([1], False)
