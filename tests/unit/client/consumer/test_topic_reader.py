"""Reading a topic without a group, up to an end."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketpy.errors import ClosedError, ConfigError, ConnectError, ExpressionError, NoRouteError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import PULL, fill

UPDATE_OFFSET = 15


async def bodies(client: Any, **options: Any) -> list[bytes]:
    async with asyncio.timeout(60):
        return [message.body async for message in client.read("t", **options)]


def test_topic_is_read_to_the_end_that_it_had_at_first() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 300)
        got: list[bytes] = []
        async with cluster.client() as client:
            began_ms = cluster.clock.monotonic_ms()
            async for message in client.read("t"):
                got.append(message.body)
                if len(got) < 100:
                    cluster.put("t", b"later", queue_id=message.queue.queue_id)
            assert cluster.clock.monotonic_ms() - began_ms < 1_000, "the end is not waited for"
            assert sorted(got) == sorted(b"%d" % number for number in range(300))
            assert not client._parts, "the reader is closed"
        assert cluster.of_code(UPDATE_OFFSET) == []
        assert not list(cluster.offsets.items())

    run_sim(main)


def test_positions_are_those_of_consumers() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        await pass_time(10)
        ms = cluster.clock.time_ms()
        await pass_time(10)
        cluster.put("t", b"new")
        async with cluster.client() as client:
            moments: list[Any] = [ms, ms / 1_000, datetime.fromtimestamp(ms / 1_000, UTC)]
            moments.append(datetime.fromtimestamp(ms / 1_000))  # noqa: DTZ006 - local time
            for moment in moments:
                assert await bodies(client, start=moment) == [b"new"]
                assert await bodies(client, until=moment) == [b"0", b"1"]
            assert await bodies(client, start="latest") == []
            assert await bodies(client, until="earliest") == []
            assert await bodies(client, start=ms, until=ms) == []
            assert await bodies(client, until="latest") == [b"0", b"1", b"new"]

    run_sim(main, queues=1)


def test_reading_without_an_end_waits_for_further_messages() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            asyncio.get_running_loop().call_later(20, cluster.put, "t", b"x")
            async for message in client.read("t", start="latest", until=None):
                assert message.body == b"x"
                break
            await pass_time(1)
            assert not client._parts, "a loop that is left closes its reader"

    run_sim(main)


@pytest.mark.parametrize("options", [{"filter": "b"}, {"sql": "TAGS = 'b'"}], ids=repr)
def test_messages_that_are_filtered_out_do_not_keep_the_end(options: Any) -> None:
    async def main(cluster: Cluster) -> None:
        for number in range(200):
            tag = "b" if number in {3, 70} else "a"
            cluster.put("t", b"%d" % number, properties={"TAGS": tag})
        async with cluster.client() as client:
            assert await bodies(client, **options) == [b"3", b"70"]

    run_sim(main, queues=1, properties={"enablePropertyFilter": "true"})


def test_reading_survives_failed_pulls_and_lost_offsets() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        cluster.script[PULL] = [ConnectError("gone"), "lost", 1, None]
        async with cluster.client() as client:
            assert len(await bodies(client)) == 40

    run_sim(main)


def test_reader_that_cannot_read_says_so() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        with pytest.raises(ClosedError, match="not started"):
            client.read("t")
        async with client:
            with pytest.raises(NoRouteError, match="no broker serves topic nosuch"):
                async for _ in client.read("nosuch"):
                    pass
            for options, key in (
                ({"start": "begin"}, "start"),
                ({"until": "never"}, "until"),
                ({"until": 1e300}, "until"),
            ):
                with pytest.raises(ConfigError) as caught:
                    client.read("t", **options)
                assert caught.value.key == key
            with pytest.raises(ExpressionError):
                client.read("t", sql="a >")
            assert not client._parts

    run_sim(main)


def test_offsets_of_a_topic_are_those_of_its_queues() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        async with cluster.client() as client:
            queues = [MessageQueue("t", "broker-a", number) for number in range(2)]
            assert await client.end_offsets("t") == {queues[0]: 2, queues[1]: 1}
            assert await client.begin_offsets("t") == {queues[0]: 0, queues[1]: 0}
            with pytest.raises(NoRouteError):
                await client.end_offsets("nosuch")

    run_sim(main, queues=2)


def test_topic_of_a_namespace_is_read_by_its_own_name() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("ns%t", b"x")
        async with cluster.client(namespace="ns") as client:
            assert await bodies(client) == [b"x"]
            assert sum((await client.end_offsets("t")).values()) == 1

    run_sim(main, topics=("ns%t",))


def test_topics_are_those_of_users_and_of_the_namespace() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client(namespace="ns") as other:
            async with client.consumer("t", group="c"):
                await pass_time(5)
            assert await client.topics() == ["ns%u", "t"]
            assert await other.topics() == ["u"]

    run_sim(main, topics=("t", "ns%u", "%DLQ%c"))
