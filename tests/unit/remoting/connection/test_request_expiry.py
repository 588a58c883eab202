"""Fast failure: suspended requests that wait too long on their connection are refused."""

import dataclasses

import pytest

from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_response
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from tests.unit.remoting.fakes import LIMITS, ManualClock, Rig, codes, echo, feed, request

SEND, PULL = 10, 11


class World:
    """Connection with two sends in progress that wait for the disk; limits 200 ms and 5 s."""

    def __init__(self) -> None:
        self.rig = Rig(dataclasses.replace(LIMITS, max_in_flight=2)).open()
        self.kept: list[DeferredResponse] = []
        table = self.rig.owner.table
        table.register(SEND, self.send, BusinessPool("send", 0, 100, 200, clock=ManualClock()))
        table.register(PULL, echo, BusinessPool("pull", 0, 100, 5_000, clock=ManualClock()))

    def send(self, channel: Channel, command: RemotingCommand) -> DeferredResponse:
        self.kept.append(channel.defer(command))
        return self.kept[-1]

    def wait(self, milliseconds: int) -> None:
        for _ in range(milliseconds // 10):
            self.rig.owner.clock.now += 10
            self.rig.loop.advance(0.010)


def test_suspended_requests_expire_by_limit_of_their_code() -> None:
    world = World()
    feed(world.rig, *(request(SEND, n) for n in range(4)), request(PULL, 4))
    world.wait(190)
    assert codes(world.rig) == []
    world.wait(60)
    assert codes(world.rig) == [(2, 2), (3, 2)]
    remark = world.rig.transport.responses()[0].remark or ""
    assert remark.startswith("[TOO_MANY_REQUESTS][TIMEOUT_CLEAN_QUEUE]broker busy, start flow")
    assert remark.endswith("size of queue: 1")
    assert world.rig.connection.in_progress.suspended_count == 1
    world.wait(4_900)
    assert codes(world.rig)[2:] == [(4, 2)]
    assert world.rig.connection.in_progress.suspended_bytes == 0


def test_expired_request_of_rocketpy_peer_gets_530() -> None:
    world = World()
    feed(world.rig, *(request(SEND, n, rocketpy="1") for n in range(3)))
    world.wait(250)
    assert codes(world.rig) == [(2, 530)]


def test_expiry_ignores_wait_for_slow_peer() -> None:
    world = World()
    world.rig.connection.pause_writing()
    feed(world.rig, request(PULL, 1))
    world.wait(9_000)
    assert codes(world.rig) == []
    world.rig.connection.resume_writing()
    world.rig.loop.run()
    assert codes(world.rig) == [(1, 0)]


@pytest.mark.parametrize("served", [0, 1, 2, 3])
def test_expiry_counts_from_first_suspension(served: int) -> None:
    in_progress = World().rig.connection.in_progress
    in_progress.suspend(in_progress.number(), [request(SEND, 0), request(SEND, 1)], 100)
    in_progress.suspend(in_progress.number(), [request(SEND, 2), request(SEND, 3)], 300)
    in_progress.suspend_again(4 - served, in_progress.take_suspended())
    late = in_progress.take_late(350, lambda _: 200)
    assert [(command.opaque, waited_ms) for command, waited_ms in late] == [
        (opaque, 250) for opaque in (0, 1) if opaque >= served
    ]
    left = in_progress.take_suspended()
    assert [command.opaque for command in left.commands] == [n for n in (2, 3) if n >= served]


def test_request_that_waits_for_its_turn_does_not_expire() -> None:
    world = World()
    owner = world.rig.owner

    def slow(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
        owner.clock.now += 20  # the processor is busy elsewhere
        return make_response(command)

    owner.table.register(SEND, slow, BusinessPool("send", 0, 100, 200, clock=ManualClock()))
    requests = b"".join(encode_command(request(SEND, n)) for n in range(60))
    world.rig.connection.data_received(requests)
    for _ in range(100):
        world.rig.loop.turn(0.060)
    assert codes(world.rig) == [(n, 0) for n in range(60)]
    assert owner.clock.now >= 60 * 20
