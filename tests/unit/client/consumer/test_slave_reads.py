"""Consumers read from a slave while the master is away, and from the master when it is back."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rocketpy.errors import ConnectError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.consumer.test_queue_locks import assert_in_order
from tests.unit.client.pair import MASTER, PULL, SLAVE, Pair
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import until

QUEUE = MessageQueue("t", "broker-a", 0)
LOCK, QUERY_OFFSET = 41, 14
FAST = {"route_refresh_interval": 1.0, "persist_interval": 1.0}


def with_pair(scenario: Callable[[Pair], Coroutine[Any, Any, None]]) -> None:
    async def main(cluster: Cluster) -> None:
        await scenario(Pair(cluster))

    run_sim(main, brokers=2, queues=1, topics=("t", "u"))


class Received:
    """Handler that notes the offsets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    async def __call__(self, message: Any) -> None:
        self.offsets.append(message.offset)


def consumer_of(kind: str, client: Any, received: Received, directory: Any) -> Any:
    options: dict[str, Any] = {"start": "earliest", "handler": received, "group": "c"}
    if kind == "broadcast":
        options |= {"broadcast": True, "offset_dir": str(directory)}
    if kind == "ordered":
        options["ordered"] = True
    if kind == "by key":
        options["order_by_key"] = True
    return client.consumer("t", **options)


KINDS = ["group", "broadcast", "ordered", "by key"]


@pytest.mark.parametrize("kind", KINDS)
def test_consumer_without_master_reads_its_slave_and_returns_to_the_master(
    kind: str, tmp_path: Any
) -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(3)
        async with pair.cluster.client(**FAST) as client:
            async with consumer_of(kind, client, received, tmp_path):
                await until(lambda: len(received.offsets) == 3)
                assert not pair.pulls(SLAVE)
                pair.put(2)
                pair.lose_master()
                await until(lambda: len(received.offsets) == 5, 60)
                pair.cluster.put("t", b"x", broker="broker-b")
                await until(lambda: len(received.offsets) == 6, 60)
                pair.cluster.put("t", b"x")
                pair.bring_master_back()
                await pass_time(20)
                count = len(pair.pulls(SLAVE))
                pair.put(1)
                await until(lambda: len(received.offsets) == 7, 60)
                await pass_time(30)
                assert len(pair.pulls(SLAVE)) == count, "it has returned to the master"
        assert received.offsets == list(range(7)), "in order, each once"

    with_pair(scenario)


def test_pull_consumer_without_master_reads_and_asks_the_slave() -> None:
    async def scenario(pair: Pair) -> None:
        pair.put(4)
        pair.lose_master()
        async with pair.cluster.client(**FAST) as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                got = [await consumer.getone(timeout=30) for _ in range(4)]
                assert [each.offset for each in got if each is not None] == [0, 1, 2, 3]
                await consumer.commit()
                assert await consumer.committed(QUEUE) == 4
            assert await client.begin_offsets("t") == {QUEUE: 0}
            assert await client.end_offsets("t") == {QUEUE: 4}
            read = [m.offset async for m in client.read("t", until="latest")]
            assert read == [0, 1, 2, 3]
        assert pair.cluster.offsets["p", "broker-b", "t", 0] == 4

    with_pair(scenario)


def test_consumer_started_without_master_continues_at_the_offset_of_the_slave() -> None:
    async def scenario(pair: Pair) -> None:
        pair.put(4)
        pair.cluster.offsets["c", "broker-b", "t", 0] = 2
        pair.lose_master()
        received = Received()
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", handler=received):
                await until(lambda: len(received.offsets) == 2)
        assert received.offsets == [2, 3]

    with_pair(scenario)


def test_offsets_committed_at_the_slave_are_committed_at_the_returned_master() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(3)
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received):
                await until(lambda: len(received.offsets) == 3)
                pair.lose_master()
                pair.cluster.put("t", b"x", broker="broker-b")
                await until(lambda: len(received.offsets) == 4, 60)
                await pass_time(3)
                assert pair.cluster.offsets["c", "broker-b", "t", 0] == 4
                pair.cluster.put("t", b"x")
                pair.cluster.offsets["c", "broker-a", "t", 0] = 1  # what was on its disk
                pair.bring_master_back()
                await pass_time(5)
                assert pair.cluster.offsets["c", "broker-a", "t", 0] == 4

    with_pair(scenario)


def test_slave_that_refuses_reads_is_asked_with_growing_pauses() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(1)
        pair.is_readable = False
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received) as c:
                await until(lambda: len(received.offsets) == 1)
                pair.lose_master()
                await pass_time(10)
                before = len(pair.pulls(SLAVE))
                await pass_time(100)
                assert 15 <= len(pair.pulls(SLAVE)) - before <= 25
                assert "scripted" in str(c.health().failures), "health shows the refusal"
                pair.bring_master_back()
                pair.put(1)
                await until(lambda: len(received.offsets) == 2, 10)
                assert not c.health().failures

    with_pair(scenario)


