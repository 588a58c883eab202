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
    """Serves frames of its own at the start of what it gets, as a compiled path would sends."""

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


def test_the_first_request_is_not_offered() -> None:
    toy = Toy()
    opened(toy)
    assert toy.offered == []


def test_what_it_serves_is_answered_in_one_write_and_the_rest_goes_on() -> None:
    rig = opened(Toy())
    rig.connection.data_received(TOY_FRAME * 3 + frame(1) + TOY_FRAME[:5])
    assert remarks(rig) == [None, "toy", "toy", "toy", None]
    assert len(rig.transport.writes) == 3
    assert rig.connection.pending_bytes == 5


def test_it_sees_a_frame_that_came_in_pieces_from_its_first_byte() -> None:
    toy = Toy()
    rig = opened(toy)
    for at in range(len(TOY_FRAME)):
        rig.connection.data_received(TOY_FRAME[at : at + 1])
    assert toy.offered[-1] == TOY_FRAME
    assert remarks(rig) == [None, "toy"]
    assert rig.connection.pending_bytes == 0


def test_frames_it_leaves_may_come_in_pieces() -> None:
    rig = opened(Toy())
    data = frame(1) + TOY_FRAME + frame(2)
    for at in range(0, len(data), 7):
        rig.connection.data_received(data[at : at + 7])
    assert remarks(rig) == [None, None, "toy", None]


def test_nothing_is_offered_while_older_requests_wait() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.connection.pause_writing()
    rig.connection.data_received(frame(1))
    assert toy.offered == []
    rig.connection.resume_writing()
    rig.loop.run()
    assert len(rig.transport.responses()) == 2


def test_what_it_raises_costs_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken(channel: Channel, data: bytes) -> tuple[int, bytes]:
        raise ValueError("as told")

    rig = opened(broken)
    rig.connection.data_received(TOY_FRAME)
    assert rig.transport.is_aborted
    assert "byte handler failed peer=10.0.0.7:4321" in caplog.text


def test_one_way_requests_may_be_served_without_a_byte() -> None:
    def swallow(channel: Channel, data: bytes) -> tuple[int, bytes]:
        return len(data), b""

    rig = opened(swallow)
    rig.connection.data_received(TOY_FRAME)
    assert len(rig.transport.responses()) == 1
    assert rig.connection.pending_bytes == 0


def test_nothing_is_offered_while_too_much_is_held_for_all() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.budget.is_exhausted = True
    rig.connection.data_received(frame(1))
    assert toy.offered == []
    rig.owner.budget.is_exhausted = False
    rig.loop.run()
    assert len(rig.transport.responses()) == 2


def next_toy(data: bytes) -> int:
    """Say where the next frame of the toy's begins behind frames of others."""
    return max(0, data.find(TOY_FRAME))


def test_what_it_knows_behind_other_frames_is_offered_anew() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.table.look_ahead = next_toy
    rig.connection.data_received(TOY_FRAME + frame(1) + frame(2) + TOY_FRAME * 2 + frame(3))
    assert remarks(rig) == [None, "toy", None, None, "toy", "toy", None]
    assert len(toy.offered) == 2
    assert len(rig.transport.writes) == 5, "others' frames are served together"


def test_it_is_offered_anew_so_often_and_not_more() -> None:
    toy = Toy()
    rig = opened(toy)
    rig.owner.table.look_ahead = next_toy
    rig.owner.table.register(99, lambda _, command: make_response(command, 0, "python"), None)
    rig.connection.data_received((frame(1) + TOY_FRAME) * 15 + frame(2) + frame(3)[:9])
    assert len(toy.offered) == 16
    assert remarks(rig) == [None] + [None, "toy"] * 15 + [None]
    assert rig.connection.pending_bytes == 9


def test_nothing_is_offered_anew_once_reading_is_paused() -> None:
    """Requests that wait come before what came behind them."""
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
    """Serves what it gets, and answers when it is told to."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.deferred: list[DeferredResponse] = []

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        if data:
            self.deferred.append(channel.defer_run(self.count))
        return len(data), b""


def test_requests_that_are_answered_later_are_in_hand_until_then() -> None:
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


def test_reading_pauses_while_too_many_are_in_hand() -> None:
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
    """Takes 20 ms each time."""

    def __init__(self) -> None:
        super().__init__()
        self.rig: Rig

    def __call__(self, channel: Channel, data: bytes) -> tuple[int, bytes]:
        self.rig.owner.clock.now += 20
        return super().__call__(channel, data)


def test_who_sends_as_fast_as_it_is_served_lets_the_loop_turn() -> None:
    """A loop reads many times from one socket before it turns; others are served in between."""
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


def test_so_do_short_reads_of_which_the_handler_leaves_some() -> None:
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


def test_reads_of_which_it_serves_nothing_take_no_turn_if_it_does_not_look_on() -> None:
    """Large frames take a while to come, and that is nobody's cost."""
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
