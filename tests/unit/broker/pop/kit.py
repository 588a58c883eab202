"""Pops at the level of the wire, against a real broker in simulated time."""

import asyncio
import base64
import random
from collections.abc import Coroutine
from typing import Any

from rocketpy.proto.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketpy.proto.pop import PopHandle, parse_queue_values, retry_mark
from rocketpy.proto.record.message import MessageExt, decode_messages
from rocketpy.proto.record.properties import PROPERTY_POP_CK
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.testing.sim_cluster import SimCluster, run_simulation


class PopResponse:
    """A response to a pop, taken apart as a client does."""

    def __init__(self, response: RemotingCommand, broker_name: str) -> None:
        self.code = response.code
        self.fields = response.ext_fields
        self.remark = response.remark
        self.messages = decode_messages(response.body) if response.body else []
        starts = parse_queue_values(self.fields.get("startOffsetInfo"))
        for message in self.messages:
            if PROPERTY_POP_CK in message.properties:
                continue
            message.properties[PROPERTY_POP_CK] = PopHandle(
                starts[retry_mark(message.topic), str(message.queue_id)][0],
                int(self.fields["popTime"]),
                int(self.fields["invisibleTime"]),
                int(self.fields["reviveQid"]),
                retry_mark(message.topic),
                broker_name,
                message.queue_id,
                message.queue_offset,
            ).text()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Popper:
    """A consumer that knows nothing but requests."""

    def __init__(self, cluster: SimCluster, group: str = "g", host: str = "10.0.9.1") -> None:
        self.cluster = cluster
        self.group = group
        self._remoting = RemotingClient(
            RemotingClientConfig(),
            clock=cluster.clock,
            rng=random.Random(1),
            network=cluster.network.host(host),
        )

    @property
    def now_ms(self) -> int:
        return self.cluster.clock.time_ms()

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> RemotingCommand:
        given = {name: str(value) for name, value in fields.items() if value is not None}
        request = make_request(code, given, body)
        return await self._remoting.invoke(self.cluster.brokers[0].address, request, 60_000)

    async def pop(self, **changes: Any) -> PopResponse:
        fields = {
            "consumerGroup": self.group,
            "topic": "T",
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 10_000,
            "pollTime": 0,
            "bornTime": self.now_ms,
            "initMode": 0,
            "order": "false",
        }
        response = await self.ask(200050, **{**fields, **changes})
        return PopResponse(response, self.cluster.brokers[0].name)

    async def ack(self, message: MessageExt, **changes: Any) -> RemotingCommand:
        return await self.ask(200051, **{**self._named(message), **changes})

    async def change(
        self, message: MessageExt, invisible_ms: int, **changes: Any
    ) -> RemotingCommand:
        fields = {**self._named(message), "invisibleTime": invisible_ms}
        return await self.ask(200053, **{**fields, **changes})

    async def ack_batch(self, messages: list[MessageExt]) -> RemotingCommand:
        acks = []
        for message in messages:
            parts = message.properties[PROPERTY_POP_CK].split(" ")
            bit = message.queue_offset - int(parts[0])
            acks.append(
                BatchAck(
                    self.group,
                    "T",
                    parts[4],
                    int(parts[0]),
                    int(parts[6]),
                    int(parts[3]),
                    int(parts[1]),
                    int(parts[2]),
                    base64.b64encode((1 << bit).to_bytes(bit // 8 + 1, "little")).decode(),
                )
            )
        body = BatchAckMessageRequestBody(self.cluster.brokers[0].name, acks)
        return await self.ask(200151, body.encode())

    def _named(self, message: MessageExt) -> dict[str, Any]:
        handle = message.properties[PROPERTY_POP_CK]
        parts = handle.split(" ")
        topics = {"0": "T", "1": f"%RETRY%{self.group}_T", "2": f"%RETRY%{self.group}+T"}
        return {
            "consumerGroup": self.group,
            "topic": topics[parts[4]],
            "queueId": parts[6],
            "offset": parts[7],
            "extraInfo": handle,
        }


async def after(seconds: float) -> None:
    """Let simulated time pass."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


async def send(cluster: SimCluster, count: int, first: int = 0, **options: Any) -> None:
    """Send messages `0`, `1`, ... to T."""
    async with cluster.client(group="p") as client:
        producer = client.producer()
        for number in range(first, first + count):
            await producer.send("T", b"%d" % number, **options)


def simulate(scenario: Any, *, queues: int = 2, **properties: str) -> Any:
    """Run `scenario(cluster, popper)` with a topic T."""

    async def main(cluster: SimCluster) -> Any:
        cluster.create_topic("T", queues)
        popper = Popper(cluster)
        coroutine: Coroutine[Any, Any, Any] = scenario(cluster, popper)
        return await coroutine

    return run_simulation(main, properties=properties)
