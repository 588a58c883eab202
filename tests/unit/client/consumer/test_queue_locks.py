"""Locks of an ordered consumer: renewed, lapsed, given back; and never two members in one queue."""

import asyncio
from collections import defaultdict
from typing import Any

from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.consumer.queue_locks import QueueLockKeeper
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, of_topic, until

LOCK, UNLOCK = 41, 42
QUEUE = MessageQueue("t", "broker-a", 0)


class Kit:
    """A keeper of one client whose group the broker knows."""

    def __init__(self, cluster: Cluster, client: Any) -> None:
        self.cluster = cluster
        self.lapsed = 0
        self.queues: dict[MessageQueue, ProcessQueue] = {}
        self.keeper = QueueLockKeeper(client._instance, "c", self.queues, self._lapsed)

    def _lapsed(self) -> None:
        self.lapsed += 1

    async def take(self) -> bool:
        self.queues[QUEUE] = ProcessQueue(QUEUE, Limits())
        return await self.keeper.take(QUEUE)


def with_keeper(scenario: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            # A member is who locks; this one never reads, its keeper is the test's.
            async with client.consumer("u", group="c", handler=print):
                await pass_time(3)
                assert client._instance is not None
                await client._instance.routes.refresh("t")
                await scenario(cluster, Kit(cluster, client))

    run_sim(main, queues=1, topics=("t", "u"))


def test_lock_counts_for_half_a_minute_after_it_was_asked_for() -> None:
    async def scenario(cluster: Cluster, kit: Kit) -> None:
        assert not kit.keeper.holds(QUEUE)
        assert await kit.take()
        await pass_time(29)
        assert kit.keeper.holds(QUEUE)
        await kit.keeper.renew()
        await pass_time(29)
        assert kit.keeper.holds(QUEUE)
        await pass_time(2)
        assert not kit.keeper.holds(QUEUE)
        assert not kit.lapsed

    with_keeper(scenario)


def test_renewal_after_the_lock_lapsed_has_its_queue_begin_afresh() -> None:
    async def scenario(cluster: Cluster, kit: Kit) -> None:
        assert await kit.take()
        await pass_time(31)
        await kit.keeper.renew()
        assert kit.queues[QUEUE].closing, "somebody else may have had it"
        assert kit.lapsed == 1
        assert not kit.keeper.holds(QUEUE)

    with_keeper(scenario)


def test_lock_of_a_broker_that_disconnected_counts_from_its_renewal_on() -> None:
    async def scenario(cluster: Cluster, kit: Kit) -> None:
        assert await kit.take()
        network, broker = cluster.world.network, BROKER_A.partition(":")[0]
        for connection in list(network.connections):
            client, server = (end.machine.name for end in connection.ends)
            if server == broker and client != broker:
                network.cut(connection)
        await pass_time(0.1)
        assert not kit.keeper.holds(QUEUE), "a restarted broker may grant it to another member"
        assert kit.keeper.follow_routes(), "a renewal is needed"
        await kit.keeper.renew()
        assert kit.keeper.holds(QUEUE)
        assert not kit.queues[QUEUE].closing
        await kit.keeper.give_back([QUEUE])
        assert len(cluster.world.brokers[0].broker.parts.locks) == 0

    with_keeper(scenario)


def test_lock_of_another_member_is_refused() -> None:
    async def scenario(cluster: Cluster, kit: Kit) -> None:
        assert await kit.take()
        locks = cluster.world.brokers[0].broker.parts.locks
        (client_id,) = cluster.members("c")
        locks.unlock("c", [("t", 0)], client_id)
        assert locks.lock("c", "t", 0, "another", cluster.clock.monotonic_ms())
        assert not await kit.take()
        await kit.keeper.renew()
        assert kit.queues[QUEUE].closing
        await kit.keeper.give_back([QUEUE])
        assert not cluster.of_code(UNLOCK), "it is not ours to give back"

    with_keeper(scenario)


def test_released_lock_is_free_at_once_and_a_failed_release_is_ignored() -> None:
    async def scenario(cluster: Cluster, kit: Kit) -> None:
        locks = cluster.world.brokers[0].broker.parts.locks
        assert await kit.take()
        assert len(locks) == 1
        await kit.keeper.give_back([QUEUE])
        assert len(locks) == 0
        assert await kit.take()
        cluster.script[UNLOCK] = ["lost"]
        await kit.keeper.give_back([QUEUE])
        assert not kit.keeper.holds(QUEUE)

    with_keeper(scenario)


class Members:
    """Two ordered members whose handlers write down what they do; overlaps are what must not be."""

    def __init__(self, cluster: Cluster, takes_s: float = 0.2) -> None:
        self.cluster = cluster
        self.takes_s = takes_s
        self.busy: set[MessageQueue] = set()
        self.overlaps = 0
        self.offsets: dict[MessageQueue, list[int]] = defaultdict(list)
        self.tries = 0

    async def handler(self, message: ReceivedMessage) -> None:
        if message.queue in self.busy:
            self.overlaps += 1
        self.busy.add(message.queue)
        try:
            await pass_time(self.takes_s)
        finally:
            self.busy.discard(message.queue)
        self.tries += 1
        if self.tries % 7 == 0:
            raise ValueError("no")
        self.offsets[message.queue].append(message.offset)

    def consumer(self, client: Any, **options: Any) -> Any:
        return client.consumer(
            "t", group="c", start="earliest", ordered=True, handler=self.handler,
            ordered_retry_pause=0.1, **options,
        )  # fmt: skip

    @property
    def done(self) -> int:
        return sum(len(set(offsets)) for offsets in self.offsets.values())


def assert_in_order(offsets: list[int]) -> None:
    """A change of members may repeat the last messages, and leaves none out."""
    seen = -1
    for offset in offsets:
        assert offset <= seen + 1, offsets
        seen = max(seen, offset)


def test_members_come_and_go_and_no_queue_has_two_handlers() -> None:
    async def main(cluster: Cluster) -> None:
        members = Members(cluster)
        fill(cluster, 80)
        async with cluster.client() as one, cluster.client() as two:
            first = members.consumer(one)
            await first.start()
            await until(lambda: len(of_topic(first)) == 4)
            await pass_time(2)
            async with members.consumer(two) as second:
                await until(lambda: len(of_topic(first)) == len(of_topic(second)) == 2)
                await pass_time(1)
            await until(lambda: len(of_topic(first)) == 4)
            await until(lambda: members.done == 80)
            await first.close()
        assert not members.overlaps
        for offsets in members.offsets.values():
            assert offsets == sorted(offsets), "nothing is even repeated when members part in peace"
        assert {cluster.offsets["c", "broker-a", "t", n] for n in range(4)} == {20}
        assert len(cluster.world.brokers[0].broker.parts.locks) == 0

    run_sim(main)


def test_running_handler_keeps_the_lock_of_its_queue() -> None:
    async def main(cluster: Cluster) -> None:
        members = Members(cluster, takes_s=40)
        fill(cluster, 4)
        async with cluster.client() as one, cluster.client() as two:
            async with members.consumer(one, stop_timeout=0) as first:
                await until(lambda: len(members.busy) == 4)
                async with members.consumer(two, stop_timeout=0) as second:
                    await pass_time(30)
                    assert not of_topic(second), "their handlers run"
                    await until(lambda: len(of_topic(second)) == 2)
                    assert len(of_topic(first)) == 2
                    await pass_time(5)
        assert not members.overlaps

    run_sim(main)


def test_member_that_is_cut_off_stops_before_another_begins() -> None:
    async def main(cluster: Cluster) -> None:
        members = Members(cluster)
        fill(cluster, 3_200)
        async with cluster.client() as one, cluster.client() as two:
            async with members.consumer(one) as first, members.consumer(two) as second:
                await until(lambda: len(of_topic(first)) == len(of_topic(second)) == 2)
                await pass_time(5)
                others = ["10.0.0.1", "10.0.0.11", "10.0.1.2"]
                cluster.world.network.partition(["10.0.1.1"], others)
                await until(lambda: len(of_topic(second)) == 4)
                cluster.world.network.heal()
                await until(lambda: members.done == 3_200)
        assert not members.overlaps
        for offsets in members.offsets.values():
            assert_in_order(offsets)

    run_sim(main)


def test_broadcasting_group_is_in_order_without_locks(tmp_path: Any) -> None:
    async def main(cluster: Cluster) -> None:
        members = Members(cluster)
        fill(cluster, 8)
        async with cluster.client() as client:
            async with members.consumer(client, broadcast=True, offset_dir=str(tmp_path)):
                await until(lambda: members.done == 8)
        assert not members.overlaps
        assert not cluster.of_code(LOCK)

    run_sim(main)


def test_one_key_is_in_order_while_members_change() -> None:
    async def main(cluster: Cluster) -> None:
        order: dict[str, list[int]] = defaultdict(list)
        busy: set[str] = set()
        beside = 0

        async def handler(message: ReceivedMessage) -> None:
            nonlocal beside
            key, _, number = message.body.decode().partition("-")
            assert key not in busy
            beside = max(beside, len(busy))
            busy.add(key)
            await pass_time(0.3)
            busy.discard(key)
            order[key].append(int(number))

        def consumer(client: Any) -> Any:
            return client.consumer(
                "t", group="c", start="earliest", order_by_key=True, handler=handler
            )

        async with cluster.client() as one, cluster.client() as two:
            producer = one.producer()
            for number in range(200):
                key = f"k{number % 10}"
                await producer.send("t", f"{key}-{number // 10}".encode(), order_key=key)
            first, second = consumer(one), consumer(two)
            await first.start()
            await pass_time(4)
            await second.start()
            await until(lambda: sum(len(set(done)) for done in order.values()) == 200)
            await asyncio.gather(first.close(), second.close())
        assert beside > 3, "keys of one queue are beside each other"
        for done in order.values():
            assert_in_order(done)

    run_sim(main)
