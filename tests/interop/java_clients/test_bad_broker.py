"""The official producer and two of our brokers as processes, of which one is killed under load.

When a broker dies between reading a request and answering it, its connection ends without a reset.
The client of 5.4.0 notices that (`NettyConnectManageHandler.channelInactive`) and sends the message
to the other broker. That of 4.9.8 has no such method: it waits for the answer until its timeout
is over and reports an error, whoever made the broker. Its one send in flight may fail so.
"""

import asyncio
import signal
import threading
from pathlib import Path

import pytest

import rocketpy
from rocketpy.proto.message_queue import MessageQueue
from tests.integration.client.daemons import Cluster
from tests.interop.java_clients.test_clusters import own_client
from tests.sampling import sample

BATCHES, SENDS = 20, 50


async def stored(namesrv: str, count: int) -> dict[tuple[MessageQueue, int], tuple[str, str]]:
    """Id and body of every message of the topic, at least `count` of them."""
    found: dict[tuple[MessageQueue, int], tuple[str, str]] = {}
    async with (
        rocketpy.connect(namesrv) as client,
        client.pull_consumer(group="reader", auto_commit=False) as consumer,
    ):
        await consumer.assign(await consumer.queues("Killed"))
        await consumer.seek_to_begin()
        async with asyncio.timeout(120):
            while len(found) < count:
                for message in await consumer.poll(max_messages=1000, timeout=1):
                    place = message.queue, message.offset
                    found[place] = message.id, message.body.decode()
    return found


@pytest.mark.parametrize("version", sample(["5.4.0", "4.9.8"], 2))
def test_no_send_is_lost_when_one_broker_is_killed(jdk: None, tmp_path: Path, version: str) -> None:
    with (
        Cluster(tmp_path, 2).running() as cluster,
        own_client(version, cluster.namesrv, tmp_path / "home") as java,
    ):
        producer = java.producer()
        sent: dict[tuple[MessageQueue, int], str] = {}
        errors = []
        for batch in range(BATCHES):
            if batch == BATCHES // 4:
                threading.Timer(0.02, cluster.signal, ["broker-b", signal.SIGKILL]).start()
            response = java.do("send", name=producer, topic="Killed", count=SENDS, body=f"{batch}")
            errors += response["errors"]
            for one in response["sent"]:
                assert one["status"] == "SEND_OK"
                sent[MessageQueue("Killed", one["broker"], one["queueId"]), one["queueOffset"]] = (
                    one["msgId"]
                )
        unanswered = 1 if version == "4.9.8" else 0
        assert [each["text"] for each in errors] in (
            [],
            ["sendDefaultImpl call timeout"] * unanswered,
        )
        assert len(sent) == BATCHES * SENDS - len(errors)
        assert {queue.broker_name for queue, _ in list(sent)[:SENDS]} == {"broker-a", "broker-b"}
        assert {queue.broker_name for queue, _ in list(sent)[-SENDS:]} == {"broker-a"}
        cluster.start("broker-b")
        found = asyncio.run(stored(cluster.namesrv, len(sent)))
        assert {place: found.get(place, ("", ""))[0] for place in sent} == sent
        every = {f"{batch}-{number}" for batch in range(BATCHES) for number in range(SENDS)}
        missing = every - {found[place][1] for place in sent}
        assert len(missing) == len(errors)
