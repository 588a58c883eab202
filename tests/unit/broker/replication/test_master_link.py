"""Connection of a slave to a master that does not behave."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.handshake import MasterHandshake, PairIdentity
from rocketpy.broker.replication.replica_state import State
from rocketpy.broker.replication.store_log import StoreLog
from rocketpy.errors import LogGapError, StoreFormatError
from rocketpy.proto.replication import classic_frames, pair_frames
from rocketpy.proto.replication.pair_frames import DiskState, FrameTags, Report
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import (
    FILE_BYTES,
    HA_PORT,
    MASTER,
    SECRET,
    FakeStore,
    Peer,
    World,
    run,
)


class Port:
    """HA port that gives its connections to a test."""

    def __init__(self, world: World) -> None:
        self.peers: list[Peer] = []
        self._admission = Admission(0, 0, world.clock)

    async def open(self, world: World) -> None:
        endpoint = ListenEndpoint(name="ha", address=MASTER, port=HA_PORT)
        acceptor: Any = self
        await world.host(MASTER).listen(endpoint, [acceptor], self._admission)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        pass

    def new_connection(self, ip: str, *, is_crowded: bool = False) -> Peer:
        self.peers.append(Peer())
        return self.peers[-1]


Case = Callable[[World, HaClient, Peer], Awaitable[None]]


def with_slave(case: Case, store: FakeStore, *, protocol: int, answers: bool = True) -> None:
    async def main(world: World) -> None:
        world.protocol = protocol
        port = Port(world)
        await port.open(world)
        client = world.slave(store, ha_allowed_peers=MASTER)
        await world.until(lambda: bool(port.peers and port.peers[0].data))
        peer = port.peers[0]
        if protocol and answers:
            await accept(peer)
        await case(world, client, peer)

    run(main)


async def accept(peer: Peer) -> None:
    """Run the master's side of the handshake."""
    identity = PairIdentity(cluster="c", name="broker-a", broker_id=0, secret=SECRET)
    log = StoreLog(FakeStore(b"ab", identity="x"), FILE_BYTES)
    master = MasterHandshake(identity, log, nonce=bytes(32), is_taken=lambda _: False)
    data, peer.data = peer.data[8:], b""
    while master.result is None:
        peer.write(master.feed(data))
        await pass_time(0.02)
        data, peer.data = peer.data, b""
    peer.data = master.rest() + data
    peer.master_tags, peer.slave_tags = master.master_tags, master.slave_tags


def frame(tags: FrameTags | None, phy_offset: int, data: bytes) -> bytes:
    return pair_frames.encode_data_head(phy_offset, data, 0, tags) + data


def reports(peer: Peer) -> list[Report]:
    data, peer.data = peer.data, b""
    return pair_frames.ReportReader(peer.slave_tags).feed(data)


def test_slave_reports_at_once_and_answers_heartbeats() -> None:
    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await pass_time(0.1)
        assert reports(peer) == [Report(2, 2, DiskState.WRITING)]
        peer.write(frame(peer.master_tags, 2, b""))
        await pass_time(0.1)
        assert reports(peer) == [Report(2, 2, DiskState.WRITING)]
        peer.write(frame(peer.master_tags, 2, b"cd") + frame(peer.master_tags, 4, b"ef"))
        await pass_time(0.1)
        assert reports(peer) == [Report(6, 6, DiskState.WRITING)]
        assert client.link is not None
        assert client.link.read_ms > 0

    with_slave(case, FakeStore(b"ab"), protocol=1)


def test_idle_slave_reports_every_five_seconds_until_the_master_is_silent() -> None:
    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await pass_time(19)
        assert 4 <= len(reports(peer)) <= 5
        assert client.state.state is State.STREAMING
        await pass_time(2.5)
        assert not peer.is_open
        assert "silent" in client.state.reason

    with_slave(case, FakeStore(b"ab"), protocol=1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tags: frame(tags, 3, b"x"),
        lambda tags: frame(tags, 0, b"x"),
        lambda tags: frame(tags, 2, b"x")[:-1] + b"y",
        lambda _: frame(None, 2, b"x") + bytes(16),
        lambda _: b"\0" * 50,
    ],
    ids=["gap", "overlap", "tag", "no tag", "zeros"],
)
def test_wrong_frame_ends_the_connection_and_appends_nothing(
    wrong: Callable[[FrameTags | None], bytes],
) -> None:
    store = FakeStore(b"ab")

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        peer.write(wrong(peer.master_tags))
        await pass_time(0.1)
        assert not peer.is_open
        assert store.data == b"ab"
        assert client.state.state is State.CONNECTING

    with_slave(case, store, protocol=1)


@pytest.mark.parametrize("error", [StoreFormatError("no record"), LogGapError(expected=2, got=3)])
def test_log_error_found_while_idle_ends_the_connection(error: Exception) -> None:
    store = FakeStore(b"ab")

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await pass_time(0.1)
        store.error = error
        await pass_time(1.0)
        assert not peer.is_open
        assert client.state.state is State.CONNECTING
        assert client.state.reason == str(error)

    with_slave(case, store, protocol=1)


def test_disk_error_at_the_start_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FakeStore(b"ab")

    def fail() -> None:
        raise OSError("bad disk")

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        monkeypatch.setattr(store, "drop_incomplete", fail)
        peer.transport.abort()
        await pass_time(2.0)
        assert client.state.state is State.CONNECTING
        assert client.state.reason == "bad disk"

    with_slave(case, store, protocol=1)


def test_silent_master_is_left_during_the_handshake() -> None:
    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert client.state.state is State.PROVING
        await pass_time(7)
        assert not peer.is_open
        assert client.state.reason == "the handshake takes too long"

    with_slave(case, FakeStore(b"ab"), protocol=1, answers=False)


def test_classic_master_gets_eight_bytes_and_is_followed() -> None:
    store = FakeStore(b"ab")

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert peer.data == classic_frames.encode_report(2)
        peer.write(classic_frames.encode_transfer_head(2, 2) + b"cd")
        await pass_time(0.1)
        assert peer.data[8:] == classic_frames.encode_report(4)
        assert store.data == b"abcd"
        peer.write(classic_frames.encode_transfer_head(3, 0))
        await pass_time(0.1)
        assert not peer.is_open
        assert "offset 3" in client.state.reason

    with_slave(case, store, protocol=0)


def test_pauses_grow_while_the_master_closes_every_connection() -> None:
    async def main(world: World) -> None:
        port = Port(world)
        await port.open(world)
        world.slave(FakeStore(b"ab"))
        for _ in range(6_000):
            await pass_time(0.01)
            for peer in port.peers:
                if peer.is_open:
                    peer.transport.abort()
        assert 5 <= len(port.peers) <= 7

    run(main)
