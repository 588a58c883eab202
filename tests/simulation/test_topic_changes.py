"""A topic gets fewer queues, or is deleted, while messages wait for it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from rocketpy.client.client import Client
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.producer.producer import Producer
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.testing.sim_cluster import SimCluster, run_simulation

QUEUES: Final = 4
_WAYS: Final = ("level", "timer", "half")


async def _no_answer(_message: ReceivedMessage) -> TxState:
    raise AssertionError("it was decided at once")


async def _send(producer: Producer, number: int) -> list[bytes]:
    """Send one message each way, that comes after the topic has changed."""
    bodies = [f"{way}/{number}".encode() for way in _WAYS[:2]]
    await producer.send("t", bodies[0], delay_level=1)
    await producer.send("t", bodies[1], delay=3)
    return bodies


async def _consume(client: Client, seen: Counter[bytes], topic: str = "t") -> None:
    async def handle(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    await client.consumer(topic, group=f"g-{topic}", handler=handle, start="earliest").start()


def test_delayed_message_of_removed_queue_arrives_in_existing_queue() -> None:
    async def scenario(cluster: SimCluster) -> tuple[list[bytes], Counter[bytes], list[int]]:
        cluster.create_topic("t", QUEUES)
        seen: Counter[bytes] = Counter()
        async with cluster.client() as client:
            producer = client.producer(group="p", tx_checker=_no_answer)
            sent = []
            for number in range(QUEUES):
                sent += await _send(producer, number)
            async with asyncio.TaskGroup() as group:
                ready = asyncio.Event()

                async def transact(number: int) -> None:
                    body = f"half/{number}".encode()
                    sent.append(body)
                    async with producer.transaction("t", body):
                        await ready.wait()

                for number in range(QUEUES):
                    group.create_task(transact(number))
                await asyncio.sleep(0.5)
                cluster.create_topic("t", 1)
                ready.set()
            await _consume(client, seen)
            await asyncio.sleep(60)
        store = cluster.brokers[0].broker.parts.store
        return sent, seen, [store.max_offset("t", each) for each in range(QUEUES)]

    sent, seen, ends = run_simulation(scenario, properties={"messageDelayLevel": "3s"})
    assert len(sent) == 3 * QUEUES
    assert seen == Counter(sent)
    assert ends[0] == len(sent), "all of them in the queue that is left"


def test_retries_of_a_group_that_gets_more_retry_queues_are_read() -> None:
    """Its retry topic has as many as there were when it was made."""

    async def scenario(cluster: SimCluster) -> Counter[bytes]:
        cluster.create_topic("t", 1)
        groups = cluster.brokers[0].broker.parts.groups
        groups.put(SubscriptionGroupConfig("g"))
        seen: Counter[bytes] = Counter()
        async with cluster.client() as client:
            producer = client.producer()

            async def fail_once(message: ReceivedMessage) -> None:
                seen[message.body] += 1
                if seen[message.body] == 1:
                    raise ValueError("not this time")

            await client.consumer("t", group="g", handler=fail_once, start="earliest").start()
            await producer.send("t", b"first")
            await asyncio.sleep(60)
            groups.put(SubscriptionGroupConfig("g", retry_queue_nums=8))
            for number in range(8):
                await producer.send("t", b"%d" % number)
            await asyncio.sleep(120)
        return seen

    seen = run_simulation(scenario, properties={"messageDelayLevel": "1s 1s 1s"})
    assert len(seen) == 9
    assert set(seen.values()) == {2}


def test_messages_for_a_deleted_topic_hold_up_no_other() -> None:
    async def scenario(cluster: SimCluster) -> tuple[list[bytes], Counter[bytes]]:
        for topic in ("t", "u"):
            cluster.create_topic(topic, 2)
        seen: Counter[bytes] = Counter()
        async with cluster.client() as client:
            producer = client.producer(group="p", tx_checker=_no_answer)
            wanted = []
            for number in range(10):
                await _send(producer, number)
                wanted.append(b"other/%d" % number)
                await producer.send("u", wanted[-1], delay=3)
            async with producer.transaction("t", b"half") as transaction:
                parts = cluster.brokers[0].broker.parts
                parts.topics.delete("t")
                parts.store.delete_topics(["t"])
            assert not transaction.is_confirmed
            await _consume(client, seen, "u")
            await asyncio.sleep(60)
            assert parts.store.max_offset("t", 0) <= 0
        return wanted, seen

    wanted, seen = run_simulation(scenario, properties={"messageDelayLevel": "3s"})
    assert seen == Counter(wanted)


def _store_in(seen: list[bytes]) -> Callable[[ReceivedMessage], Awaitable[None]]:
    async def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    return handle


def _delete(cluster: SimCluster, topic: str) -> None:
    parts = cluster.brokers[0].broker.parts
    parts.topics.delete(topic)
    parts.offsets.remove_topic(topic)
    parts.store.delete_topics([topic])


@pytest.mark.parametrize("kind", ["push", "ordered", "broadcast"])
def test_topic_made_again_under_running_consumer_is_read_from_its_first_message(kind: str) -> None:
    async def scenario(cluster: SimCluster) -> list[bytes]:
        cluster.create_topic("t", 1)
        seen: list[bytes] = []

        async with cluster.client() as client:
            producer = client.producer()
            options: dict[str, Any] = {} if kind == "push" else {kind: True}
            await client.consumer(
                "t", group="g", handler=_store_in(seen), start="earliest", **options
            ).start()
            for number in range(3):
                await producer.send("t", b"old%d" % number)
            await asyncio.sleep(10)
            _delete(cluster, "t")
            await asyncio.sleep(3)
            cluster.create_topic("t", 1)
            for number in range(10):
                await producer.send("t", b"new%d" % number)
            await asyncio.sleep(60)
        return seen

    seen = run_simulation(scenario)
    assert seen == [
        *(b"old%d" % each for each in range(3)),
        *(b"new%d" % each for each in range(10)),
    ]


def test_topic_that_was_missing_for_a_moment_is_not_read_again() -> None:
    async def scenario(cluster: SimCluster) -> list[bytes]:
        cluster.create_topic("t", 1)
        seen: list[bytes] = []

        async with cluster.client() as client:
            producer = client.producer()
            await client.consumer("t", group="g", handler=_store_in(seen), start="earliest").start()
            for number in range(3):
                await producer.send("t", b"%d" % number)
            await asyncio.sleep(10)
            topics = cluster.brokers[0].broker.parts.topics
            config = topics.get("t")
            assert config is not None
            topics.delete("t")
            await asyncio.sleep(20)
            topics.put(config)
            await asyncio.sleep(20)
            await producer.send("t", b"3")
            await asyncio.sleep(60)
        return seen

    assert run_simulation(scenario) == [b"0", b"1", b"2", b"3"]
