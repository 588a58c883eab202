"""Steps that tests of consumers share."""

import asyncio
from typing import Any

from rocketpy.client.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import FakeCluster, pass_time


async def until(condition: Any, limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await pass_time(0.05)


def fill(cluster: FakeCluster, count: int, **ext: Any) -> None:
    for n in range(count):
        cluster.put("t", b"%d" % n, queue_id=n % cluster.queues, **ext)


async def nothing(message: ReceivedMessage) -> None:
    pass


def of_topic(consumer: Any) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "t"]
