"""Slave and master over a simulated network: what is copied, confirmed, refused and repeated."""

import random

import pytest

from rocketpy.broker.replication.replica_state import State
from rocketpy.errors import DiskFullError, RequestTimeoutError, StoreReadOnlyError
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import (
    FILE_BYTES,
    MASTER,
    SLAVE,
    FakeStore,
    World,
    is_streaming,
    run,
)

TEXT = random.Random(5).randbytes(3 * FILE_BYTES + 100)


@pytest.mark.parametrize("protocol", [0, 1], ids=["classic", "pair"])
@pytest.mark.parametrize("seed", range(3))
def test_slave_copies_the_whole_log_and_confirms_it(seed: int, protocol: int) -> None:
    async def case(world: World) -> None:
        world.protocol = protocol
        log, copy = FakeStore(TEXT, identity="log-1"), FakeStore()
        await world.master(log, ha_allowed_peers=SLAVE, ha_transfer_batch_size=1_024)
        client = world.slave(copy, ha_allowed_peers=MASTER)
        await world.until(lambda: log.replicas.confirmed == len(TEXT))
        assert copy.data == log.data
        assert is_streaming(client)

        end = log.put(b"more")
        await world.until(lambda: log.replicas.confirmed == end, limit_s=0.1)
        assert copy.data == log.data
        assert copy.log_identity == ("log-1" if protocol else "")

    run(case, seed)


def test_empty_slave_gets_the_log_from_its_oldest_byte() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(TEXT, start=FILE_BYTES, identity="x"), FakeStore()
        await world.master(log)
        world.slave(copy)
        await world.until(lambda: copy.data == log.data)
        assert copy.min_phy_offset == FILE_BYTES

    run(case)


def test_slave_continues_after_its_link_was_cut() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        await world.master(log)
        world.slave(copy)
        for _ in range(20):
            log.put(TEXT[:500])
            await pass_time(world.loop.rng.choice([0.01, 0.5]))
            world.network.cut_one()
        await world.until(lambda: log.replicas.confirmed == log.max_phy_offset)
        assert copy.data == log.data

    run(case)


def test_half_open_connection_makes_room_for_the_same_slave() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(TEXT, identity="x"), FakeStore()
        server = await world.master(log)
        client = world.slave(copy)
        await world.until(lambda: is_streaming(client))
        world.host(SLAVE).lose_power()
        world.host(SLAVE).boot()
        await client.stop()
        client = world.slave(copy)
        await world.until(lambda: is_streaming(client), limit_s=5)
        assert len(server.streaming) == 1

    run(case)


def test_second_slave_with_the_same_id_is_refused() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        server = await world.master(log)
        first = world.slave(FakeStore())
        await world.until(lambda: is_streaming(first))
        other = world.slave(FakeStore(), host="10.0.0.3")
        await world.until(lambda: other.state.state is State.REFUSED)
        await pass_time(10)
        assert "brokerId 1 is connected" in other.state.reason
        assert is_streaming(first)
        assert len(server.streaming) == 1

    run(case)


@pytest.mark.parametrize(
    ("copy", "state"),
    [
        (FakeStore(TEXT + b"more", identity="x"), State.BEYOND_END),
        (FakeStore(TEXT[:FILE_BYTES], start=0, identity="x"), State.BEHIND_RANGE),
        (FakeStore(b"x" * (2 * FILE_BYTES), start=FILE_BYTES, identity="x"), State.DIFFERENT_LOG),
        (FakeStore(TEXT[:-1] + b"?", start=2 * FILE_BYTES, identity="x"), State.DIFFERENT_LOG),
        (FakeStore(TEXT[:100], start=2 * FILE_BYTES, identity="other"), State.DIFFERENT_LOG),
    ],
    ids=["beyond", "behind", "different", "last byte", "identity"],
)
def test_log_that_does_not_continue_is_refused_and_left_alone(
    copy: FakeStore, state: State
) -> None:
    before = bytes(copy.data)

    async def case(world: World) -> None:
        log = FakeStore(TEXT, start=2 * FILE_BYTES, identity="x")
        if state is State.BEYOND_END:
            copy.min_phy_offset = 2 * FILE_BYTES
        server = await world.master(log)
        client = world.slave(copy)
        await world.until(lambda: client.state.state is state)
        await pass_time(60)
        (refused,) = server.refusals.values()
        assert refused.broker_id == 1
        assert refused.refusal.text == client.state.reason
        assert copy.data == before
        assert log.replicas.confirmed == 0

    run(case)


@pytest.mark.parametrize(
    "settings", [{"secret": b"another secret!!"}, {"name": "broker-b"}], ids=["secret", "name"]
)
def test_slave_of_another_broker_is_refused(settings: dict[str, object]) -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(TEXT, identity="x"), FakeStore()
        await world.master(log)
        client = world.slave(copy, **settings)  # type: ignore[arg-type]  # named above
        await world.until(lambda: client.state.state is State.REFUSED)
        assert copy.data == b""

    run(case)


def test_classic_master_outside_the_list_is_refused() -> None:
    async def case(world: World) -> None:
        world.protocol = 0
        await world.master(FakeStore(TEXT, identity="x"), ha_allowed_peers=SLAVE)
        client = world.slave(FakeStore(), ha_allowed_peers="10.9.9.9")
        await world.until(lambda: client.state.state is State.REFUSED)
        assert "haAllowedPeers" in client.state.reason

    run(case)