def test_slave_that_its_master_suggests_and_that_refuses_is_avoided() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.is_readable = False
        pair.suggested_id = 1
        pair.put(30)
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received):
                await until(lambda: len(received.offsets) == 30, 10)
        assert len(pair.pulls(SLAVE)) == 1

    with_pair(scenario)


def test_suggested_slave_is_read_until_it_suggests_the_master() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.suggested_id = 1
        pair.put(10)
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received):
                await until(lambda: len(received.offsets) == 10, 10)
        assert received.offsets == list(range(10))
        assert len(pair.pulls(MASTER)) >= 5 <= len(pair.pulls(SLAVE))

    with_pair(scenario)


def test_lagging_slave_is_waited_for_without_a_busy_loop_and_moves_no_offset() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(2)
        pair.put(3, on_slave=False)
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received):
                await until(lambda: len(received.offsets) == 5)
                pair.lose_master()
                await pass_time(10)
                before = len(pair.pulls(SLAVE))
                await pass_time(60)
                assert len(pair.pulls(SLAVE)) - before <= 65
                for _ in range(4):
                    pair.cluster.put("t", b"x", broker="broker-b")
                await until(lambda: len(received.offsets) == 6)
        assert received.offsets == [0, 1, 2, 3, 4, 5]

    with_pair(scenario)


@pytest.mark.parametrize("limits", [(0, 2), (7, 9)])
def test_limits_of_a_slave_move_no_offset(limits: tuple[int, int]) -> None:
    """A slave of Apache may begin later than its master, and any slave may end earlier."""

    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(5)
        low, high = limits

        def refuse(address: str, request: RemotingCommand) -> Any:
            if address == MASTER or request.ext_fields["topic"] != "t":
                return None
            fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(high)}
            fields |= {"minOffset": str(low), "maxOffset": str(high)}
            return make_response(request, 21, ext_fields=fields)

        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received) as c:
                await until(lambda: len(received.offsets) == 5)
                pair.cluster.always[PULL] = refuse
                pair.lose_master()
                await pass_time(30)
                assert f"it has offsets {low}..{high}" in str(c.health().failures)
                pair.put(1)
                pair.bring_master_back()
                await until(lambda: len(received.offsets) == 6)
        assert received.offsets == [0, 1, 2, 3, 4, 5]

    with_pair(scenario)


def test_topic_that_a_slave_does_not_have_yet_is_waited_for() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(2)

        def unknown(address: str, request: RemotingCommand) -> Any:
            return 17 if address == SLAVE else None

        pair.lose_master()
        pair.cluster.always[PULL] = unknown
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received) as c:
                await pass_time(10)
                assert "waiting for the slave or its master" in str(c.health().failures)
                pair.bring_master_back()
                await until(lambda: len(received.offsets) == 2)

    with_pair(scenario)


def test_unreachable_master_in_the_route_is_replaced_by_its_slave() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(2)
        async with pair.cluster.client(**FAST) as client:
            async with client.consumer("t", group="c", start="earliest", handler=received):
                await until(lambda: len(received.offsets) == 2)
                pair.cluster.down.add(MASTER)  # the name server does not know it yet
                pair.put(3)
                await until(lambda: len(received.offsets) == 5, 30)
                pair.cluster.down.discard(MASTER)
                await pass_time(70)
                count = len(pair.pulls(SLAVE))
                pair.put(1)
                await until(lambda: len(received.offsets) == 6, 30)
                await pass_time(40)
                assert len(pair.pulls(SLAVE)) == count
        assert received.offsets == list(range(6))

    with_pair(scenario)


def test_read_of_a_lost_master_that_is_still_in_the_route_begins_at_its_slave() -> None:
    async def scenario(pair: Pair) -> None:
        pair.put(3)
        async with pair.cluster.client(**FAST) as client:
            pair.cluster.down.add(MASTER)  # the name server does not know it yet
            found = [each.offset async for each in client.read("t", until="latest")]
            assert found == [0, 1, 2]
            pair.cluster.down.add(SLAVE)
            with pytest.raises(ConnectError):
                await client.end_offsets("t")

    with_pair(scenario)


# ---- order


def test_ordered_consumer_locks_at_both_and_delivers_after_the_returned_master_granted() -> None:
    async def scenario(pair: Pair) -> None:
        cluster, received = pair.cluster, Received()
        pair.put(2)
        async with cluster.client(**FAST) as client:
            async with consumer_of("ordered", client, received, None):
                await until(lambda: len(received.offsets) == 2)
                assert {at for at, request in cluster.requests if request.code == LOCK} == {
                    MASTER,
                    SLAVE,
                }
                pair.lose_master()
                pair.cluster.put("t", b"x", broker="broker-b")
                await until(lambda: len(received.offsets) == 3, 60)
                cluster.world.brokers[0].broker.parts.locks.unlock(
                    "c", [("t", 0)], cluster.members("c")[0]
                )
                # The master is back, and does not answer to locks yet.
                cluster.always[LOCK] = lambda at, _: "lost" if at == MASTER else None
                pair.cluster.put("t", b"x")
                pair.bring_master_back()
                await pass_time(3)
                pair.put(2)
                await pass_time(15)
                assert len(received.offsets) == 3, "not without the lock of the master"
                del cluster.always[LOCK]
                await until(lambda: len(received.offsets) == 5, 30)
        assert received.offsets == list(range(5))
        assert all(len(each.broker.parts.locks) == 0 for each in cluster.world.brokers)

    with_pair(scenario)


