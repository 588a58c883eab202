"""Received bytes are offered to a handler before frames are cut."""

import struct

import pytest

from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection import Connection
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.requests_in_progress import RequestsInProgress
from tests.unit.remoting.fakes import Rig

TOY_FRAME = struct.pack(">ii", 8, 99) + b"toy!"
TOY_RESPONSE = encode_command(make_response(make_request(99), 0, "toy"))


class Toy:
    """Handler of toy frames at the start of its input, as a compiled path serves sends."""

    def __init__(self) -> None:
        self.offered: list[bytes] = []

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        self.offered.append(data)
        count = 0
        while data.startswith(TOY_FRAME, count * len(TOY_FRAME)):
            count += 1
        return count * len(TOY_FRAME), count * TOY_RESPONSE


def frame(opaque: int) -> bytes:
    command = make_request(2, None, b"x" * 50)
    command.opaque = opaque
    return encode_command(command)


def opened(toy: object) -> Rig:
    rig = Rig()
    rig.owner.table.byte_handler = toy  # type: ignore[assignment]
    rig.owner.table.register(2, lambda _, command: make_response(command), None)
    rig.connection = Connection(rig.owner, rig.loop)  # type: ignore[arg-type]
    rig.open().connection.data_received(frame(0))
    return rig


def remarks(rig: Rig) -> list[str | None]:
    return [response.remark for response in rig.transport.responses()]


def test_byte_handler_does_not_get_first_request() -> None:
    toy = Toy()
    opened(toy)
    assert toy.offered == []


def test_byte_handler_responses_share_one_write_and_rest_is_dispatched() -> None:
    rig = opened(Toy())
    rig.connection.data_received(TOY_FRAME * 3 + frame(1) + TOY_FRAME[:5])
    assert remarks(rig) == [None, "toy", "toy", "toy", None]
    assert len(rig.transport.writes) == 3
    assert rig.connection.pending_bytes == 5


def test_byte_handler_gets_split_frame_from_its_first_byte() -> None:
    toy = Toy()
    rig = opened(toy)
    for at in range(len(TOY_FRAME)):
        rig.connection.data_received(TOY_FRAME[at : at + 1])
    assert toy.offered[-1] == TOY_FRAME
    assert remarks(rig) == [None, "toy"]
    assert rig.connection.pending_bytes == 0


def test_frames_left_by_byte_handler_may_be_split() -> None:
    rig = opened(Toy())
    data = frame(1) + TOY_FRAME + frame(2)
    for at in range(0, len(data), 7):
        rig.connection.data_received(data[at : at + 7])
    assert remarks(rig) == [None, None, "toy", None]


def test_byte_handler_gets_nothing_while_older_requests_wait() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.connection.pause_writing()
    rig.connection.data_received(frame(1))
    assert toy.offered == []
    rig.connection.resume_writing()
    rig.loop.run()
    assert len(rig.transport.responses()) == 2


def test_failing_byte_handler_closes_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken(channel: Channel, data: bytes) -> tuple[int, bytes]:
        raise ValueError("deliberate")

    rig = opened(broken)
    rig.connection.data_received(TOY_FRAME)
    assert rig.transport.is_aborted
    assert "byte handler failed: peer=10.0.0.7:4321" in caplog.text


def test_byte_handler_may_serve_oneway_requests_without_response() -> None:
    def swallow(channel: Channel, data: bytes) -> tuple[int, bytes]:
        return len(data), b""

    rig = opened(swallow)
    rig.connection.data_received(TOY_FRAME)
    assert len(rig.transport.responses()) == 1
    assert rig.connection.pending_bytes == 0


def test_byte_handler_gets_nothing_while_budget_is_exhausted() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.budget.is_exhausted = True
    rig.connection.data_received(frame(1))
    assert toy.offered == []
    rig.owner.budget.is_exhausted = False
    rig.loop.run()
    assert len(rig.transport.responses()) == 2


def next_toy(data: bytes) -> int:
    """Return where the next toy frame begins behind other frames."""
    return max(0, data.find(TOY_FRAME))


def test_look_ahead_offers_frames_behind_others_again() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.table.look_ahead = next_toy
    rig.connection.data_received(TOY_FRAME + frame(1) + frame(2) + TOY_FRAME * 2 + frame(3))
    assert remarks(rig) == [None, "toy", None, None, "toy", "toy", None]
    assert len(toy.offered) == 2
    assert len(rig.transport.writes) == 5, "others' frames are served together"


