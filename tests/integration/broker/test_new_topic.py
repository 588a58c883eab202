"""Who made a topic may look for its route at once."""

import asyncio
from pathlib import Path

import pytest

import rocketpy
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.testing.cluster import LocalCluster


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"flushDiskType": "SYNC_FLUSH"},
        {"sendMessageThreadPoolNums": "2", "pullMessageThreadPoolNums": "2"},
        {"flushDiskType": "SYNC_FLUSH", "sendMessageThreadPoolNums": "2"},
    ],
    ids=["inline", "sync", "pools", "sync-pools"],
)
async def test_name_servers_know_a_new_topic_when_its_first_send_is_answered(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async with (
        LocalCluster(tmp_path, properties=properties) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
        client.pull_consumer(group="g") as consumer,
    ):
        producer = client.producer()
        for number in range(10):
            await producer.send(f"new{number}", b"x")
            assert len(await consumer.queues(f"new{number}")) == 4
            assert cluster.message_count(f"new{number}") == 1


@pytest.mark.parametrize("threads", ["0", "2"])
async def test_a_topic_is_deleted_and_made_again_while_it_is_sent_to(
    tmp_path: Path, threads: str
) -> None:
    """Whatever was acknowledged since the topic was last made is there; sending always goes on."""
    properties = {"sendMessageThreadPoolNums": threads}
    async with (
        LocalCluster(tmp_path, properties=properties) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
    ):
        cluster.create_topic("T", 1)
        cluster.create_topic("Other", 1)
        parts = cluster.brokers[0].parts
        producer = client.producer()
        other = 0
        for _ in range(10):
            sends = [asyncio.ensure_future(producer.send("T", b"x" * 6_000)) for _ in range(20)]
            await asyncio.sleep(0)
            parts.topics.delete("T")
            parts.store.delete_topics(["T"])
            await asyncio.gather(*sends, return_exceptions=True)
            assert "T" not in parts.store.topics() or parts.topics.get("T") is not None
            parts.topics.put(TopicConfig("T", 1, 1))
            await producer.send("T", b"after")
            assert parts.store.max_offset("T", 0) - max(0, parts.store.min_offset("T", 0)) >= 1
            await producer.send("Other", b"x")
            other += 1
        assert cluster.message_count("Other") == other
        assert parts.store.is_writable
