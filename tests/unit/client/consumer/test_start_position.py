"""Start of a group: stored offset, configured position, never past a message of its retry topic."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.stats.page_cache_estimate import PageCacheEstimate
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import ConnectError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

GET_MIN_OFFSET = 31
KINDS: dict[str, dict[str, Any]] = {
    "push": {},
    "ordered": {"ordered": True},
    "by key": {"order_by_key": True},
    "broadcast": {"broadcast": True},
    "subscribe": {},
    "assign": {},
}


class Reader:
    """A consumer that writes down what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def handler(self, message: ReceivedMessage) -> None:
        self.got.append(message.body)

    def consumer(self, client: Any, **options: Any) -> Any:
        return client.consumer("t", group="c", handler=self.handler, **options)


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 3)])
def test_new_group_begins_where_it_asks_to_also_in_a_young_queue(start: str, first: int) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        reader = Reader()
        async with cluster.client() as client:
            async with reader.consumer(client, start=start):
                await pass_time(3)
                cluster.put("t", b"3")
                await until(lambda: b"3" in reader.got)
        assert reader.got == [b"%d" % n for n in range(first, 4)]

    run_sim(main, queues=1)


def test_new_group_begins_at_a_time() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        await pass_time(10)
        at_ms = cluster.clock.time_ms()
        await pass_time(10)
        cluster.put("t", b"3")
        reader = Reader()
        async with cluster.client() as client:
            async with reader.consumer(client, start=at_ms):
                await until(lambda: bool(reader.got))
        assert reader.got == [b"3"]

    run_sim(main, queues=1)


def test_group_that_died_young_still_begins_where_it_began() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        reader = Reader()
        async with cluster.client(persist_interval=3600) as client:
            await reader.consumer(client, start="latest").start()
            await pass_time(3)
            cluster.world.network.host("10.0.1.1").kill_process()
            cluster.world.network.partition(["10.0.1.1"], ["10.0.0.1", "10.0.0.11", "10.0.1.2"])
            cluster.put("t", b"3")
            async with cluster.client() as other:
                async with reader.consumer(other, start="latest"):
                    await until(lambda: bool(reader.got))
            cluster.world.network.heal()
        assert reader.got[0] == b"3", "it came after the group had begun"

    run_sim(main, queues=1)


def test_queues_that_come_later_begin_with_their_first_message() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        reader = Reader()
        async with cluster.client(route_refresh_interval=30) as client:
            async with reader.consumer(client, start="latest"):
                await pass_time(5)
                cluster.create_topic("t", 2)
                await pass_time(1)
                cluster.put("t", b"new", queue_id=1)
                await until(lambda: bool(reader.got))
        assert reader.got == [b"new"]

    run_sim(main, queues=1)


def test_topic_that_comes_later_begins_with_its_first_message() -> None:
    async def main(cluster: Cluster) -> None:
        reader = Reader()
        async with cluster.client() as client:
            async with reader.consumer(client, start="latest"):
                await pass_time(5)
                await client.producer().send("t", b"first")
                await until(lambda: bool(reader.got))
        assert reader.got == [b"first"]

    run_sim(main, topics=("u",))


@pytest.mark.parametrize("start", ["latest", 1])
def test_retries_are_never_skipped(start: Any) -> None:
    """A retry topic belongs to the group: what is in it before the first look must be read."""

    async def main(cluster: Cluster) -> None:
        cluster.put("%RETRY%c", b"failed before")
        reader = Reader()
        async with cluster.client() as client:
            async with reader.consumer(client, start=start):
                await until(lambda: bool(reader.got))
        assert reader.got == [b"failed before"]

    run_sim(main, queues=1, topics=("t", "%RETRY%c"))


async def receive(client: Any, kind: str, seconds: int, directory: Path) -> list[bytes]:
    """Be a member of the group for a while; return what it received."""
    reader = Reader()
    if kind in {"subscribe", "assign"}:
        async with client.pull_consumer(group="c") as consumer:
            if kind == "subscribe":
                await consumer.subscribe("t")
            else:
                await consumer.assign(await consumer.queues("t"))
            for _ in range(seconds):
                reader.got += [each.body for each in await consumer.poll(timeout=1)]
            await pass_time(1)
        return reader.got
    async with reader.consumer(client, offset_dir=str(directory), **KINDS[kind]):
        await pass_time(seconds)
    return reader.got


async def begin_group(cluster: Cluster, kind: str, directory: Path) -> None:
    """Have the group consume one message of queue 0, and leave."""
    async with cluster.client(instance_name="i") as client:
        member = asyncio.create_task(receive(client, kind, 10, directory))
        await pass_time(5)
        cluster.put("t", b"consumed")
        assert await member == [b"consumed"]


@pytest.mark.parametrize("kind", KINDS)
def test_queues_that_came_while_the_group_was_away_begin_with_their_first_message(
    kind: str, tmp_path: Path
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)  # before the group began
        await begin_group(cluster, kind, tmp_path)
        cluster.create_topic("t", 4)
        await pass_time(2)
        sent = [b"%d" % number for number in range(10, 18)]
        for number, body in enumerate(sent):
            cluster.put("t", body, queue_id=number % 4)
        async with cluster.client(instance_name="i") as client:
            assert sorted(await receive(client, kind, 10, tmp_path)) == sent

    run_sim(main, queues=2)


