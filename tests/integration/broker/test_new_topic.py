"""Creation of topics: the route is available as soon as the request is answered."""

import asyncio
import threading
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
async def test_topic_is_deleted_and_made_again_while_it_is_sent_to(
    tmp_path: Path, threads: str
) -> None:
    """Messages acknowledged since the last creation are kept, and sends keep succeeding."""
    properties = {"sendMessageThreadPoolNums": threads}
    async with (
        LocalCluster(tmp_path, properties=properties) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
    ):
        cluster.create_topic("T", 1)
        cluster.create_topic("Other", 1)
        parts = cluster.brokers[0].parts
        producer = client.producer()
        await producer.send("T", b"before")  # from here on the route is known: one queue
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


class _SlowFile:
    """File of a table on a disk that blocks writes until the test releases them."""

    def __init__(self, file: object) -> None:
        self.file = file
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()

    def load(self) -> object:
        raise NotImplementedError

    def save(self, value: object) -> None:
        self.is_asked.set()
        assert self.goes_on.wait(10), "nobody else was served meanwhile"
        self.file.save(value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", ["0", "2"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_others_are_served_while_a_new_topic_comes_to_disk(
    tmp_path: Path, threads: str, flush: str
) -> None:
    properties = {"sendMessageThreadPoolNums": threads, "flushDiskType": flush}
    async with (
        LocalCluster(tmp_path, properties=properties) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
        rocketpy.connect(cluster.namesrv) as other,
    ):
        cluster.create_topic("there", 1)
        parts = cluster.brokers[0].parts
        await other.producer().send("there", b"before")
        slow = parts.topics._file = _SlowFile(parts.topics._file)
        producer = client.producer(timeout=30, retries=0)
        sends = [asyncio.ensure_future(producer.send(f"new{n % 3}", b"x")) for n in range(9)]
        assert await asyncio.to_thread(slow.is_asked.wait, 10)
        for _ in range(3):
            await other.producer().send("there", b"meanwhile")
        assert not any(send.done() for send in sends)
        slow.goes_on.set()
        await asyncio.gather(*sends)
        assert [cluster.message_count(f"new{n}") for n in range(3)] == [3, 3, 3]
        assert {"new0", "new1", "new2"} <= parts.topics.written.keys()
