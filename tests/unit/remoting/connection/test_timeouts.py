"""Time-outs: silent, stuck and half-open connections are closed."""

import pytest

from rocketpy.proto.wire.command import encode_command, make_request, make_response
from tests.unit.remoting.fakes import Rig, echo, feed, request

BIG_FRAME = encode_command(make_request(2, None, bytes(900_000)))


@pytest.fixture
def rig() -> Rig:
    rig = Rig().open()
    rig.owner.table.register(2, lambda _, command: make_response(command), None)
    rig.connection.data_received(encode_command(make_request(2)))
    return rig


def test_frame_that_grows_too_slowly_is_reset(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.connection.data_received(BIG_FRAME[:500_000])
    for second in range(1, 31):
        rig.connection.sweep(second * 1_000)
        rig.connection.data_received(b"x")
    assert rig.connection.channel.is_open
    rig.connection.sweep(31_000)
    assert rig.transport.is_aborted
    assert "reason=a frame never ends what=unfinished_bytes bytes=500030" in caplog.text
    rig.connection.connection_lost(None)
    assert rig.connection.pending_bytes == 0


def test_growing_frame_is_not_reset(rig: Rig) -> None:
    for step, at in enumerate(range(0, len(BIG_FRAME), 70_000)):
        rig.connection.data_received(BIG_FRAME[at : at + 70_000])
        rig.connection.sweep(step * 29_000)
    assert rig.connection.channel.is_open
    assert len(rig.transport.responses()) == 2


def test_peer_with_new_unfinished_frame_at_each_sweep_is_not_reset(rig: Rig) -> None:
    frame = encode_command(make_request(2))
    rig.connection.data_received(frame[:10])
    for second in range(1, 200, 20):
        rig.connection.data_received(frame[10:] + frame[:10])
        rig.connection.sweep(second * 1_000)
    assert rig.connection.channel.is_open


def test_frame_timeout_ignores_time_while_reading_is_paused(rig: Rig) -> None:
    rig.connection.data_received(BIG_FRAME[:1000])
    rig.connection.sweep(1_000)
    rig.connection.is_reading_paused = True
    rig.connection.sweep(60_000)
    rig.connection.is_reading_paused = False
    rig.connection.sweep(80_000)
    assert rig.connection.channel.is_open
    rig.connection.sweep(90_000)
    assert not rig.connection.channel.is_open


def test_connection_without_first_frame_in_time_is_closed() -> None:
    rig = Rig().open()
    rig.connection.data_received(b"\x00\x00")
    rig.connection.sweep(1_000 + 14_999)
    assert rig.connection.channel.is_open
    rig.connection.sweep(1_000 + 15_000)
    assert rig.transport.is_closed
    assert rig.owner.events == ["open"]


def test_idle_connection_is_notified_and_closed() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    feed(rig, request(2, 1))
    rig.connection.sweep(50_000)
    rig.connection.sweep(169_999)
    assert rig.connection.channel.is_open
    rig.connection.sweep(170_000)
    assert rig.owner.events == ["open", "idle"]
    assert rig.transport.is_closed
    rig.connection.connection_lost(None)
    assert rig.owner.events == ["open", "idle", "close"]


def test_writes_keep_connection_alive() -> None:
    rig = Rig().open()
    rig.owner.table.register(2, echo, None)
    feed(rig, request(2, 1))
    for now_ms in range(10_000, 400_000, 10_000):
        rig.connection.channel.send(b"pushed")
        rig.loop.run()
        rig.connection.sweep(now_ms)
    assert rig.connection.channel.is_open


def test_closed_connection_that_lingers_is_reset() -> None:
    rig = Rig().open()
    rig.connection.channel.close("test")
    rig.connection.sweep(10_000)
    assert not rig.transport.is_aborted
    rig.connection.sweep(15_000)
    assert rig.transport.is_aborted
