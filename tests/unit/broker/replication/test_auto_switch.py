"""AutoSwitch protocol: a replica without a secret, at our master and below another one."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.broker.replication.store_log import MOST_HIDDEN_BYTES
from rocketpy.proto.replication import auto_switch_frames as auto
from rocketpy.proto.replication.auto_switch_frames import EpochPart, MasterHello, SlaveHello
from rocketpy.proto.replication.classic_frames import encode_report as classic_report
from rocketpy.proto.replication.epochs import Epoch, Epochs
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import (
    FILE_BYTES,
    MASTER,
    SLAVE,
    FakeStore,
    Peer,
    World,
    is_streaming,
    run,
)
from tests.unit.broker.replication.test_master_link import Port

TEXT = random.Random(6).randbytes(2 * FILE_BYTES + 100)
EPOCHS: Epochs = (Epoch(1, 0), Epoch(3, 1_000), Epoch(4, FILE_BYTES + 5))
LIE = 1 << 40


def epochs(*pairs: tuple[int, int]) -> Epochs:
    return tuple(Epoch(*each) for each in pairs)


@dataclass
class Group:
    """Membership of a broker in a group with a controller.

    Attributes:
        epochs: epoch list of its log.
        needed: ids that must confirm.
        cut_at: where a slave's log must be cut; None: nowhere.
    """

    epochs: Epochs = EPOCHS
    needed: frozenset[int] | None = frozenset({2})
    cut_at: int | None = None
    saved: list[Epochs] = field(default_factory=list)

    def followed(self, epochs: Epochs) -> None:
        self.epochs = epochs
        self.saved.append(epochs)

    def diverged(self, end: int) -> None:
        self.cut_at = end

    @property
    def membership(self) -> Membership:
        return Membership(
            epoch=4,
            master_epoch=lambda: 4,
            master_address=f"{MASTER}:10911",
            epochs=lambda: self.epochs,
            needed=lambda: self.needed,
            on_followed=self.followed,
            on_diverged=self.diverged,
        )


# -- at our master -------------------------------------------------------------------------------


async def slave(
    world: World, log: FakeStore, hello: SlaveHello, group: Group | None = None
) -> tuple[HaServer, Peer]:
    """A peer that has sent its hello."""
    found = group or Group()
    server = await world.master(log, membership=found.membership, ha_allowed_peers=SLAVE)
    peer = await connect(world, hello)
    return server, peer


async def connect(world: World, hello: SlaveHello) -> Peer:
    peer = await world.connect(SLAVE)
    peer.write(auto.encode_slave_hello(hello))
    await pass_time(0.1)
    return peer


def taken(peer: Peer) -> bytes:
    data, peer.data = peer.data, b""
    return data


async def report(peer: Peer, end: int) -> list[EpochPart]:
    """Report an end of the log, and return what the master sends."""
    peer.write(auto.encode_report(end))
    await pass_time(0.3)
    return auto.PartFrameReader().feed(taken(peer))


def list_ids(server: HaServer) -> None:
    """Count the connected slaves, as the mastership does once the controller lists them."""
    for each in server.streaming:
        assert each.stream is not None
        each.stream.progress.counts = True


def test_empty_slave_gets_the_epochs_and_the_log_in_parts_of_one_epoch_and_file() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server, peer = await slave(world, log, SlaveHello(2))
        assert auto.MasterHelloReader().feed(taken(peer)) == MasterHello(len(TEXT), EPOCHS)
        assert server.streaming == []
        await pass_time(7)  # Apache's slave reports with its next heartbeat
        assert peer.is_open
        parts = await report(peer, 0)
        assert b"".join(each.data for each in parts) == TEXT
        assert [each.phy_offset for each in parts if each.data] == [
            0, 1_000, FILE_BYTES, FILE_BYTES + 5, 2 * FILE_BYTES,
        ]  # fmt: skip
        assert [each.epoch for each in parts if each.data] == [
            EPOCHS[0], EPOCHS[1], EPOCHS[1], EPOCHS[2], EPOCHS[2],
        ]  # fmt: skip
        (row,) = server.connections
        assert (row.broker_id, row.protocol and row.protocol.value) == (2, "autoswitch")

    run(case)


def test_slave_of_a_listed_id_confirms_and_learns_the_confirmed_end() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server, peer = await slave(world, log, SlaveHello(2))
        taken(peer)
        assert [each.data for each in await report(peer, len(TEXT))] == []
        assert log.replicas.confirmed == 0  # the controller has not listed it yet
        list_ids(server)
        server.membership_changed()
        assert log.replicas.confirmed == len(TEXT)
        await pass_time(0.3)
        (heartbeat,) = auto.PartFrameReader().feed(taken(peer))
        assert (heartbeat.phy_offset, heartbeat.confirmed) == (len(TEXT), len(TEXT))
        end = log.put(b"more")
        await pass_time(0.1)
        (part,) = auto.PartFrameReader().feed(taken(peer))
        assert (part.data, part.epoch, part.confirmed) == (b"more", EPOCHS[2], len(TEXT))
        peer.write(auto.encode_report(end))
        await pass_time(0.3)
        assert log.replicas.confirmed == end

    run(case)


@pytest.mark.parametrize(
    ("hello", "needed"),
    [
        (SlaveHello(77), frozenset({2})),
        (SlaveHello(2, is_learner=True), frozenset({2})),
        (SlaveHello(77), None),
        (SlaveHello(2, is_learner=True), None),
    ],
)
def test_stranger_and_learner_confirm_nothing(
    hello: SlaveHello, needed: frozenset[int] | None
) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server, peer = await slave(world, log, hello, Group(needed=needed))
        taken(peer)
        parts = await report(peer, 0)
        assert b"".join(each.data for each in parts) == TEXT
        await report(peer, len(TEXT))
        assert log.replicas.confirmed == 0
        assert server.acknowledgements.in_sync_count == 1

    run(case)


@pytest.mark.parametrize("reported", [LIE, -1, len(TEXT) + 1])
def test_report_beyond_the_end_confirms_nothing_and_closes(reported: int) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server, peer = await slave(world, log, SlaveHello(2))
        taken(peer)
        peer.write(auto.encode_report(reported))
        await pass_time(0.1)
        assert (peer.is_open, log.replicas.confirmed) == (False, 0)
        peer = await connect(world, SlaveHello(2))
        taken(peer)
        await report(peer, len(TEXT))
        list_ids(server)
        peer.write(auto.encode_report(reported))
        await pass_time(0.2)
        assert not peer.is_open
        assert log.replicas.confirmed <= len(TEXT)

    run(case)


def test_slave_behind_the_oldest_byte_is_refused_and_named() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, start=FILE_BYTES, identity="x")
        server, peer = await slave(world, log, SlaveHello(2))
        taken(peer)
        await report(peer, 10)
        assert not peer.is_open
        (refused,) = server.refusals.values()
        assert (refused.broker_id, refused.refusal.code.name) == (2, "BEHIND_RANGE")

    run(case)


def test_second_connection_of_an_id_is_refused_until_the_first_one_is_dead() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        _, first = await slave(world, log, SlaveHello(2))
        taken(first)
        await report(first, len(TEXT))
        second = await connect(world, SlaveHello(2))
        assert (first.is_open, second.is_open, second.data) == (True, False, b"")
        await pass_time(5)  # an idle slave of Apache reports after 5 s
        first.write(auto.encode_report(len(TEXT)))
        await pass_time(3)
        assert first.is_open
        await connect(world, SlaveHello(2))
        await pass_time(6.5)
        assert not first.is_open
        third = await connect(world, SlaveHello(2))
        assert third.is_open

    run(case)


@pytest.mark.parametrize(
    "data",
    [
        auto.encode_slave_hello(SlaveHello(2)) + auto.encode_report(LIE),
        auto.encode_slave_hello(SlaveHello(2))[:8] + bytes(8),
        auto.encode_slave_hello(SlaveHello(2))[:12],
        auto.encode_slave_hello(SlaveHello(2)),
    ],
    ids=["early report", "id 0", "half", "no report"],
)
def test_wrong_or_silent_slave_is_closed(data: bytes) -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server = await world.master(log, membership=Group().membership, ha_allowed_peers=SLAVE)
        peer = await world.connect(SLAVE)
        peer.write(data)
        await pass_time(21)
        assert not peer.is_open
        assert server.connections == []

    run(case)


@pytest.mark.parametrize(("has_controller", "allowed"), [(False, SLAVE), (True, "10.77.0.0/16")])
def test_hello_is_answered_only_to_allowed_peers_of_a_group_with_a_controller(
    has_controller: bool, allowed: str
) -> None:
    async def case(world: World) -> None:
        membership = Group().membership if has_controller else None
        log = FakeStore(TEXT, identity="x")
        await world.master(log, membership=membership, ha_allowed_peers=allowed)
        peer = await connect(world, SlaveHello(2))
        await pass_time(6)
        assert (peer.is_open, peer.data) == (False, b"")

    run(case)


def test_classic_report_at_a_master_with_a_controller_is_served_as_before() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        await world.master(log, membership=Group().membership, ha_allowed_peers=SLAVE)
        peer = await world.connect(SLAVE)
        peer.write(classic_report(len(TEXT) - 3))
        await pass_time(0.2)
        assert peer.data.endswith(TEXT[-3:])

    run(case)


# -- below another master ------------------------------------------------------------------------

Case = Callable[[World, HaClient, Peer], Awaitable[None]]


def below(case: Case, store: FakeStore, group: Group, *, sync: bool = False) -> None:
    """Run a slave below a master of Apache's, which the test plays."""

    async def main(world: World) -> None:
        world.protocol = 0
        port = Port(world)
        await port.open(world)
        client = world.slave(
            store, broker_id=2, sync=sync, membership=group.membership, ha_allowed_peers=MASTER
        )
        await world.until(lambda: bool(port.peers and port.peers[0].data))
        assert auto.decode_slave_hello(taken(port.peers[0])) == SlaveHello(2)
        await case(world, client, port.peers[0])

    run(main)


