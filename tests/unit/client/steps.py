"""Steps that tests of consumers share."""

import asyncio
from typing import Any

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import Cluster, pass_time

PULL = 11


async def until(condition: Any, limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await pass_time(0.05)


def fill(cluster: Cluster, count: int, **ext: Any) -> None:
    for n in range(count):
        cluster.put("t", b"%d" % n, queue_id=n % cluster.queues, **ext)


async def nothing(message: object) -> None:
    pass


def moved_to(cluster: Cluster, offset: int) -> None:
    """Have the next pull of topic t answered as one outside of the queue."""

    def step(_: str, request: RemotingCommand) -> RemotingCommand | None:
        if request.ext_fields["topic"] != "t":
            cluster.script[PULL].append(step)
            return None
        fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(offset)}
        fields |= {"minOffset": str(offset), "maxOffset": str(offset)}
        return make_response(request, 21, ext_fields=fields)

    cluster.script[PULL].append(step)


def of_topic(consumer: Any) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "t"]
