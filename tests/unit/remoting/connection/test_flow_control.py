"""Flow control of a connection: slow peers, limits, memory budget, fairness."""

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
from rocketpy.remoting.connection.connection import Connection
from tests.unit.remoting.connection.test_memory_budget import Peer
from tests.unit.remoting.fakes import (
    LIMITS,
    FakeTransport,
    ManualClock,
    Rig,
    codes,
    echo,
    feed,
    request,
)


def big(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, None, None, bytes(600_000))


def test_slow_peer_suspends_remaining_requests() -> None:
    rig = Rig().open()
    rig.owner.table.register(11, big, None)
    transport_write = rig.transport.write

    def write(data: bytes) -> None:
        transport_write(data)
        rig.transport.buffered += len(data)
        if rig.connection.channel.is_writable:
            rig.connection.pause_writing()

    rig.transport.write = write  # type: ignore[method-assign]
    rig.connection.channel._hard_limit_bytes = 1 << 30
    feed(rig, *(request(11, n) for n in range(200)))
    assert len(rig.transport.responses()) == 2
    assert not rig.transport.is_reading
    rig.transport.buffered = 0
    rig.connection.resume_writing()
    rig.loop.run()
    assert len(rig.transport.responses()) == 4
    assert not rig.transport.is_reading
    for _ in range(98):
        rig.connection.resume_writing()
        rig.loop.run()
    assert [a.opaque for a in rig.transport.responses()] == list(range(200))
    rig.connection.resume_writing()
    rig.loop.run()
    assert rig.transport.is_reading


def test_pool_stops_batch_of_slow_peer() -> None:
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0)).open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(11, big, pool)
    feed(rig, *(request(11, n) for n in range(10)))
    rig.connection.pause_writing()
    assert pool.run_one()
    rig.loop.run()
    assert rig.transport.writes == []
    assert rig.connection.in_progress.count == 0
    rig.connection.resume_writing()
    rig.loop.run()
    assert pool.run_one()
    rig.loop.run()
    assert [a.opaque for a in rig.transport.responses()] == [0, 1]
    while pool.run_one():
        rig.loop.run()
    assert [a.opaque for a in rig.transport.responses()] == list(range(10))


def test_limit_of_requests_in_progress_pauses_reading() -> None:
    rig = Rig().open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(10, echo, pool)
    reading = []
    for opaque in range(8):
        feed(rig, request(10, opaque))
        reading.append(rig.transport.is_reading)
    assert reading == [True] * 7 + [False]
    while pool.run_one():
        rig.loop.run()
    assert len(codes(rig)) == 8
    assert rig.transport.is_reading


def refusing(rig: Rig) -> None:
    """Let the peer stop reading after a first big response."""
    transport_write = rig.transport.write

    def write(data: bytes) -> None:
        transport_write(data)
        if rig.connection.channel.is_writable:
            rig.connection.pause_writing()

    rig.transport.write = write  # type: ignore[method-assign]
    rig.connection.channel._hard_limit_bytes = 1 << 30


def test_pooled_requests_of_slow_peer_keep_order() -> None:
    """Leftovers of a batch are older than later batches and suspended requests."""
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0)).open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    served: list[int] = []

    def note(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        served.append(command.opaque)
        return big(channel, command)

    rig.owner.table.register(11, note, pool)
    refusing(rig)
    feed(rig, *(request(11, n) for n in range(4)))
    feed(rig, *(request(11, n) for n in range(4, 8)))
    assert pool.run_one()
    rig.loop.run()
    assert not rig.transport.is_reading
    feed(rig, request(11, 8))  # was on its way
    rig.connection.resume_writing()
    rig.loop.run()
    for _ in range(20):
        while pool.run_one():
            rig.loop.run()
        rig.connection.resume_writing()
        rig.loop.run()
    assert served == list(range(9))
    assert [a.opaque for a in rig.transport.responses()] == list(range(9))


def test_batch_behind_stopped_batch_waits_for_it() -> None:
    """Otherwise it would overtake: the peer resumes before the leftovers of the first are back."""
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0)).open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(11, echo, pool)
    feed(rig, request(11, 0), request(11, 1))
    feed(rig, request(11, 2))
    rig.connection.pause_writing()
    assert pool.run_one()
    rig.connection.channel.set_writable(True)
    assert pool.run_one()
    rig.connection.resume_writing()
    rig.loop.run()
    while pool.run_one():
        rig.loop.run()
    assert [a.opaque for a in rig.transport.responses()] == [0, 1, 2]
    assert rig.transport.is_reading


