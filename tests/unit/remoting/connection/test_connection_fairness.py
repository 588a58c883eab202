"""Fairness between many busy connections."""

import dataclasses

from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection import Connection
from tests.unit.remoting.connection.test_memory_budget import Peer
from tests.unit.remoting.fakes import LIMITS, FakeTransport, Rig, echo, feed, request


def test_single_request_waits_for_one_short_slice_of_each_busy_connection() -> None:
    rig = Rig(dataclasses.replace(LIMITS, max_in_flight=0)).open()

    def costly(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        rig.owner.clock.now += 1
        return echo(channel, command)

    rig.owner.table.register(10, costly, None)
    others = [Connection(rig.owner, rig.loop) for _ in range(20)]  # type: ignore[arg-type]
    for connection in others:
        connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        connection.data_received(b"".join(encode_command(request(10, n)) for n in range(100)))
    began_ms = rig.owner.clock.now
    answered_ms: list[int] = []

    def write(data: bytes) -> None:
        assert data
        answered_ms.append(rig.owner.clock.now)

    rig.transport.write = write  # type: ignore[method-assign]
    feed(rig, request(10, 1))
    rig.loop.run()
    assert answered_ms[0] - began_ms <= 20 * 5, "not ten of each"


def test_peers_that_do_not_read_do_not_delay_small_responses() -> None:
    rig = Rig(memory_limit_bytes=1 << 20).open()
    rig.owner.table.register(10, echo, None)
    rig.owner.table.register(11, lambda *_: bytes(70_000), None)
    reader = Connection(rig.owner, rig.loop)  # type: ignore[arg-type]
    transport = FakeTransport()
    reader.connection_made(transport)  # type: ignore[arg-type]
    for connection in (rig.connection, reader):
        for opaque in range(2):
            connection.data_received(encode_command(request(10, opaque)))
    reader.data_received(encode_command(request(11, 2)))
    rig.loop.run()
    rig.owner.budget.count(Peer(unsent=600_000))
    rig.owner.turn.is_exhausted = True
    answered, taken = len(rig.transport.writes), len(transport.writes)
    rig.connection.data_received(encode_command(request(10, 3)))
    reader.data_received(encode_command(request(11, 3)))
    rig.owner.turn.is_exhausted = False
    rig.loop.run()
    assert len(rig.transport.writes) == answered + 1
    assert len(transport.writes) == taken, "it takes much: it waits until there is room"
