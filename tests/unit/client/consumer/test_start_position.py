"""Start of a group: stored offset, configured position, never past a message of its retry topic."""

from typing import Any

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until


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
