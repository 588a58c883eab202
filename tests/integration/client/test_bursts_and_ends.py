"""A burst of one-way sends, and a close while one broker of two is frozen: with real processes."""

import asyncio
import signal
import time
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.testing.cluster import LocalCluster
from tests.integration.client.daemons import Cluster
from tests.unit.client.steps import until

pytestmark = pytest.mark.timeout(400)

BURST = 50_000


async def test_burst_of_one_way_sends_is_bounded_counted_and_stored(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster:
        cluster.create_topic("t")
        async with rocketpy.connect(cluster.namesrv, group="burst") as client:
            producer = client.producer(max_in_flight=1_000)
            await producer.send("t", b"first")
            before = len(asyncio.all_tasks())
            most = most_tasks = 0
            for number in range(BURST):
                await producer.ready()
                producer.send_oneway("t", b"%d" % number)
                if number % 100 == 0:
                    most = max(most, producer.in_flight)
                    most_tasks = max(most_tasks, len(asyncio.all_tasks()) - before)
            stats = producer.stats
            assert stats.begun == BURST + 1
            assert 0 < most <= 1_000
            assert most_tasks <= 1_100
        assert producer.stats.in_flight == 0, "the close has waited"
        assert producer.lost_oneway == 0
        await until(lambda: cluster.message_count("t") >= BURST + 1, 60)
        assert cluster.message_count("t") == BURST + 1


async def test_burst_beyond_the_window_raises_too_many_in_flight(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster:
        async with rocketpy.connect(cluster.namesrv, group="burst") as client:
            producer = client.producer(max_in_flight=1_000)
            await producer.send("t", b"first")
            refused = 0
            for _ in range(BURST):
                try:
                    producer.send_oneway("t", b"x")
                except rocketpy.errors.TooManyInFlightError:
                    refused += 1
            assert refused == BURST - 1_000
            assert producer.stats.begun == 1_001
        await until(lambda: cluster.message_count("t") >= 1_001, 60)
        assert cluster.message_count("t") == 1_001


async def test_broker_that_is_stopped_does_not_hold_a_close_up(tmp_path: Path) -> None:
    stop_timeout_s = 5.0
    with Cluster(tmp_path, 2).running() as cluster:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            await admin.create_topic("t", 8)
            queues = [
                rocketpy.MessageQueue("t", broker, number)
                for broker in ("broker-a", "broker-b")
                for number in range(8)
            ]
            handled: list[rocketpy.MessageQueue] = []

            async def handle(message: rocketpy.ReceivedMessage) -> None:
                handled.append(message.queue)

            async with rocketpy.connect(cluster.namesrv, group="shop") as client:
                producer = client.producer()
                for queue in queues:
                    await producer.send("t", b"x", queue=queue)
                consumer = client.consumer(
                    "t",
                    group="c",
                    start="earliest",
                    handler=handle,
                    stop_timeout=stop_timeout_s,
                )
                await consumer.start()
                await until(lambda: len(handled) >= 16, 60)
                try:
                    cluster.signal("broker-b", signal.SIGSTOP)
                    began = time.monotonic()
                    await consumer.close()
                    took_s = time.monotonic() - began
                finally:
                    cluster.signal("broker-b", signal.SIGCONT)
            assert took_s < stop_timeout_s + 2
            lag = await admin.group_lag("c", "t")
            left = {each.queue: each.lag for each in lag.queues}
            assert [left[each] for each in queues if each.broker_name == "broker-a"] == [0] * 8
