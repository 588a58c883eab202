"""Resumed requests run in their channel's turn, one at a time, on its loop or on a pool."""

from typing import Any

import pytest

from rocketpy.remoting.business_pool import BusinessPool
from tests.unit.broker.fakes import FakeChannel, FakeLoop


class Request:
    def __init__(self, name: str, made: list[str]) -> None:
        self.name = name
        self.made = made

    def run(self) -> bytes:
        self.made.append(self.name)
        return self.name.encode()


class BrokenRequest:
    def run(self) -> bytes:
        raise OSError("bad disk")


class Kit:
    def __init__(self, threads: int = 0) -> None:
        self.pool = BusinessPool("pull", threads, 10, 0)
        self.loop = FakeLoop()
        self.made: list[str] = []

    def add(self, channel: Any, name: str) -> None:
        pool = None if self.pool.runs_inline else self.pool
        channel.resume(Request(name, self.made), pool)

    def is_clean(self) -> bool:
        """Whether nothing is left in the scheduler."""
        return self.loop.turns._waiting == self.loop.turns._held == {}

    def turns(self) -> None:
        while self.loop.turn():
            pass


def test_held_request_runs_in_later_iteration_in_order() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.add(channel, "b")
    assert kit.made == []
    kit.turns()
    assert channel.sent == [b"a", b"b"]
    assert kit.is_clean()


def test_held_request_alone_on_its_channel_is_written_at_once() -> None:
    """Frames that may share a write leave one iteration later."""
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


def test_held_requests_of_slow_peer_make_one_response_at_a_time() -> None:
    """The other requests wait, and are resumed when the peer reads again."""
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


def test_held_requests_of_several_channels_take_turns() -> None:
    kit = Kit()
    first, second = FakeChannel(kit.loop, 1), FakeChannel(kit.loop, 2)
    for name in "abc":
        kit.add(first, name)
    kit.add(second, "d")
    kit.turns()
    assert kit.made == ["a", "d", "b", "c"]


def test_pool_with_threads_runs_one_held_request_per_channel_at_a_time() -> None:
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


def test_held_request_runs_on_loop_when_pool_is_full() -> None:
    kit = Kit(threads=1)
    assert kit.pool.reserve(10) == 10
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.turns()
    assert channel.sent == [b"a"]


def test_held_request_that_expires_in_pool_is_answered() -> None:
    kit = Kit(threads=1)
    submitted: list[Any] = []
    kit.pool.submit = submitted.append  # type: ignore[method-assign, assignment]
    channel = FakeChannel(kit.loop)
    kit.add(channel, "a")
    kit.turns()
    submitted[0].refuse(9_999, 1)
    assert channel.sent == [b"a"]


def test_held_requests_of_closed_channel_are_dropped() -> None:
    kit = Kit()
    channel, other = FakeChannel(kit.loop, 1), FakeChannel(kit.loop, 2)
    kit.add(channel, "a")
    kit.add(channel, "b")
    channel.close("gone")
    kit.add(channel, "late")
    kit.add(other, "c")
    kit.turns()
    assert kit.made == ["c"]
    assert kit.is_clean()


def test_failing_held_request_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)

    channel.resume(BrokenRequest())
    kit.add(channel, "b")
    kit.turns()
    assert channel.sent == [b"b"]
    assert "resumed request failed" in caplog.text


def test_connection_waits_for_one_held_request_of_its_channel_not_for_all() -> None:
    kit = Kit()
    channel = FakeChannel(kit.loop)
    for name in "abc":
        kit.add(channel, name)
    kit.loop.turns.add_connection(channel, lambda: kit.made.append("connection"))
    kit.turns()
    assert kit.made == ["a", "connection", "b", "c"]
