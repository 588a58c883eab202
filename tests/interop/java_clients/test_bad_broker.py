"""The official producer and two of our brokers as processes, of which one is killed under load."""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

import rocketpy
from rocketpy.proto.message_queue import MessageQueue
from tests.integration.client.daemons import Cluster
from tests.interop.java_clients.test_clusters import own_client

BATCHES, SENDS = 20, 50


async def stored(namesrv: str, count: int) -> dict[tuple[MessageQueue, int], bytes]:
    """Every message of the topic, at least `count` of them."""
    found: dict[tuple[MessageQueue, int], bytes] = {}
    async with (
        rocketpy.connect(namesrv) as client,
        client.pull_consumer(group="reader", auto_commit=False) as consumer,
    ):
        await consumer.assign(await consumer.queues("Killed"))
        await consumer.seek_to_begin()
        async with asyncio.timeout(120):
            while len(found) < count:
                for message in await consumer.poll(max_messages=1000, timeout=1):
                    found[message.queue, message.offset] = message.body
    return found


@pytest.mark.parametrize("version", ["5.4.0", "4.9.8"])
def test_no_send_is_lost_when_one_broker_is_killed(jdk: None, tmp_path: Path, version: str) -> None:
    with (
        Cluster(tmp_path, 2).running() as cluster,
        own_client(version, cluster.namesrv, tmp_path / "home") as java,
    ):
        producer = java.producer()
        sent = {}
        for batch in range(BATCHES):
            if batch == BATCHES // 4:
                threading.Timer(0.02, cluster.signal, ["broker-b", signal.SIGKILL]).start()
            body = f"{batch}"
            for number, one in enumerate(java.send(producer, "Killed", count=SENDS, body=body)):
                place = MessageQueue("Killed", one["broker"], one["queueId"]), one["queueOffset"]
                sent[place] = f"{batch}-{number}".encode()
        assert len(sent) == BATCHES * SENDS
        assert {queue.broker_name for queue, _ in list(sent)[:SENDS]} == {"broker-a", "broker-b"}
        assert {queue.broker_name for queue, _ in list(sent)[-SENDS:]} == {"broker-a"}
        cluster.start("broker-b")
        found = asyncio.run(stored(cluster.namesrv, len(sent)))
        assert {place: found.get(place) for place in sent} == sent