def test_coroutines_of_one_read_stop_at_limit() -> None:
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=8)).open()

    async def later(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        return make_response(command)

    rig.owner.table.register(10, later, None)
    feed(rig, *(request(10, n) for n in range(20)))
    assert rig.connection.in_progress.count == 8
    assert not rig.transport.is_reading
    while rig.owner.spawned:
        rig.owner.run_spawned()
    assert [opaque for opaque, _ in codes(rig)] == list(range(20))
    assert rig.connection.in_progress.count == 0
    assert rig.transport.is_reading


def test_size_of_requests_in_progress_pauses_reading() -> None:
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0, max_in_flight_bytes=100_000)).open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(10, echo, pool)
    command = make_request(10, None, bytes(60_000))
    feed(rig, command)
    assert rig.transport.is_reading
    feed(rig, command)
    assert not rig.transport.is_reading
    while pool.run_one():
        rig.loop.run()
    assert rig.transport.is_reading
    assert rig.connection.in_progress.size_bytes == 0


# ---- memory


def test_memory_budget_counts_everything_a_connection_holds() -> None:
    rig = Rig().open()
    budget = rig.owner.budget
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    rig.owner.table.register(10, echo, pool)
    feed(rig, request(10, 1))
    in_hand_bytes = budget.held_bytes
    assert in_hand_bytes > 0
    rig.connection.data_received(encode_command(make_request(10, None, bytes(9000)))[:5000])
    assert budget.held_bytes == in_hand_bytes + 5000
    rig.transport.buffered = 700
    rig.connection.pause_writing()
    assert budget.held_bytes == in_hand_bytes + 5700
    rig.connection.connection_lost(None)
    assert budget.held_bytes == 0
    assert budget._ending_bytes == in_hand_bytes + 5700
    rig.loop.run()
    assert budget._ending_bytes == 0


def test_lost_connection_drops_its_pooled_requests() -> None:
    rig = Rig().open()
    pool = BusinessPool("p", 1, 1000, 0, clock=ManualClock())
    served: list[int] = []
    rig.owner.table.register(10, lambda _, command: served.append(command.opaque), pool)
    feed(rig, request(10, 1))
    ((batch, _),) = pool._queue
    rig.connection.connection_lost(None)
    assert batch._work == []  # type: ignore[attr-defined]
    assert pool.run_one()
    rig.loop.run()
    assert served == []
    assert pool.statistics().queued_count == 0


def test_exceeded_budget_aborts_greediest_connection_and_releases_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(memory_limit_bytes=10_000).open()
    frame = encode_command(make_request(10, None, bytes(20_000)))
    rig.connection.data_received(frame[:9_000])
    assert rig.connection.channel.is_open
    rig.connection.data_received(frame[9_000:11_000])
    assert rig.transport.is_aborted
    assert rig.owner.budget.held_bytes == 0
    assert rig.connection.pending_bytes == 0
    assert "connection aborted: peer=10.0.0.7:4321 held_bytes=11000" in caplog.text


def test_exhausted_budget_suspends_requests_until_their_turn() -> None:
    rig = Rig(memory_limit_bytes=10_000).open()
    rig.owner.table.register(10, echo, None)
    greedy = Peer(10_001)
    rig.owner.budget.count(greedy)
    assert rig.owner.budget.is_exhausted
    feed(rig, request(10, 1))
    rig.loop.run()
    assert not rig.transport.is_reading
    rig.owner.budget.release(greedy)
    rig.loop.advance(0.02)
    assert codes(rig) == [(1, 0)]
    assert rig.transport.is_reading