@pytest.mark.parametrize("kind", KINDS)
def test_queues_of_another_broker_begin_with_their_first_message(kind: str, tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.world.brokers[0].broker.parts.topics
        first.put(TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1))
        await pass_time(2)
        await begin_group(cluster, kind, tmp_path)
        cluster.create_topic("t", 1)
        await pass_time(2)
        cluster.put("t", b"elsewhere", broker="broker-b")
        async with cluster.client(instance_name="i") as client:
            assert await receive(client, kind, 10, tmp_path) == [b"elsewhere"]

    run_sim(main, brokers=2, topics=())


def test_queue_that_lost_its_first_messages_begins_with_the_oldest(tmp_path: Path) -> None:
    def second(_: str, request: RemotingCommand) -> RemotingCommand:
        return make_response(request, 0, ext_fields={"offset": "1"})

    async def main(cluster: Cluster) -> None:
        await begin_group(cluster, "push", tmp_path)
        cluster.create_topic("t", 2)
        await pass_time(2)
        for body in (b"deleted", b"oldest", b"newest"):
            cluster.put("t", body, queue_id=1)
        cluster.script[GET_MIN_OFFSET] = [second]
        async with cluster.client() as client:
            assert await receive(client, "push", 10, tmp_path) == [b"oldest", b"newest"]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", ["push", "ordered", "subscribe"])
def test_queue_is_not_begun_while_the_broker_with_the_offsets_does_not_answer(
    kind: str, tmp_path: Path
) -> None:
    async def main(cluster: Cluster) -> None:
        first = cluster.world.brokers[0].broker.parts.topics
        first.put(TopicConfig(topic_name="t", read_queue_nums=1, write_queue_nums=1))
        await pass_time(2)
        await begin_group(cluster, kind, tmp_path)
        cluster.create_topic("t", 1)
        await pass_time(2)
        cluster.put("t", b"elsewhere", broker="broker-b")
        cluster.down.add(BROKER_A)
        async with cluster.client() as client:
            member = asyncio.create_task(receive(client, kind, 60, tmp_path))
            await pass_time(20)
            cluster.down.clear()
            assert await member == [b"elsewhere"]

    run_sim(main, brokers=2, topics=())


def test_new_group_begins_where_it_joined_when_a_broker_answers_late(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"old", broker="broker-b")
        cluster.down.add(BROKER_A)
        async with cluster.client() as client:
            member = asyncio.create_task(receive(client, "push", 60, tmp_path))
            await pass_time(10)
            cluster.put("t", b"new", broker="broker-b")
            await pass_time(10)
            cluster.down.clear()
            assert await member == [b"new"]

    run_sim(main, brokers=2, queues=1)


def test_members_of_a_new_group_that_join_together_get_nothing_old(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        clients = [cluster.client() for _ in range(3)]
        for client in clients:
            await client.start()
        try:
            got = await asyncio.gather(
                *(receive(client, "push", 30, tmp_path) for client in clients)
            )
        finally:
            for client in clients:
                await client.close()
        assert got == [[], [], []]

    run_sim(main, queues=8)


@pytest.mark.parametrize("kind", KINDS)
def test_quiet_queue_of_a_group_stays_where_the_group_began(kind: str, tmp_path: Path) -> None:
    """Not all of a group's queues get messages: their old ones are still not the group's."""

    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        await begin_group(cluster, kind, tmp_path)
        async with cluster.client(instance_name="i") as client:
            assert await receive(client, kind, 10, tmp_path) == []

    run_sim(main, queues=4)


def test_start_whose_offset_lookup_fails_is_repeated(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await begin_group(cluster, "push", tmp_path)
        cluster.create_topic("t", 2)
        await pass_time(2)
        cluster.put("t", b"new", queue_id=1)
        cluster.script[14] = [ConnectError("gone")] * 4
        cluster.script[GET_MIN_OFFSET] = [ConnectError("gone")]
        async with cluster.client() as client:
            assert await receive(client, "push", 60, tmp_path) == [b"new"]

    run_sim(main, queues=1)


async def pop(client: Any, seconds: int) -> list[bytes]:
    reader = Reader()
    async with client.pop_consumer("t", group="c", handler=reader.handler):
        await pass_time(seconds)
    return reader.got


def test_queues_that_came_while_a_pop_group_was_away_begin_with_their_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Otherwise brokers begin a young queue with its first message for every group.
    monkeypatch.setattr(PageCacheEstimate, "is_in_memory", lambda *_: False)

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            member = asyncio.create_task(pop(client, 10))
            await pass_time(5)
            cluster.put("t", b"consumed")
            assert await member == [b"consumed"]
        cluster.create_topic("t", 4)
        await pass_time(2)
        sent = [b"%d" % number for number in range(10, 18)]
        for number, body in enumerate(sent):
            cluster.put("t", body, queue_id=number % 4)
        async with cluster.client() as client:
            assert sorted(await pop(client, 10)) == sent

    run_sim(main, queues=2)


def test_members_of_a_new_pop_group_that_join_together_get_nothing_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PageCacheEstimate, "is_in_memory", lambda *_: False)

    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        clients = [cluster.client() for _ in range(3)]
        for client in clients:
            await client.start()
        try:
            got = await asyncio.gather(*(pop(client, 30) for client in clients))
        finally:
            for client in clients:
                await client.close()
        lasts = {b"%d" % number for number in range(32, 40)}
        assert {body for part in got for body in part} <= lasts, "the last one of each queue"

    run_sim(main, queues=8)