def ends(peer: Peer) -> list[int]:
    return auto.ReportReader().feed(taken(peer))


async def greet(peer: Peer, end: int, epochs: Epochs = EPOCHS) -> list[int]:
    peer.write(auto.encode_master_hello(MasterHello(end, epochs)))
    await pass_time(0.1)
    return ends(peer)


async def send(peer: Peer, at: int, data: bytes, epoch: Epoch, confirmed: int) -> list[int]:
    peer.write(auto.encode_part_head(at, len(data), epoch, confirmed) + data)
    await pass_time(0.1)
    return ends(peer)


def test_empty_slave_reports_at_once_and_copies_with_the_epochs_before_the_bytes() -> None:
    store, group = FakeStore(), Group(epochs=())

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert await greet(peer, 3_000) == [0]
        assert is_streaming(client)
        assert await send(peer, 0, TEXT[:1_000], EPOCHS[0], 0) == [1_000]
        # At its end the following epoch begins.
        assert group.epochs == EPOCHS[:2]
        assert await send(peer, 1_000, TEXT[1_000:1_500], EPOCHS[1], 1_200) == [1_500]
        assert store.data == TEXT[:1_500]
        assert store.replicas.is_required
        assert store.replicas.confirmed == 1_200
        assert await send(peer, 1_500, b"", EPOCHS[1], 1_500) == [1_500]
        assert store.replicas.confirmed == 1_500
        assert client.link is not None
        assert (client.link.confirmed, client.link.protocol.value) == (1_500, "autoswitch")

    below(case, store, group)