def test_resumed_peer_waits_for_turn_while_budget_is_exhausted() -> None:
    rig = Rig(memory_limit_bytes=10_000).open()
    rig.owner.table.register(10, echo, None)
    rig.connection.pause_writing()
    feed(rig, request(10, 1))
    greedy = Peer(10_001)
    rig.owner.budget.count(greedy)
    assert rig.owner.budget.is_exhausted
    rig.connection.resume_writing()
    rig.loop.run()
    assert rig.transport.writes == []
    rig.owner.budget.release(greedy)
    rig.loop.advance(0.02)
    assert codes(rig) == [(1, 0)]


def test_big_response_is_counted_at_once() -> None:
    rig = Rig().open()
    rig.transport.buffered = 700_000
    rig.owner.table.register(11, big, None)
    feed(rig, request(11, 1))
    assert rig.owner.budget.held_bytes == 700_000


def test_big_response_is_counted_until_its_last_byte_is_sent() -> None:
    rig = Rig().open()
    rig.transport.buffered = 2_000_000
    rig.owner.table.register(11, big, None)
    feed(rig, request(11, 1))
    feed(rig, request(11, 2))
    rig.loop.run()
    frame_bytes = len(rig.transport.writes[0])
    rig.transport.buffered = frame_bytes + 1
    assert rig.connection.unsent_bytes == 2 * frame_bytes
    rig.transport.buffered = 1
    assert rig.connection.unsent_bytes == frame_bytes
    rig.transport.buffered = 0
    assert rig.connection.unsent_bytes == 0


def test_big_response_taken_by_kernel_is_counted_until_next_iteration() -> None:
    rig = Rig().open()
    rig.owner.table.register(11, big, None)
    feed(rig, request(11, 1), request(11, 2))
    assert rig.owner.budget.held_bytes == sum(map(len, rig.transport.writes))
    rig.loop.run()
    assert rig.owner.budget.held_bytes == 0


def test_hard_limit_of_unsent_output_aborts_peer() -> None:
    rig = Rig().open()
    rig.connection.pause_writing()
    rig.transport.buffered = 10_001
    rig.connection.channel.send(b"more")
    rig.loop.run()
    assert rig.transport.is_aborted
    assert not rig.connection.channel.is_open
    assert "does not read" in (rig.connection.channel.close_reason or "")


def test_stalled_peer_is_reset_only_without_progress() -> None:
    rig = Rig().open()
    rig.transport.buffered = 5000
    rig.connection.pause_writing()
    rig.connection.sweep(1_000 + 29_000)
    assert rig.connection.channel.is_open
    rig.transport.buffered = 4500
    rig.connection.sweep(1_000 + 31_000)
    rig.connection.sweep(1_000 + 60_000)
    assert rig.connection.channel.is_open
    rig.connection.sweep(1_000 + 61_000)
    assert rig.transport.is_aborted


