"""Requests of brokers to a client, thousands of them."""

import asyncio
import json

from rocketpy.client.cluster.broker_requests import MAX_DIRECT
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.wire.command import make_request
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import of_topic, until


def test_messages_that_are_consumed_at_brokers_words_are_bounded() -> None:
    async def main(cluster: Cluster) -> None:
        held = asyncio.Event()
        begun: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            begun.append(message.body)
            await held.wait()

        async with cluster.client() as client:
            (remoting,) = cluster.remotings
            async with client.consumer("t", group="c", handler=handler) as consumer:
                await until(lambda: of_topic(consumer))
                record = cluster.record("x", 0, cluster.put("x", b"direct"))
                for _ in range(1_000):
                    remoting.receive(make_request(309, {"consumerGroup": "c"}, record))
                await pass_time(1)
                assert len(begun) == MAX_DIRECT
                assert len(remoting.responses) == 1_000 - MAX_DIRECT
                assert {response.code for response in remoting.responses} == {2}
                held.set()
                await pass_time(1)
                remoting.receive(make_request(309, {"consumerGroup": "c"}, record))
                await pass_time(1)
                assert json.loads(remoting.responses[-1].body)["consumeResult"] == "CR_SUCCESS"

    run_sim(main, queues=1)
