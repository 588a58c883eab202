"""Admission of peers at the HA port, checks of their reports, heartbeats and time-outs."""

import random
from collections.abc import Callable

import pytest

from rocketpy.broker.replication.handshake import PairIdentity, SlaveHandshake
from rocketpy.broker.replication.store_log import StoreLog
from rocketpy.proto.replication import classic_frames, pair_frames
from rocketpy.proto.replication.pair_frames import DiskState, Report
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import (
    FILE_BYTES,
    SECRET,
    SLAVE,
    FakeStore,
    Peer,
    World,
    run,
)

TEXT = random.Random(5).randbytes(2 * FILE_BYTES + 100)
LIE = 1 << 40


async def classic(world: World, log: FakeStore, first: int) -> Peer:
    await world.master(log, ha_allowed_peers=SLAVE)
    peer = await world.connect(SLAVE)
    peer.write(classic_frames.encode_report(first))
    await pass_time(0.1)
    return peer


async def pair(world: World, log: FakeStore, copy: FakeStore | None = None) -> Peer:
    """A peer that has proven itself."""
    await world.master(log)
    peer = await world.connect(SLAVE)
    identity = PairIdentity(cluster="c", name="broker-a", broker_id=1, secret=SECRET)
    slave = SlaveHandshake(identity, StoreLog(copy or FakeStore(), FILE_BYTES), nonce=bytes(32))
    peer.write(slave.start())
    while slave.result is None:
        await pass_time(0.01)
        data, peer.data = peer.data, b""
        peer.write(slave.feed(data))
    peer.data = slave.rest()
    peer.master_tags, peer.slave_tags = slave.master_tags, slave.slave_tags
    return peer


def report(peer: Peer, received: int, confirmed: int) -> bytes:
    progress = Report(received, confirmed, DiskState.WRITING)
    return pair_frames.encode_report(progress, peer.slave_tags)


# -- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        LIE.to_bytes(8, "big"),
        bytes(8),
        len(TEXT).to_bytes(8, "big"),
        b"\xff" * 8,
        b"GET / HTTP/1.1\r\n\r\n",
        random.Random(1).randbytes(1 << 20),
        pair_frames.PREAMBLE + b"\x7f\xff\xff\xff\x01",
        pair_frames.PREAMBLE + bytes(100),
        pair_frames.PREAMBLE + random.Random(2).randbytes(1 << 20),
    ],
    ids=["ha.md 1.1", "empty slave", "end", "-1", "http", "noise", "length", "zeros", "noise 2"],
)
def test_bytes_of_a_stranger_confirm_nothing_and_get_nothing(data: bytes) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server = await world.master(log, ha_allowed_peers="10.77.0.0/16")
        peer = await world.connect()
        peer.write(data)
        await pass_time(7)
        assert not peer.is_open
        assert peer.data == b""
        assert log.replicas.confirmed == 0
        assert server.connections == []

    run(case)


def test_silent_stranger_is_closed_after_five_seconds() -> None:
    async def case(world: World) -> None:
        await world.master(FakeStore(identity="x"))
        peer = await world.connect()
        peer.write(b"\0\0\0")
        await pass_time(4.8)
        assert peer.is_open
        await pass_time(0.5)
        assert not peer.is_open

    run(case)


def test_stranger_without_the_secret_learns_no_log_and_is_closed() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server = await world.master(log)
        peer = await world.connect()
        identity = PairIdentity(cluster="c", name="broker-a", broker_id=1, secret=b"guessed " * 4)
        slave = SlaveHandshake(identity, StoreLog(FakeStore(), FILE_BYTES), nonce=bytes(32))
        peer.write(slave.start())
        await pass_time(0.1)
        proof = pair_frames.Proof(proof=b"?" * 32, samples=[])
        peer.write(pair_frames.encode_handshake(proof))
        await pass_time(0.1)
        assert not peer.is_open
        assert log.replicas.confirmed == 0
        assert server.refusals == {}  # its name is not to be believed

    run(case)


def test_hello_sent_twice_closes_the_connection() -> None:
    async def case(world: World) -> None:
        await world.master(FakeStore(TEXT, identity="x"))
        peer = await world.connect()
        identity = PairIdentity(cluster="c", name="broker-a", broker_id=1, secret=SECRET)
        slave = SlaveHandshake(identity, StoreLog(FakeStore(), FILE_BYTES), nonce=bytes(32))
        start = slave.start()
        peer.write(start + start[8:])
        await pass_time(0.1)
        assert not peer.is_open

    run(case)