def test_expensive_requests_of_one_read_yield_between_slices() -> None:
    rig = Rig().open()

    def costly(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.owner.clock.now += 5
        return echo(channel, command)

    rig.owner.table.register(10, costly, None)
    served: list[int] = []
    feed(rig, *(request(10, opaque) for opaque in range(20)))
    served.append(len(codes(rig)))
    assert not rig.transport.is_reading
    rig.loop.call_soon(lambda: served.append(len(codes(rig))))
    rig.loop.run()
    assert served[0] < 5
    assert served[1] < 10, "another connection's turn came before the rest"
    assert codes(rig) == [(opaque, 0) for opaque in range(20)]
    assert rig.transport.is_reading
    assert rig.owner.budget.held_bytes == 0


def test_expensive_requests_of_many_connections_take_turns_and_yield() -> None:
    rig = Rig().open()

    def costly(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.owner.clock.now += 5
        return echo(channel, command)

    rig.owner.table.register(10, costly, None)
    others = [Connection(rig.owner, rig.loop) for _ in range(9)]  # type: ignore[arg-type]
    for other in others:
        other.connection_made(FakeTransport())  # type: ignore[arg-type]
    data = b"".join(encode_command(request(10, opaque)) for opaque in range(40))
    for connection in (rig.connection, *others):
        connection.data_received(data)
    turns_ms = []
    while any(c.in_progress.has_suspended for c in (rig.connection, *others)):
        began_ms = rig.owner.clock.now
        ready, rig.loop._ready = rig.loop._ready, []
        for callback, arguments in ready:
            callback(*arguments)
        turns_ms.append(rig.owner.clock.now - began_ms)
    assert max(turns_ms) <= 40, "one connection's slice a turn of the loop, not all of them"
    assert len(codes(rig)) == 40


def test_one_expensive_request_of_many_connections_takes_several_iterations() -> None:
    rig = Rig().open()

    def costly(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.owner.clock.now += 13
        return echo(channel, command)

    rig.owner.table.register(10, costly, None)
    others = [Connection(rig.owner, rig.loop) for _ in range(199)]  # type: ignore[arg-type]
    transports = [FakeTransport() for _ in others]
    for other, transport in zip(others, transports, strict=True):
        other.connection_made(transport)  # type: ignore[arg-type]
    data = encode_command(request(10, 1, name="x" * 1_000))
    began_ms = rig.owner.clock.now
    for connection in (rig.connection, *others):  # all have sent something when the loop looks
        connection.data_received(data)
    assert rig.owner.clock.now - began_ms <= 40
    assert not transports[-1].is_reading
    assert others[-1].pending_bytes == len(data), "counted while it waits"
    while len(transports[-1].writes) == 0:
        began_ms = rig.owner.clock.now
        ready, rig.loop._ready = rig.loop._ready, []
        for callback, arguments in ready:
            callback(*arguments)
        assert rig.owner.clock.now - began_ms <= 40
    assert [len(transport.responses()) for transport in transports] == [1] * 199
    assert all(transport.is_reading for transport in transports)
    assert rig.owner.budget.held_bytes == 0


def test_connection_read_first_is_not_served_more_often_than_postponed_ones() -> None:
    """Each peer sends its next expensive request after a response; the loop reads in one order."""
    rig = Rig().open()

    def costly(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.owner.clock.now += 13
        return echo(channel, command)

    rig.owner.table.register(10, costly, None)
    connections = [rig.connection, *(Connection(rig.owner, rig.loop) for _ in range(9))]  # type: ignore[arg-type]
    transports = [rig.transport, *(FakeTransport() for _ in range(9))]
    for connection, transport in zip(connections[1:], transports[1:], strict=True):
        connection.connection_made(transport)  # type: ignore[arg-type]
    data = encode_command(request(10, 1, name="x" * 1_000))
    asked = [0] * 10
    for _ in range(60):
        for number, (connection, transport) in enumerate(zip(connections, transports, strict=True)):
            if transport.is_reading and len(transport.writes) == asked[number]:
                asked[number] += 1
                connection.data_received(data)
        ready, rig.loop._ready = rig.loop._ready, []
        for callback, arguments in ready:
            callback(*arguments)
    served = [len(transport.writes) for transport in transports]
    assert max(served) - min(served) <= 2, served
    assert min(served) >= 4


def test_postponed_bytes_keep_order_and_unfinished_frames() -> None:
    rig = Rig().open()
    rig.owner.table.register(10, echo, None)
    data = b"".join(encode_command(request(10, opaque)) for opaque in range(3))
    rig.owner.turn.is_exhausted = True
    rig.connection.data_received(data[:-5])
    rig.connection.data_received(data[-5:])
    assert codes(rig) == []
    rig.owner.turn.is_exhausted = False
    rig.loop.run()
    assert codes(rig) == [(0, 0), (1, 0), (2, 0)]
    assert rig.transport.is_reading
    feed(rig, request(10, 3))
    assert codes(rig)[3:] == [(3, 0)]


def test_finished_frames_do_not_use_up_iteration() -> None:
    """Finished frames are not timed: that would cost each send."""
    rig = Rig().open()

    def frame(channel: Channel, command: RemotingCommand) -> bytes:
        rig.owner.clock.now += 100
        return encode_command(make_response(command))

    rig.owner.table.register(10, frame, None)
    feed(rig, request(10, 1))
    feed(rig, request(10, 2))
    assert not rig.owner.turn.is_exhausted
    assert codes(rig) == [(1, 0), (2, 0)]