def test_idle_slave_reports_every_five_seconds() -> None:
    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await greet(peer, 1_500)
        await pass_time(16)
        assert ends(peer) == [1_500] * 3

    below(case, FakeStore(TEXT[:1_500]), Group())


def test_slave_with_sync_flush_reports_first_when_its_log_is_on_disk() -> None:
    store = FakeStore(TEXT[:1_500])
    store.flushed = 1_200

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert await greet(peer, 2_000) == []
        store.flush()
        await pass_time(0.1)
        assert ends(peer) == [1_500]

    below(case, store, Group(), sync=True)


@pytest.mark.parametrize(
    ("own", "end", "cut_at"),
    [
        ((Epoch(1, 0), Epoch(2, 1_000)), 1_500, 1_000),
        ((Epoch(1, 0),), 1_500, 1_000),
        ((Epoch(1, 0), Epoch(3, 1_000)), 5_000, FILE_BYTES + 5),
        ((*EPOCHS,), len(TEXT), 8_000),
    ],
    ids=["other epoch", "longer epoch", "before an epoch", "lost end"],
)
def test_slave_with_more_than_the_master_asks_for_a_cut(own: Epochs, end: int, cut_at: int) -> None:
    group, store = Group(epochs=own), FakeStore(TEXT[:end])

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert await greet(peer, 8_000) == []
        assert (group.cut_at, group.saved, peer.is_open) == (cut_at, [], False)
        assert f"the log must be cut at {cut_at}" in client.state.reason
        assert store.data == TEXT[:end]

    below(case, store, group)