def test_ordered_consumer_does_not_rely_on_locks_that_a_restarted_slave_forgot() -> None:
    async def scenario(pair: Pair) -> None:
        cluster, received = pair.cluster, Received()
        pair.put(2)
        async with cluster.client(**FAST) as client:
            async with consumer_of("ordered", client, received, None):
                await until(lambda: len(received.offsets) == 2)
                network, slave = cluster.world.network, SLAVE.partition(":")[0]
                for connection in list(network.connections):
                    if slave in {end.machine.name for end in connection.ends}:
                        network.cut(connection)
                await pass_time(3)
                # Another member may get the lock of the slave first.
                cluster.always[LOCK] = lambda at, _: "lost" if at == SLAVE else None
                pair.lose_master()
                pair.cluster.put("t", b"x", broker="broker-b")
                await pass_time(20)
                assert len(received.offsets) == 2, "not without a lock"
                del cluster.always[LOCK]
                await until(lambda: len(received.offsets) == 3, 60)
        assert received.offsets == [0, 1, 2]

    with_pair(scenario)


def test_members_whose_routes_differ_never_deliver_a_queue_together() -> None:
    async def scenario(pair: Pair) -> None:
        cluster = pair.cluster
        done: list[tuple[str, int]] = []
        busy: set[str] = set()
        pair.put(20)
        pair.lose_master()

        def consumer(client: Any, name: str) -> Any:
            async def handler(message: Any) -> None:
                assert not busy, "the other member handles a message of the queue"
                busy.add(name)
                await pass_time(3)
                busy.discard(name)
                done.append((name, message.offset))

            return client.consumer(
                "t", group="c", start="earliest", ordered=True, handler=handler, start_timeout=0
            )

        slow = {**FAST, "route_refresh_interval": 600.0}
        async with cluster.client(**slow) as one, cluster.client(**FAST) as two:
            async with consumer(one, "one"):
                await until(lambda: len(done) == 2)
                # Only the second member has the master in its route; that does not know the first.
                pair.bring_master_back()
                async with consumer(two, "two"):
                    await pass_time(10)
                    assert len(done) >= 4
                    await until(lambda: len({offset for _, offset in done}) == 20, 600)
        assert_in_order([offset for _, offset in done])

    with_pair(scenario)


def test_restart_of_a_slave_does_not_end_the_locks_of_its_master() -> None:
    async def scenario(pair: Pair) -> None:
        cluster, received = pair.cluster, Received()
        pair.put(2)
        async with cluster.client(**FAST) as client:
            async with client.consumer(
                "t", group="c", start="earliest", ordered=True, handler=received
            ):
                await until(lambda: len(received.offsets) == 2)
                cluster.always[LOCK] = lambda at, r: (
                    make_response(r, body=b'{"lockOKMQSet":[]}') if at == SLAVE else None
                )
                queries = len(cluster.of_code(QUERY_OFFSET))
                await pass_time(60)
                pair.put(1)
                await until(lambda: len(received.offsets) == 3)
                assert len(cluster.of_code(QUERY_OFFSET)) == queries, "it was not acquired again"

    with_pair(scenario)


# ---- pop


def test_pop_consumer_without_master_says_so_and_waits() -> None:
    async def scenario(pair: Pair) -> None:
        cluster, received = pair.cluster, Received()
        pair.put(2)
        async with cluster.client(**FAST) as client:
            async with client.pop_consumer("t", group="c", start="earliest", handler=received) as c:
                await until(lambda: len(received.offsets) == 2)
                pair.lose_master()
                await pass_time(30)
                before = len(cluster.requests)
                await pass_time(60)
                assert len(cluster.requests) - before < 300
                assert "pop reads from masters only" in str(c.health().failures)
                assert not [at for at, r in cluster.requests if at == SLAVE and r.code == 200050]
                pair.bring_master_back()
                pair.put(1)
                await until(lambda: len(received.offsets) == 3, 60)

    with_pair(scenario)


def test_pop_consumer_started_without_master_begins_when_it_is_back() -> None:
    async def scenario(pair: Pair) -> None:
        received = Received()
        pair.put(2)
        pair.lose_master()
        async with pair.cluster.client(**FAST) as client:
            options: dict[str, Any] = {"start": "earliest", "start_timeout": 1}
            async with client.pop_consumer("t", group="c", handler=received, **options) as c:
                await pass_time(5)
                assert "no master of broker-a is registered now" in str(c.health().failures)
                pair.bring_master_back()
                await until(lambda: len(received.offsets) == 2, 60)

    with_pair(scenario)