def test_look_ahead_offers_are_limited_per_read() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.table.look_ahead = next_toy
    rig.owner.table.register(99, lambda _, command: make_response(command, 0, "python"), None)
    rig.connection.data_received((frame(1) + TOY_FRAME) * 15 + frame(2) + frame(3)[:9])
    assert len(toy.offered) == 16
    assert remarks(rig) == [None] + [None, "toy"] * 15 + [None]
    assert rig.connection.pending_bytes == 9


def test_look_ahead_offers_nothing_once_reading_is_paused() -> None:
    """Suspended requests are served before later bytes."""
    toy = Toy()
    rig = opened(toy)
    rig.owner.table.look_ahead = lambda data: len(frame(1)) if len(data) > len(frame(1)) else 0

    def slow(_: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.connection.pause_writing()
        return make_response(command)

    rig.owner.table.register(2, slow, None)
    rig.connection.data_received(frame(1) + frame(2))
    assert len(toy.offered) == 1
    assert rig.connection.in_progress.suspended_count == 1


class Later:
    """Handler that serves everything and defers the responses."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.deferred: list[DeferredResponse] = []

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        if data:
            self.deferred.append(channel.defer_run(self.count))
        return len(data), b""


def test_requests_deferred_by_byte_handler_are_in_progress_until_answered() -> None:
    later = Later(7)
    rig = opened(later)
    connection = rig.connection
    connection.data_received(TOY_FRAME * 7)
    assert connection.in_progress.count == 7
    later.deferred[0].set(TOY_RESPONSE * 7)
    rig.loop.run()
    assert connection.in_progress.count == 0
    assert connection.in_progress.size_bytes == 0
    assert remarks(rig) == [None] + ["toy"] * 7


def test_byte_handler_at_limit_pauses_reading() -> None:
    later = Later(5)
    rig = opened(later)
    connection = rig.connection
    connection.in_progress = RequestsInProgress(4, 0)
    connection.data_received(TOY_FRAME * 5 + frame(1)[:3])
    assert connection.is_reading_paused
    later.deferred[0].set(TOY_RESPONSE)
    rig.loop.run()
    assert not connection.is_reading_paused


class Costly(Toy):
    """Handler that takes 20 ms each time."""

    def __init__(self) -> None:
        super().__init__()
        self.rig: Rig

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        self.rig.owner.clock.now += 20
        return super().__call__(channel, data)


def test_long_reads_of_byte_handler_yield_to_other_connections() -> None:
    """A loop may read many times from one socket in an iteration; others are served in between."""
    toy = Costly()
    rig = toy.rig = opened(toy)
    began_ms, before = rig.owner.clock.now, len(remarks(rig))
    for _ in range(32):
        rig.connection.data_received(TOY_FRAME * 1_500)
    assert rig.owner.clock.now - began_ms == 20
    assert not rig.transport.is_reading
    rig.loop.run()
    assert rig.transport.is_reading
    assert remarks(rig)[before:] == ["toy"] * 1_500 * 32


def test_short_reads_with_leftover_frames_yield_to_other_connections() -> None:
    toy = Costly()
    rig = toy.rig = opened(toy)
    rig.loop.run()
    for _ in range(2):
        rig.connection.data_received(TOY_FRAME + frame(1))
        assert rig.transport.is_reading
    rig.connection.data_received(frame(2))
    assert not rig.transport.is_reading
    rig.loop.run()
    assert rig.transport.is_reading
    assert remarks(rig) == [None, *["toy", None] * 2, None]


def at_once(_channel: Channel, command: RemotingCommand) -> bytes:
    return encode_command(make_response(command))


def knows_nothing(_data: bytes) -> int:
    return 0


def test_unserved_reads_without_look_ahead_use_no_time_budget() -> None:
    """Frames that arrive slowly must not use up the time budget."""
    rig = opened(Toy())
    rig.owner.table.register(3, at_once, None)
    rig.loop.run()
    large = encode_command(make_request(3, None, bytes(1 << 19)))
    for _ in range(5):
        rig.connection.data_received(large)
        rig.owner.clock.now += 20
    assert rig.transport.is_reading
    assert remarks(rig) == [None] * 6
    rig.owner.table.look_ahead = knows_nothing
    for _ in range(2):
        rig.connection.data_received(large)
        rig.owner.clock.now += 20
    rig.connection.data_received(large)
    assert not rig.transport.is_reading
