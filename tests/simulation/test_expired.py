"""Consumed, popped and delayed messages when retention deletes their log."""

import asyncio
from collections import Counter
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.unit.broker.pop.kit import Popper, after, send, simulate

SETTINGS = {
    "fileReservedTime": "1",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "messageDelayLevel": "1s 1s 1s",
}


async def expire(cluster: SimCluster) -> int:
    """Let everything expire that was stored so far; where the log begins then."""
    store = cluster.brokers[0].broker.parts.store
    end = store.max_phy_offset
    async with cluster.client() as client:
        producer = client.producer(compress_over_bytes=0)
        cluster.create_topic("filler", 1)
        await asyncio.sleep(1)  # until it is registered: by the default topic there are more queues
        for _ in range(12):
            await producer.send("filler", bytes(30_000))
        await asyncio.sleep(3_700)
        for _ in range(30):
            await producer.send("filler", bytes(30_000))
            await asyncio.sleep(20)
    assert store.min_phy_offset >= end
    return store.min_phy_offset


def test_message_given_back_after_its_log_expired_is_retried_all_the_same() -> None:
    """The broker has it no more; the consumer does, and sends it to its retry topic."""

    async def scenario(cluster: SimCluster) -> Counter[bytes]:
        cluster.create_topic("t", 1)
        seen: Counter[bytes] = Counter()
        ready = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            seen[message.body] += 1
            if seen[message.body] == 1:
                await ready.wait()
                raise ValueError("not this time")

        async with cluster.client() as client:
            consumer = client.consumer(
                "t",
                group="g",
                handler=handle,
                start="earliest",
                consume_timeout=86400,
            )
            await consumer.start()
            for number in range(3):
                await client.producer().send("t", b"%d" % number)
            await asyncio.sleep(5)
            await expire(cluster)
            ready.set()
            await asyncio.sleep(120)
        return seen

    assert run_simulation(scenario, properties=SETTINGS) == {b"0": 2, b"1": 2, b"2": 2}


def test_ack_of_expired_message_is_rejected_without_stall() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> list[Any]:
        await send(cluster, 6)
        popped = (await popper.pop(invisibleTime=7_200_000)).messages
        assert len(popped) == 6
        ordered = (await popper.pop(order="true", consumerGroup="o")).messages
        await expire(cluster)
        codes = [
            (await popper.ack(popped[0])).code,
            (await popper.change(popped[1], 1_000)).code,
            (await popper.ack_batch(popped[2:4])).code,
        ]
        popper.group = "o"
        codes.append((await popper.ack(ordered[0])).code)
        await send(cluster, 2, first=6)
        found = [(await popper.pop(order="true")).bodies]
        popper.group = "g"
        found.append((await popper.pop()).bodies)
        await after(7_300)
        found.append((await popper.pop()).bodies)
        parts = cluster.brokers[0].broker.parts
        revive = [
            parts.store.max_offset("rmq_sys_REVIVE_LOG_DefaultCluster", each) for each in range(8)
        ]
        return [codes, found, sum(revive)]

    codes, found, revived = simulate(case, queues=1, **SETTINGS)
    assert codes == [208, 208, 0, 208]
    assert found == [[b"6", b"7"], [b"6", b"7"], [b"6", b"7"]]
    assert revived > 0