def test_slave_is_cut_although_the_list_lacks_the_epoch_of_the_master() -> None:
    """Apache's list has no epoch that has stored nothing: the controller's word counts."""
    group = Group(epochs=epochs((1, 0), (3, 1_000), (4, 1_200)))

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert await greet(peer, 8_000, EPOCHS[:2]) == []
        assert group.cut_at == 1_200

    below(case, FakeStore(TEXT[:1_500]), group)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ((), "no epoch of this log"),
        ((Epoch(2, 0),), "no epoch of this log"),
        ((Epoch(1, 0), Epoch(9, 1_000)), "older than the logs"),
    ],
    ids=["no epochs", "other epochs", "newer epoch"],
)
def test_slave_whose_log_cannot_be_of_the_group_does_not_follow(own: Epochs, reason: str) -> None:
    group = Group(epochs=own)

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        assert await greet(peer, 8_000) == []
        assert (group.cut_at, peer.is_open) == (None, False)
        assert reason in client.state.reason

    below(case, FakeStore(TEXT[:1_500]), group)


def test_equal_slave_takes_the_list_up_to_its_end_and_new_epochs_later() -> None:
    own = epochs((1, 0), (2, 1_500))  # epoch 2 has stored nothing
    group, store = Group(epochs=own), FakeStore(TEXT[:1_500])

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        offered = epochs((1, 0), (3, 1_600))
        assert await greet(peer, 2_000, offered) == [1_500]
        assert group.epochs == offered[:1]
        # Apache names the following epoch in the last part of an epoch.
        assert await send(peer, 1_500, TEXT[1_500:1_600], offered[1], 0) == [1_600]
        assert group.epochs == offered
        assert await send(peer, 1_600, TEXT[1_600:1_700], offered[1], 0) == [1_700]
        new = Epoch(5, 1_700)
        assert await send(peer, 1_700, b"", new, 0) == [1_700]
        assert group.epochs == (*offered, new)

    below(case, store, group)


@pytest.mark.parametrize(
    "wrong",
    [
        EpochPart(1_501, b"x", EPOCHS[1], 0),
        EpochPart(0, b"x", EPOCHS[1], 0),
        EpochPart(1_500, b"x", Epoch(9, 1_499), 0),
        EpochPart(1_500, b"x", Epoch(9, 1_502), 0),
        EpochPart(1_500, b"x", Epoch(2, 1_500), 0),
    ],
    ids=["gap", "overlap", "begun before", "begins later", "lower"],
)
def test_wrong_part_ends_the_connection_and_stores_nothing(wrong: EpochPart) -> None:
    group, store = Group(), FakeStore(TEXT[:1_500])

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await greet(peer, 1_500, EPOCHS[:2])
        await send(peer, wrong.phy_offset, bytes(wrong.data), wrong.epoch, 0)
        assert not peer.is_open
        assert store.data == TEXT[:1_500]
        assert group.epochs == EPOCHS[:2]

    below(case, store, group)


def test_wrong_hello_of_a_master_ends_the_connection() -> None:
    async def case(world: World, client: HaClient, peer: Peer) -> None:
        peer.write(bytes(64))
        await pass_time(0.1)
        assert not peer.is_open

    below(case, FakeStore(), Group(epochs=()))


def test_slave_shows_the_oldest_bytes_although_the_master_counts_no_further() -> None:
    store, group = FakeStore(), Group(epochs=())

    async def case(world: World, client: HaClient, peer: Peer) -> None:
        await greet(peer, 0, EPOCHS[:1])
        piece, at = bytes(1 << 20), 0
        while at <= MOST_HIDDEN_BYTES:
            await send(peer, at, piece, EPOCHS[0], -1)
            at += len(piece)
        assert await send(peer, at, b"", EPOCHS[0], -1) == [at]
        assert store.replicas.confirmed == at - MOST_HIDDEN_BYTES

    below(case, store, group)


def test_slave_follows_our_master_without_a_secret_and_counts() -> None:
    async def case(world: World) -> None:
        world.protocol = 0
        log, copy = FakeStore(TEXT, identity="x"), FakeStore()
        group = Group(epochs=())
        server = await world.master(log, membership=Group().membership, ha_allowed_peers=SLAVE)
        client = world.slave(
            copy, broker_id=2, membership=group.membership, ha_allowed_peers=MASTER
        )
        await world.until(lambda: copy.data == TEXT)
        list_ids(server)
        await world.until(lambda: log.replicas.confirmed == len(TEXT))
        await world.until(lambda: copy.replicas.confirmed == len(TEXT))
        assert is_streaming(client)
        assert group.epochs == EPOCHS

    run(case)