# -- classic peers -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 100, len(TEXT)])
def test_classic_peer_of_the_list_gets_the_log_from_its_offset(first: int) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await classic(world, log, first)
        parts = classic_frames.TransferReader().feed(peer.data)
        assert b"".join(part.data for part in parts) == TEXT[first:]
        assert all(part.phy_offset % FILE_BYTES + len(part.data) <= FILE_BYTES for part in parts)
        assert log.replicas.confirmed == first

    run(case)


def test_classic_reports_confirm() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await classic(world, log, 0)
        peer.write(classic_frames.encode_report(500) + classic_frames.encode_report(900)[:3])
        await pass_time(0.1)
        assert log.replicas.confirmed == 500
        peer.write(classic_frames.encode_report(900)[3:])
        await pass_time(0.1)
        assert log.replicas.confirmed == 900

    run(case)


@pytest.mark.parametrize("wrong", [LIE, len(TEXT) + 1, 499, -1])
def test_classic_report_that_cannot_be_true_closes(wrong: int) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await classic(world, log, 0)
        peer.write(classic_frames.encode_report(500) + classic_frames.encode_report(wrong))
        await pass_time(0.1)
        assert not peer.is_open
        assert log.replicas.confirmed <= 500

    run(case)


@pytest.mark.parametrize(("first", "name"), [(100, "BEHIND_RANGE"), (LIE, "BEYOND_END")])
def test_classic_peer_outside_the_range_is_refused_and_named(first: int, name: str) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, start=FILE_BYTES, identity="x")
        server = await world.master(log, ha_allowed_peers=SLAVE)
        peer = await world.connect(SLAVE)
        peer.write(classic_frames.encode_report(first))
        await pass_time(0.1)
        assert not peer.is_open
        (refused,) = server.refusals.values()
        assert refused.refusal.code.name == name
        assert log.replicas.confirmed == 0
        assert server.acknowledgements.in_sync_count == 1

    run(case)


# -- reports of the pair protocol ----------------------------------------------------------------


def test_pair_reports_confirm_after_the_handshake() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await pair(world, log)
        await pass_time(0.1)
        peer.write(report(peer, len(TEXT), 700))
        await pass_time(0.1)
        assert log.replicas.confirmed == 700

    run(case)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda peer: report(peer, LIE, 0),
        lambda peer: report(peer, 400, 400),
        lambda peer: report(peer, 600, 400),
        lambda _: bytes(38),
        lambda _: pair_frames.encode_report(Report(600, 600, DiskState.WRITING)) + bytes(16),
    ],
    ids=["beyond", "received back", "confirmed back", "zeros", "no tag"],
)
def test_pair_report_that_cannot_be_true_closes(wrong: Callable[[Peer], bytes]) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await pair(world, log)
        await pass_time(0.1)
        peer.write(report(peer, 500, 500))
        await pass_time(0.1)
        peer.write(wrong(peer))
        await pass_time(0.1)
        assert not peer.is_open
        assert log.replicas.confirmed == 500

    run(case)


# -- time ----------------------------------------------------------------------------------------


def test_idle_master_sends_heartbeats_and_drops_a_silent_slave() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        peer = await pair(world, log, FakeStore(TEXT))
        await pass_time(16)
        frames = pair_frames.DataReader(peer.master_tags).feed(peer.data)
        assert [(each.phy_offset, each.data) for each in frames] == [(len(TEXT), b"")] * 3
        assert peer.is_open
        await pass_time(5)
        assert not peer.is_open

    run(case)


def test_slave_that_reads_slowly_bounds_what_the_master_holds() -> None:
    async def case(world: World) -> None:
        log = FakeStore(bytes(8 << 20), identity="x")
        server = await world.master(log)
        world.host(SLAVE).read_bytes_per_s = 10_000
        world.slave(FakeStore())
        await pass_time(5)
        (connection,) = server.streaming
        assert connection._transport.get_write_buffer_size() <= (1 << 20) + (512 << 10)

    run(case)


def test_flow_control_limits_the_bytes_of_a_second() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(bytes(1 << 20), identity="x"), FakeStore()
        await world.master(log, ha_flow_control_enable=True, max_ha_transfer_byte_in_second=100_000)
        world.slave(copy)
        await pass_time(3.9)
        assert 200_000 <= len(copy.data) <= 400_000
        await pass_time(10)
        assert len(copy.data) == 1 << 20

    run(case)


def test_log_that_cannot_be_read_closes_the_connection() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")

        def fail(phy_offset: int, max_bytes: int) -> memoryview | None:
            raise OSError("bad disk")

        log.log_part = fail  # type: ignore[method-assign]  # a fault
        peer = await pair(world, log)
        await pass_time(0.2)
        assert not peer.is_open

    run(case)
