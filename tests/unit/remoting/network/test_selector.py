import asyncio
from typing import Any, cast

import pytest

from rocketpy.proto.wire.command import encode_command, make_request
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection import Connection
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.selector import Selector
from tests.unit.remoting.fakes import LIMITS, FakeLoop, FakeTransport, Held, ManualClock


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_open(self, channel: Channel) -> None:
        self.events.append("open")

    def on_close(self, channel: Channel) -> None:
        self.events.append("close")

    def on_idle(self, channel: Channel) -> None:
        raise ValueError("listener trouble")


def make_selector(
    listeners: list[Any], memory_limit_bytes: int = 1000, max_connections: int = 0
) -> Selector:
    selector = Selector(
        ProcessorTable(),
        LIMITS,
        ManualClock(),
        admission=Admission(max_connections, 0, ManualClock()),
        listeners=listeners,
        memory_limit_bytes=memory_limit_bytes,
    )
    selector.bind(FakeLoop())  # type: ignore[arg-type]
    return selector


def connect(selector: Selector, buffered: int = 0) -> tuple[Connection, FakeTransport]:
    connection = Connection(selector, selector.loop)
    selector.connections.add(connection)
    transport = FakeTransport()
    transport.buffered = buffered
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


def test_selector_notifies_listeners_once_of_each_connection() -> None:
    listener = Listener()
    selector = make_selector([listener])
    connection, _ = connect(selector)
    connection.connection_lost(None)
    assert listener.events == ["open", "close"]
    assert not selector.connections


def test_failing_listener_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    selector = make_selector([Listener(), Listener()])
    connection, transport = connect(selector)
    connection.has_first_command = True
    selector.sweep(500_000)
    assert caplog.text.count("listener failed: call=on_idle") == 2
    assert transport.is_closed


def test_memory_limit_aborts_connections_with_most_unsent_output() -> None:
    selector = make_selector([], memory_limit_bytes=1000)
    _, modest = connect(selector, 400)
    _, greedy = connect(selector, 900)
    _, greedier = connect(selector, 5000)
    selector.sweep(2_000)
    assert [t.is_aborted for t in (modest, greedy, greedier)] == [False, True, True]


def test_within_memory_limit_no_connection_is_aborted() -> None:
    selector = make_selector([], memory_limit_bytes=1000)
    transports = [connect(selector, 500)[1] for _ in range(2)]
    selector.sweep(2_000)
    assert [t.is_aborted for t in transports] == [False, False]


def test_selector_sweeps_every_second() -> None:
    selector = make_selector([])
    _, transport = connect(selector)
    clock = cast("ManualClock", selector._clock)
    loop = cast("FakeLoop", cast("object", selector.loop))
    for _ in range(20):
        clock.now += 1_000
        loop.advance(1.0)
    assert transport.is_closed  # no first request in 15 s


def arrive(selector: Selector, *, is_crowded: bool = False) -> tuple[Connection, FakeTransport]:
    assert selector._admission.admit("10.0.0.7")
    connection = selector.new_connection("10.0.0.7", is_crowded=is_crowded)
    transport = FakeTransport()
    connection.connection_made(transport)  # type: ignore[arg-type]
    return connection, transport


@pytest.mark.parametrize("why", ["crowded", "over the limit"])
def test_full_selector_closes_oldest_connection_without_request(why: str) -> None:
    selector = make_selector([], max_connections=3 if why == "over the limit" else 0)
    honest, honest_transport = arrive(selector)
    honest.data_received(encode_command(make_request(1)))
    older, older_transport = arrive(selector)
    newer, newer_transport = arrive(selector)
    for _ in range(2):
        arrive(selector, is_crowded=why == "crowded")[0].has_first_command = True
    assert older_transport.is_aborted
    assert newer_transport.is_aborted
    for connection in (older, newer):
        connection.connection_lost(None)
    assert not honest_transport.is_closing()
    assert selector._admission.count == 3


def test_full_selector_without_silent_connection_refuses_new_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    selector = make_selector([])
    arrive(selector)[0].has_first_command = True
    with pytest.raises(ConnectionRefusedError):
        arrive(selector, is_crowded=True)
    assert selector._admission.count == 1
    assert "only the reserve of file descriptors is left" in caplog.text


def test_selector_aborts_stalled_peers_to_unblock_output() -> None:
    selector = make_selector([], memory_limit_bytes=10_000)
    stuck, stuck_transport = connect(selector, 6_000)
    stuck.pause_writing()
    waiting, _ = connect(selector)
    seen: list[int] = []
    waiting.channel.resume(Held(lambda: seen.append(1)))
    loop = cast("FakeLoop", cast("object", selector.loop))
    loop.run()
    assert seen == []
    selector.sweep(2_000)
    assert not stuck_transport.is_aborted, "it may have had no time to take anything"
    selector.sweep(3_000)
    assert stuck_transport.is_aborted
    loop.advance(0.01)
    assert seen == [1]


async def test_connection_cancelled_while_it_gets_its_transport_is_forgotten() -> None:
    admission = Admission(1, 0, ManualClock())
    selector = Selector(
        ProcessorTable(),
        LIMITS,
        ManualClock(),
        admission=admission,
        listeners=[],
        memory_limit_bytes=1000,
    )
    selector.bind(asyncio.get_running_loop())
    assert admission.admit("10.0.0.1")
    connection = selector.new_connection("10.0.0.1")

    async def opening() -> None:
        connecting = asyncio.get_running_loop().create_future()
        try:
            await connecting
        finally:
            # uvloop closes this transport without a report.
            connection.connection_made(FakeTransport())  # type: ignore[arg-type]

    task = selector.open(connection, opening())
    await asyncio.sleep(0)
    assert admission.admit("10.0.0.2")
    second = selector.new_connection("10.0.0.2")
    await asyncio.wait({task})
    await asyncio.sleep(0)
    assert task.cancelled()
    assert list(selector.connections) == [second]
    assert admission.count == 1
    second.connection_lost(None)
    await selector.drain(0)
