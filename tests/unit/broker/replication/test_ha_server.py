"""HA port of a master: bounds of connections, publication of progress, refusal of sends."""

import asyncio

import pytest

from rocketpy.broker.replication.acknowledgements import NOT_ENOUGH
from rocketpy.errors import StartError
from rocketpy.proto.replication.pair_frames import Refusal, Refuse
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import MASTER, SLAVE, FakeStore, World, is_streaming, run


def test_port_that_is_taken_is_an_error() -> None:
    async def case(world: World) -> None:
        await world.master(FakeStore())
        with pytest.raises(StartError):
            await world.master(FakeStore())

    run(case)


def test_flood_of_strangers_does_not_keep_slaves_out() -> None:
    async def case(world: World) -> None:
        log = FakeStore(b"one", identity="x")
        server = await world.master(log)
        strangers = [await world.connect(f"10.1.0.{number}") for number in range(40)]
        await pass_time(0.1)
        assert sum(each.is_open for each in strangers) <= 16
        client = world.slave(FakeStore())
        await world.until(lambda: is_streaming(client), limit_s=2)
        assert len(server.connections) <= 17

    run(case)


def test_flood_from_many_addresses_spares_slave_that_was_served_before() -> None:
    async def case(world: World) -> None:
        server = await world.master(FakeStore(b"one", identity="x"))
        client = world.slave(FakeStore())
        await world.until(lambda: is_streaming(client))
        await client.stop()
        await pass_time(0.1)
        again = await world.connect(SLAVE)
        for number in range(100):
            await world.connect(f"10.1.0.{number}")
        await pass_time(0.1)
        assert again.is_open
        assert len(server.connections) <= 16

    run(case)


def test_full_port_closes_oldest_of_address_with_most_connections() -> None:
    async def case(world: World) -> None:
        await world.master(FakeStore(identity="x"))
        first = await world.connect("10.1.0.1")
        many = [await world.connect("10.1.0.2") for _ in range(15)]
        listed = await world.connect("10.1.0.3")
        await pass_time(0.1)
        assert [first.is_open, listed.is_open] == [True, True]
        assert [each.is_open for each in many] == [False, *[True] * 14]

    run(case)


def test_full_port_spares_listed_address() -> None:
    async def case(world: World) -> None:
        await world.master(FakeStore(identity="x"), ha_allowed_peers="10.1.0.1")
        listed = [await world.connect("10.1.0.1") for _ in range(5)]
        others = [await world.connect(f"10.2.0.{number}") for number in range(30)]
        await pass_time(0.1)
        assert all(each.is_open for each in listed)
        assert sum(each.is_open for each in others) == 11

    run(case)


def test_connection_cancelled_while_it_gets_its_transport_is_forgotten() -> None:
    async def case(world: World) -> None:
        server = await world.master(FakeStore(identity="x"))
        assert server._admission.admit("10.1.0.1")
        connection = server.new_connection("10.1.0.1")

        async def opening() -> None:
            connection.is_attached = True  # its transport is closed without a report
            await pass_time(9)

        task = server.open(connection, opening())
        await pass_time(0.1)
        task.cancel()
        await pass_time(0.1)
        assert server.connections == []
        assert server._admission.count == 0

    run(case)


def test_connections_of_one_moment_are_bounded() -> None:
    async def case(world: World) -> None:
        server = await world.master(FakeStore(identity="x"))
        made = [world.connect(f"10.1.0.{number}") for number in range(60)]
        await asyncio.gather(*made, return_exceptions=True)
        await pass_time(0.1)
        assert len(server.connections) == 16

    run(case)


def test_one_address_gets_a_bounded_number_of_connections() -> None:
    async def case(world: World) -> None:
        server = await world.master(FakeStore(identity="x"))
        refused = 0
        for _ in range(20):
            try:
                await world.connect("10.1.0.1")
            except ConnectionRefusedError:
                refused += 1
        assert refused == 4
        assert len(server.connections) == 16
        await pass_time(6)
        assert server.connections == []
        await world.connect("10.1.0.1")

    run(case)