def test_slave_without_a_master_waits_for_its_address() -> None:
    async def case(world: World) -> None:
        world.addresses.ha_address = ""
        log, copy = FakeStore(TEXT, identity="x"), FakeStore()
        await world.master(log)
        client = world.slave(copy)
        await pass_time(100)
        assert client.state.state is State.NO_MASTER
        world.addresses.ha_address = f"{MASTER}:10912"
        client.master_changed()
        await world.until(lambda: copy.data == log.data, limit_s=1)

    run(case)


def test_slave_retries_while_the_master_is_away() -> None:
    async def case(world: World) -> None:
        world.protocol = RequestTimeoutError("no answer")
        client = world.slave(FakeStore())
        await pass_time(10)
        assert client.state.state is State.CONNECTING
        assert client.state.reason == "no answer"
        world.protocol = 1
        log = FakeStore(TEXT, identity="x")
        await world.master(log)
        await world.until(lambda: is_streaming(client), limit_s=31)

    run(case)


def test_slave_leaves_its_master_for_an_elected_one_at_the_same_address() -> None:
    async def case(world: World) -> None:
        log = FakeStore(TEXT, identity="x")
        await world.master(log)
        client = world.slave(FakeStore())
        await world.until(lambda: is_streaming(client))
        before = client.link
        client.master_elected()
        await world.until(lambda: is_streaming(client) and client.link is not before, limit_s=3)

    run(case)


def test_slave_does_not_follow_a_master_that_was_replaced_while_it_connected() -> None:
    async def case(world: World) -> None:
        asked: list[str] = []

        async def ask(address: str) -> int:
            asked.append(address)
            if len(asked) == 1:
                client.master_elected()
            return 1

        await world.master(FakeStore(TEXT, identity="x"))
        client = world.slave(FakeStore())
        client._ask_protocol = ask
        await world.until(lambda: is_streaming(client), limit_s=5)
        assert len(asked) == 2

    run(case)


# -- what a slave confirms -----------------------------------------------------------------------


def test_sync_flush_slave_confirms_what_is_on_its_disk() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        copy.flushed = 0
        await world.master(log)
        world.slave(copy, sync=True)
        end = log.put(TEXT)
        await world.until(lambda: copy.data == log.data)
        await pass_time(10)
        assert log.replicas.confirmed == 0

        copy.flush()
        await world.until(lambda: log.replicas.confirmed == end, limit_s=0.1)

    run(case)


@pytest.mark.parametrize(
    "error",
    [DiskFullError("no space"), StoreReadOnlyError("a flush failed"), OSError("bad disk")],
    ids=["full", "read only", "failed"],
)
def test_slave_that_cannot_write_stops_confirming_and_its_senders_hear_it(
    error: Exception,
) -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        server = await world.master(log)
        client = world.slave(copy)
        log.put(b"one")
        await world.until(lambda: log.replicas.confirmed == 3)
        copy.error = error
        log.put(b"two")
        await world.until(lambda: log.replicas.give_up_count > 0, limit_s=0.2)
        assert client.state.state is State.STALLED
        assert log.replicas.confirmed == 3
        await pass_time(60)
        assert client.state.state is State.STALLED
        assert len(server.streaming) == 1

        copy.error = None
        await world.until(lambda: log.replicas.confirmed == 6, limit_s=2)
        assert is_streaming(client)

    run(case)


def test_failed_flush_of_a_slave_is_reported_once_and_at_once() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        copy.flushed = 0
        await world.master(log)
        client = world.slave(copy, sync=True)
        log.put(TEXT)
        await world.until(lambda: copy.data == log.data)
        copy.error = StoreReadOnlyError("a flush failed")
        waiting, copy.waiting = copy.waiting, []
        copy.fails_flushes = True
        for callback in waiting:
            callback(False)
        await world.until(lambda: log.replicas.give_up_count > 0, limit_s=0.1)
        assert client.state.state is State.STALLED
        await pass_time(30)
        assert log.replicas.confirmed == 0

    run(case)


def test_idle_slave_notices_a_failed_disk() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(b"one", identity="x"), FakeStore()
        await world.master(log)
        client = world.slave(copy)
        await world.until(lambda: log.replicas.confirmed == 3)
        copy.error = StoreReadOnlyError("a flush failed")
        await world.until(lambda: log.replicas.give_up_count > 0, limit_s=3)
        assert client.state.state is State.STALLED

    run(case)


def test_stalled_slave_holds_a_bounded_part_of_the_log() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(bytes(6 << 20), identity="x"), FakeStore()
        copy.error = DiskFullError("no space")
        await world.master(log, ha_transfer_batch_size=32 << 10)
        client = world.slave(copy)
        await pass_time(30)
        assert client.link is not None
        assert client.link._copy.queued_bytes < (2 << 20) + (512 << 10)
        copy.error = None
        await world.until(lambda: copy.data == log.data)

    run(case)


def test_appends_of_a_catch_up_are_bounded_steps() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(bytes(3 << 20), identity="x"), FakeStore()
        await world.master(log)
        world.slave(copy)
        await world.until(lambda: copy.data == log.data)
        assert max(copy.appends) <= FILE_BYTES

    run(case)
