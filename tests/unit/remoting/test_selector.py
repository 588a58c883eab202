from typing import Any, cast

import pytest

from rocketpy.remoting.admission import Admission
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.connection import Connection
from rocketpy.remoting.dispatch import ProcessorTable
from rocketpy.remoting.selector import Selector
from tests.unit.remoting.fakes import LIMITS, FakeLoop, FakeTransport, ManualClock


class Listener:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_open(self, channel: Channel) -> None:
        self.events.append("open")

    def on_close(self, channel: Channel) -> None:
        self.events.append("close")

    def on_idle(self, channel: Channel) -> None:
        raise ValueError("listener trouble")


def make_selector(listeners: list[Any], memory_limit_bytes: int = 1000) -> Selector:
    selector = Selector(
        ProcessorTable(),
        LIMITS,
        ManualClock(),
        admission=Admission(0, 0, ManualClock()),
        listeners=listeners,
        wrap=lambda connection: connection,
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


def test_listeners_hear_of_each_connection_once() -> None:
    listener = Listener()
    selector = make_selector([listener])
    connection, _ = connect(selector)
    connection.connection_lost(None)
    assert listener.events == ["open", "close"]
    assert selector.connections == set()


def test_a_broken_listener_does_not_stop_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    selector = make_selector([Listener(), Listener()])
    connection, transport = connect(selector)
    connection.has_first_command = True
    selector.sweep(500_000)
    assert caplog.text.count("listener failed event=on_idle") == 2
    assert transport.is_closed


def test_total_limit_cuts_off_those_with_most_waiting() -> None:
    selector = make_selector([], memory_limit_bytes=1000)
    _, modest = connect(selector, 400)
    _, greedy = connect(selector, 900)
    _, greedier = connect(selector, 5000)
    selector.sweep(2_000)
    assert [t.is_aborted for t in (modest, greedy, greedier)] == [False, True, True]


def test_within_the_total_limit_nobody_is_cut_off() -> None:
    selector = make_selector([], memory_limit_bytes=1000)
    transports = [connect(selector, 500)[1] for _ in range(2)]
    selector.sweep(2_000)
    assert [t.is_aborted for t in transports] == [False, False]


def test_the_sweep_comes_back_every_second() -> None:
    selector = make_selector([])
    _, transport = connect(selector)
    clock = cast("ManualClock", selector._clock)
    loop = cast("FakeLoop", cast("object", selector.loop))
    for _ in range(20):
        clock.now += 1_000
        loop.advance(1.0)
    assert transport.is_closed  # no first request in 15 s
