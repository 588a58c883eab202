from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.long_polling.resumption import ResumeQueue
from rocketpy.remoting.business_pool import BusinessPool
from tests.unit.broker.fakes import FakeChannel, FakeLoop


class Kit:
    def __init__(self, threads: int = 0) -> None:
        self.pool = BusinessPool("pull", threads, 10, 0)
        self.resumption = ResumeQueue(self.pool)
        self.loop = FakeLoop()
        self.made: list[str] = []

    def add(self, channel: Any, name: str) -> None:
        self.resumption.add(channel, self.work(name))

    def work(self, name: str) -> Callable[[], bytes]:
        def make() -> bytes:
            self.made.append(name)
            return name.encode()

        return make

    def turns(self) -> None:
        while self.loop.turn():
            pass


def test_work_runs_in_a_later_turn_in_order() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.add(channel, "b")
    assert kit.made == []
    kit.turns()
    assert channel.sent == [b"a", b"b"]
    assert kit.resumption._waiting == {}


def test_what_is_alone_leaves_at_once() -> None:
    """No turn of the loop later, as what may leave together with more does."""
    kit = Kit()
    alone, together, behind = (FakeChannel(kit.loop, port) for port in range(3))
    behind.has_unwritten = True
    kit.add(alone, "a")
    for name in "bc":
        kit.add(together, name)
    kit.add(behind, "d")
    kit.turns()
    assert alone.at_once == [b"a"]
    assert together.sent == [b"b", b"c"]
    assert b"b" not in together.at_once
    assert (behind.sent, behind.at_once) == ([b"d"], [])


def test_a_peer_that_does_not_read_has_one_response_made_for_it() -> None:
    """The others wait as they are; when it reads again they go on."""
    kit = Kit()
    channel = FakeChannel(kit.loop)
    send = channel.send

    def fills(frame: bytes) -> None:
        send(frame)
        channel.is_writable = False

    channel.send = fills  # type: ignore[method-assign]
    for name in "abc":
        kit.add(channel, name)
    kit.turns()
    assert kit.made == ["a"]
    channel.read_on()
    kit.turns()
    assert kit.made == ["a", "b"]


def test_connections_take_turns() -> None:
    kit = Kit()
    first, second = FakeChannel(kit.loop, 1), FakeChannel(kit.loop, 2)
    for name in "abc":
        kit.add(first, name)
    kit.add(second, "d")
    kit.turns()
    assert kit.made == ["a", "d", "b", "c"]


def test_a_pool_with_threads_does_the_work_one_at_a_time_a_connection() -> None:
    kit = Kit(threads=1)
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.add(channel, "b")
    kit.turns()
    assert (kit.made, kit.pool.queued_count) == ([], 1)
    assert kit.pool.run_one()
    assert not kit.pool.run_one(), "the next one comes when the loop has taken this response"
    kit.turns()
    assert kit.pool.run_one()
    assert channel.sent == [b"a", b"b"]


def test_a_full_pool_leaves_the_work_to_the_loop() -> None:
    kit = Kit(threads=1)
    assert kit.pool.reserve(10) == 10
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.turns()
    assert channel.sent == [b"a"]


def test_work_that_waited_long_in_the_pool_is_done_all_the_same() -> None:
    kit = Kit(threads=1)
    submitted: list[Any] = []
    kit.pool.submit = submitted.append  # type: ignore[method-assign, assignment]
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.turns()
    submitted[0].refuse(9_999, 1)
    assert channel.sent == [b"a"]


def test_a_lost_connection_is_forgotten_and_nothing_is_made_for_it() -> None:
    kit = Kit()
    channel, other = FakeChannel(kit.loop, 1), FakeChannel(kit.loop, 2)
    kit.add(channel, "a")
    kit.add(channel, "b")
    channel.close("gone")
    kit.resumption.forget(channel)  # type: ignore[arg-type]
    kit.add(channel, "late")
    kit.add(other, "c")
    kit.turns()
    assert kit.made == ["c"]
    assert kit.resumption._waiting == {}


def test_an_error_costs_its_own_request_only(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)

    def broken() -> bytes:
        raise OSError("bad disk")

    kit.resumption.add(channel, broken)  # type: ignore[arg-type]
    kit.add(channel, "b")
    kit.turns()
    assert channel.sent == [b"b"]
    assert "resumed request failed" in caplog.text
