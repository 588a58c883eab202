import logging

import pytest

from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from tests.unit.remoting.fakes import Rig, feed, request
from tests.unit.remoting.network.test_selector import make_selector

SEND_V2 = 310


class SlowRig:
    """Connection whose processor takes a while on the connection's clock."""

    def __init__(self, work_ms: int, limit_ms: int = 1_000) -> None:
        self.rig = Rig().open()
        self.clock = self.rig.owner.clock
        self.work_ms = work_ms
        slow = self.rig.owner.table.slow
        slow.limit_ms = limit_ms
        slow.clock = self.clock

    def process(self, _channel: Channel, command: RemotingCommand) -> RemotingCommand:
        self.clock.now += self.work_ms if command.opaque == 1 else 0
        return make_response(command)


def slow_send(opaque: int) -> RemotingCommand:
    command = request(SEND_V2, opaque)
    command.ext_fields = {"a": "orders-producer", "b": "orders", "e": "0"}
    return command


def test_slow_request_is_logged_with_code_peer_topic_group_and_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = SlowRig(work_ms=1_500)
    slow.rig.owner.table.register(SEND_V2, slow.process, None)
    feed(slow.rig, slow_send(0), slow_send(1), slow_send(2))
    [record] = caplog.records
    peer = slow.rig.connection.channel.remote_address
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"slow request: peer={peer} code=SEND_MESSAGE_V2 topic=orders group=orders-producer "
        "wait_ms=0 work_ms=1500"
    )


@pytest.mark.parametrize(("work_ms", "limit_ms"), [(999, 1_000), (5_000, 0)])
def test_slow_request_below_the_limit_or_without_one_is_not_logged(
    caplog: pytest.LogCaptureFixture, work_ms: int, limit_ms: int
) -> None:
    slow = SlowRig(work_ms, limit_ms)
    slow.rig.owner.table.register(SEND_V2, slow.process, None)
    feed(slow.rig, slow_send(0), slow_send(1))
    assert caplog.records == []


def test_slow_request_of_a_pool_counts_its_wait(caplog: pytest.LogCaptureFixture) -> None:
    slow = SlowRig(work_ms=400)
    pool = BusinessPool("admin", 1, 100, 0, clock=slow.clock)
    slow.rig.owner.table.register(9_999, slow.process, pool)
    feed(slow.rig, request(9_999, 1))
    slow.clock.now += 700
    assert pool.run_one()
    [record] = caplog.records
    assert "code=9999 topic= group= wait_ms=700 work_ms=400" in record.getMessage()


def test_slow_request_limit_set_while_it_runs_counts_from_the_next_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = SlowRig(work_ms=0, limit_ms=0)

    def set_limit(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
        slow.rig.owner.table.slow.limit_ms = 1
        return make_response(command)

    slow.rig.owner.table.register(SEND_V2, set_limit, None)
    feed(slow.rig, slow_send(0))
    feed(slow.rig, slow_send(2))
    assert caplog.records == []


def test_held_loop_is_logged_with_how_long(caplog: pytest.LogCaptureFixture) -> None:
    selector = make_selector([])
    selector.table.slow.limit_ms = 1_000
    clock = selector._clock
    clock.now += 9_000  # type: ignore[attr-defined]
    selector._sweep()
    assert caplog.records == []  # the rest of the start
    clock.now += 3_500  # type: ignore[attr-defined]
    selector._sweep()
    [record] = caplog.records
    assert record.getMessage() == "event loop held: held_ms=2500"
