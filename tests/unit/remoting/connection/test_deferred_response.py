"""Deferred responses: in progress until set from any thread, dropped with their connection."""

import dataclasses

import pytest

from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from tests.unit.remoting.fakes import LIMITS, ManualClock, Rig, on_other_thread


class Keeper:
    """A processor that defers everything."""

    def __init__(self) -> None:
        self.kept: list[DeferredResponse] = []

    def process(self, channel: Channel, command: RemotingCommand) -> DeferredResponse:
        self.kept.append(channel.defer(command))
        return self.kept[-1]


def feed(rig: Rig, count: int, flag: int = 0) -> None:
    frames = []
    for opaque in range(count):
        command = make_request(10, {"a": "b"}, b"body")
        command.opaque = opaque
        command.flag |= flag
        frames.append(encode_command(command))
    rig.connection.data_received(b"".join(frames))


def opened(**limits: int) -> tuple[Rig, Keeper]:
    rig = Rig(dataclasses.replace(LIMITS, **limits)).open()
    keeper = Keeper()
    rig.owner.table.register(10, keeper.process, None)
    return rig, keeper


def respond(deferred: DeferredResponse) -> None:
    deferred.set(make_response(deferred.request, 0))


def test_deferred_response_is_in_progress_until_set_without_body() -> None:
    rig, keeper = opened()
    feed(rig, 1)
    (deferred,) = keeper.kept
    assert rig.connection.in_progress.count == 1
    assert (deferred.request.body, deferred.request.ext_fields) == (b"", {})
    respond(deferred)
    rig.loop.run()
    assert rig.connection.in_progress.count == 0
    assert [response.opaque for response in rig.transport.responses()] == [0]


def test_deferred_responses_set_together_share_wake_up_and_write() -> None:
    rig, keeper = opened(max_in_flight=0)
    feed(rig, 100)

    def respond_to_all() -> None:
        for deferred in keeper.kept:
            respond(deferred)

    on_other_thread(respond_to_all)
    assert rig.loop.wake_ups == 1
    rig.loop.run()
    assert len(rig.transport.writes) == 1
    assert [response.opaque for response in rig.transport.responses()] == list(range(100))


def test_deferred_responses_at_limit_pause_reading_until_quarter_is_set() -> None:
    rig, keeper = opened(max_in_flight=8)
    for _ in range(8):
        assert rig.transport.is_reading
        feed(rig, 1)
    assert not rig.transport.is_reading
    respond(keeper.kept[0])
    rig.loop.run()
    assert not rig.transport.is_reading
    respond(keeper.kept[1])
    rig.loop.run()
    assert rig.transport.is_reading


def test_deferred_response_set_twice_raises() -> None:
    rig, keeper = opened()
    feed(rig, 1)
    respond(keeper.kept[0])
    with pytest.raises(RuntimeError, match="request 10 was set twice"):
        respond(keeper.kept[0])
    rig.loop.run()
    assert len(rig.transport.responses()) == 1
    assert rig.connection.in_progress.count == 0


def test_deferred_oneway_request_is_in_progress_without_response() -> None:
    rig, keeper = opened()
    feed(rig, 1, flag=2)
    assert rig.connection.in_progress.count == 1
    respond(keeper.kept[0])
    rig.loop.run()
    assert rig.connection.in_progress.count == 0
    assert rig.transport.writes == []


def test_deferred_response_of_lost_channel_is_dropped() -> None:
    rig, keeper = opened()
    feed(rig, 1)
    rig.connection.connection_lost(None)
    respond(keeper.kept[0])
    rig.loop.run()
    assert rig.transport.writes == []


def test_deferred_response_that_cannot_be_encoded_becomes_code_1() -> None:
    rig, keeper = opened()
    feed(rig, 1)
    keeper.kept[0].set(5)  # type: ignore[arg-type]
    rig.loop.run()
    (response,) = rig.transport.responses()
    assert response.code == 1
    assert rig.connection.in_progress.count == 0


def test_deferred_response_set_before_its_batch_returns_is_counted_once() -> None:
    rig, keeper = opened()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(10, keeper.process, pool)
    feed(rig, 3)
    assert rig.connection.in_progress.count == 3
    on_other_thread(pool.run_one)
    on_other_thread(lambda: respond(keeper.kept[1]))
    rig.loop.run()
    assert rig.connection.in_progress.count == 2
    respond(keeper.kept[0])
    respond(keeper.kept[2])
    rig.loop.run()
    assert rig.connection.in_progress.count == 0
    assert [response.opaque for response in rig.transport.responses()] == [1, 0, 2]
