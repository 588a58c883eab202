"""Streams and batches of a master and its slave, which are processes."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import NoRouteError
from tests.integration.broker.pair import Pair
from tests.integration.spark.engine import Engine, read_batch

pytestmark = pytest.mark.timeout(400)

TOPIC, QUEUES = "t", 2


def in_pair(
    directory: Path, scenario: Callable[[Pair], Coroutine[Any, Any, None]], **properties: str
) -> None:
    async def run() -> None:
        pair = Pair(directory, **properties)
        async with pair.running():
            async with rocketpy.admin.connect(pair.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=QUEUES)
            await scenario(pair)

    asyncio.run(run())


async def send(pair: Pair, count: int) -> None:
    async with rocketpy.connect(pair.namesrv) as client:
        producer = client.producer(timeout=20)
        confirmed = 0
        while confirmed < count:  # a send takes `slaveTimeout` while the slave is away
            confirmed += (await producer.send(TOPIC, b"x")).status is SendStatus.SEND_OK


async def drained(query: Engine, count: int) -> None:
    """Trigger until the query has written so many rows."""
    deadline = time.monotonic() + 60
    while query.rows.total() < count:
        assert time.monotonic() < deadline, query.counts
        await asyncio.to_thread(query.trigger)


def test_stream_reads_from_the_slave_and_returns_to_the_master(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        await send(pair, 30)
        query = await asyncio.to_thread(lambda: Engine(pair, subscribe=TOPIC))
        await drained(query, 30)
        await send(pair, 10)
        await asyncio.to_thread(pair.kill, "master")
        await drained(query, 40)
        assert (await asyncio.to_thread(lambda: read_batch(pair, subscribe=TOPIC))) == query.rows
        await asyncio.to_thread(query.restart)
        assert not await asyncio.to_thread(query.trigger)
        await asyncio.to_thread(pair.start, "master")
        await send(pair, 10)
        await drained(query, 50)
        assert set(query.rows.values()) == {1}, "nothing is read twice"

    in_pair(tmp_path, scenario, inSyncReplicas="2")


def test_stream_in_front_of_a_lagging_slave_waits(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        await send(pair, 20)
        query = await asyncio.to_thread(lambda: Engine(pair, subscribe=TOPIC))
        await drained(query, 20)
        await asyncio.sleep(5)  # the slave has the topic
        await asyncio.to_thread(pair.kill, "slave")
        await send(pair, 10)
        await drained(query, 30)
        await asyncio.to_thread(pair.kill, "master")
        await asyncio.to_thread(pair.start, "slave")
        rows = Counter(query.rows)
        for _ in range(3):
            assert not await asyncio.to_thread(query.trigger)
        ends = '{"t":{"broker-a":{"0":15,"1":15}}}'
        with pytest.raises(NoRouteError, match="master of broker broker-a is away"):
            await asyncio.to_thread(lambda: read_batch(pair, subscribe=TOPIC, endingOffsets=ends))
        await asyncio.to_thread(pair.start, "master")
        await send(pair, 10)
        await drained(query, 40)
        assert set(query.rows.values()) == {1}
        assert not rows - query.rows

    in_pair(tmp_path, scenario)