def test_messages_are_released_after_the_timeout_without_slaves() -> None:
    async def case(world: World) -> None:
        log = FakeStore(identity="x")
        await world.master(log)
        log.put(b"one")
        await pass_time(2.9)
        assert log.replicas.released == 0
        await pass_time(0.5)
        assert (log.replicas.released, log.replicas.confirmed) == (3, 0)

    run(case)


def test_async_master_sends_within_a_poll_and_requires_nothing() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        await world.master(log, waits=False)
        client = world.slave(copy)
        await world.until(lambda: is_streaming(client))
        assert not log.replicas.is_required
        log.data += b"one"  # no sender waits, so nothing wakes the port
        await pass_time(0.02)
        assert copy.data == b"one"

    run(case)


def test_send_refusal_follows_the_slaves() -> None:
    async def case(world: World) -> None:
        log = FakeStore(identity="x")
        changes: list[str | None] = []
        server = await world.master(log, min_in_sync_replicas=2)
        server.on_refusal = changes.append
        assert server.send_refusal == NOT_ENOUGH
        client = world.slave(FakeStore())
        await world.until(lambda: server.send_refusal is None)
        await client.stop()
        await world.until(lambda: server.send_refusal is not None)
        assert changes == [None, NOT_ENOUGH]

    run(case)


def test_auto_mode_waits_only_while_a_slave_is_in_sync() -> None:
    async def case(world: World) -> None:
        log = FakeStore(identity="x")
        await world.master(log, enable_auto_in_sync_replicas=True)
        assert not log.replicas.is_required
        client = world.slave(FakeStore())
        await world.until(lambda: log.replicas.is_required)
        await client.stop()
        await world.until(lambda: not log.replicas.is_required)

    run(case)


def test_two_slaves_are_both_served() -> None:
    async def case(world: World) -> None:
        log, one, other = FakeStore(identity="x"), FakeStore(), FakeStore()
        await world.master(log, in_sync_replicas=3)
        world.slave(one)
        await pass_time(1)
        end = log.put(b"data")
        await pass_time(1)
        assert log.replicas.confirmed < end
        world.slave(other, broker_id=2, host="10.0.0.3")
        await world.until(lambda: log.replicas.confirmed == end)
        assert one.data == other.data == log.data

    run(case)


def test_refusals_are_bounded_and_replaced() -> None:
    async def case(world: World) -> None:
        server = await world.master(FakeStore(identity="x"))
        for number in range(200):
            connection = server.new_connection(f"10.2.0.{number % 100}")
            refusal = Refuse(code=Refusal.BEYOND_END, offset=number, text="beyond")
            server.refused(connection, refusal)
            server.connections.remove(connection)
        assert len(server.refusals) == 64

    run(case)


def test_stop_waits_until_slaves_have_the_whole_log() -> None:
    async def case(world: World) -> None:
        log, copy = FakeStore(identity="x"), FakeStore()
        server = await world.master(log)
        client = world.slave(copy)
        await world.until(lambda: is_streaming(client))
        log.data += b"the end"  # as a service that stops stores it: nothing wakes the port
        await server.stop()
        assert copy.data == b"the end"

    run(case)


def test_stop_waits_briefly_for_a_slave_that_does_not_answer() -> None:
    async def case(world: World) -> None:
        log = FakeStore(identity="x")
        server = await world.master(log)
        client = world.slave(FakeStore())
        await world.until(lambda: is_streaming(client))
        world.network.partition([MASTER], [SLAVE])
        log.data += b"the end"
        began_s = world.loop.time()
        await server.stop()
        assert world.loop.time() - began_s == pytest.approx(3, abs=0.1)

    run(case)


def test_stop_closes_connections_and_port() -> None:
    async def case(world: World) -> None:
        log = FakeStore(b"one", identity="x")
        server = await world.master(log)
        client = world.slave(FakeStore())
        await world.until(lambda: is_streaming(client))
        await server.stop()
        await pass_time(0.1)
        assert server.connections == []
        assert not is_streaming(client)
        await server.stop()
        with pytest.raises(ConnectionRefusedError):
            await world.connect(SLAVE)

    run(case)
