"""Topics and groups that clients make while the disk is slow, or the power goes."""

import asyncio
import errno
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from rocketpy.broker.metadata.persistent_table import TableWriter
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import RocketPyError, ServiceNotAvailableError
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.sampling import sample

_DISK_S: Final = 2.0
_TABLES: Final = ("topics.json", "subscriptionGroup.json")


def _slow_down(cluster: SimCluster) -> Counter[str]:
    """Let tables be written slowly; return how often each is."""
    broker = cluster.brokers[0]
    broker.held_up_s[TableWriter.name] = _DISK_S
    writes: Counter[str] = Counter()

    def count(kind: str, path: Path) -> None:
        if kind == "flush" and path.stem in _TABLES:
            writes[path.stem] += 1

    broker.files.on_operation = count
    return writes


def test_others_are_served_while_a_table_is_written_and_creations_share_the_write() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.create_topic("there", 1)
        topics = cluster.brokers[0].broker.parts.topics
        async with cluster.client() as client, cluster.client() as other:
            ping = other.producer()
            await ping.send("there", b"first")
            writes = _slow_down(cluster)
            producer = client.producer(timeout=30, retries=0)
            begin_ms = cluster.clock.monotonic_ms()
            sends = [asyncio.ensure_future(producer.send(f"new{n}", b"x")) for n in range(20)]
            for _ in range(15):
                await asyncio.sleep(0.1)
                pinged_ms = cluster.clock.monotonic_ms()
                await ping.send("there", b"ping")
                assert cluster.clock.monotonic_ms() - pinged_ms < 50
            assert all(topics.get(f"new{n}") and not topics.is_written(f"new{n}") for n in range(9))
            assert cluster.message_count("new1") == 1, "sent to at once"
            assert not any(send.done() for send in sends)
            await asyncio.gather(*sends)
            assert cluster.clock.monotonic_ms() - begin_ms >= _DISK_S * 1_000
            assert writes == {"topics.json": 1}
            assert {f"new{n}" for n in range(20)} <= topics.written.keys()

    run_simulation(scenario)


def test_consumer_of_new_group_does_not_delay_others() -> None:
    async def scenario(cluster: SimCluster) -> None:
        cluster.create_topic("there", 1)
        async with cluster.client() as client, cluster.client() as other:
            ping = other.producer()
            await ping.send("there", b"first")
            _slow_down(cluster)
            seen: list[bytes] = []

            async def handle(message: object) -> None:
                seen.append(message.body)  # type: ignore[attr-defined]

            consumer = client.consumer("there", group="new", handler=handle, start="earliest")
            starting = asyncio.ensure_future(consumer.start())
            for _ in range(15):
                await asyncio.sleep(0.1)
                pinged_ms = cluster.clock.monotonic_ms()
                await ping.send("there", b"ping")
                assert cluster.clock.monotonic_ms() - pinged_ms < 50
            await starting
            await asyncio.sleep(10)
            parts = cluster.brokers[0].broker.parts
            assert parts.groups.is_written("new")
            assert parts.topics.is_written("%RETRY%new")
            assert "%RETRY%new" in parts.topics.written
            assert len(seen) == 16

    run_simulation(scenario)


def test_topic_deleted_before_its_creation_is_written_does_not_come_back() -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            cluster.create_topic("there", 1)
            producer = client.producer(timeout=30, retries=0)
            await producer.send("there", b"first")
            _slow_down(cluster)
            send = asyncio.ensure_future(producer.send("new", b"x"))
            await asyncio.sleep(_DISK_S / 2)
            parts = cluster.brokers[0].broker.parts
            parts.topics.delete("new")
            parts.store.delete_topics(["new"])
            with pytest.raises(ServiceNotAvailableError, match="does not exist any more"):
                await send
            await asyncio.sleep(60)
            assert parts.topics.get("new") is None
            await cluster.brokers[0].stop()
            await cluster.brokers[0].start()
            assert cluster.brokers[0].broker.parts.topics.get("new") is None

    run_simulation(scenario)


def test_stop_waits_for_what_is_to_be_written() -> None:
    async def scenario(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            cluster.create_topic("there", 1)
            producer = client.producer(timeout=30, retries=0)
            await producer.send("there", b"first")
            _slow_down(cluster)
            send = asyncio.ensure_future(producer.send("new", b"x"))
            await asyncio.sleep(0.5)
            assert not send.done()
            await cluster.brokers[0].stop()
            assert send.done()
            assert not send.exception()
            await cluster.brokers[0].start()
            assert cluster.message_count("new") == 1

    run_simulation(scenario)


async def _send(producer: Producer, topic: str, acknowledged: list[str]) -> None:
    try:
        await producer.send(topic, b"x")
    except RocketPyError:
        return
    acknowledged.append(topic)


@pytest.mark.parametrize("fails", [False, True], ids=["slow", "failing"])
@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_acknowledged_topic_survives_power_cut(seed: int, fails: bool) -> None:
    async def scenario(cluster: SimCluster) -> tuple[int, int]:
        rng = random.Random(seed)
        broker = cluster.brokers[0]
        acknowledged: list[str] = []
        sent = failed = 0

        def on_flush(path: Path) -> None:
            nonlocal failed
            if path.stem in _TABLES and rng.random() < 0.4:
                failed += 1
                raise OSError(errno.EIO, "simulated disk failure")

        async with cluster.client() as client:
            producer = client.producer(retries=0)
            for _ in range(5):
                broker.files.on_flush = on_flush if fails else None
                broker.held_up_s[TableWriter.name] = rng.choice((0.0, 0.01, 0.3))
                sends = []
                for _ in range(10):
                    sends.append(asyncio.ensure_future(_send(producer, f"new{sent}", acknowledged)))
                    sent += 1
                    await asyncio.sleep(rng.choice((0.0, 0.01, 0.1)))
                broker.lose_power()
                known = list(acknowledged)
                await broker.start()
                topics = broker.broker.parts.topics
                assert [name for name in known if topics.get(name) is None] == []
                assert [name for name in known if cluster.message_count(name) != 1] == []
                await asyncio.gather(*sends)
        assert bool(failed) == fails
        return sent, len(acknowledged)

    sent, acknowledged = run_simulation(
        scenario, seed=seed, properties={"flushDiskType": "SYNC_FLUSH"}
    )
    assert sent == 50
    assert acknowledged
