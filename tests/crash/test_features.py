"""`kill -9` of a real broker with delays, timers, transactions, retries and pop in play.

`CRASH_KILLS` (default 3) is the number of kills a case.
"""

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

import rocketpy.admin
from rocketpy.client.producer.producer import Producer
from rocketpy.runtime.clock import SystemClock
from tests.integration.client.daemons import Cluster
from tests.sampling import sample
from tests.simulation.features import (
    INVISIBLE_S,
    KINDS,
    POP_TOPIC,
    QUEUES,
    SETTINGS,
    TOPIC,
    Features,
    quiet,
)

KILLS = int(os.environ.get("CRASH_KILLS", "3"))
_BROKER = "broker-a"
_SENDERS = 4

pytestmark = pytest.mark.crash


async def send_all(features: Features, producer: Producer, over: asyncio.Event, seed: str) -> None:
    rng = random.Random(seed)
    while not over.is_set():
        await features.send(producer, rng.choice(KINDS))
        await asyncio.sleep(rng.choice([0, 0.01, 0.05]))


async def kill_again_and_again(cluster: Cluster, rng: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(rng.choice([0.1, 0.5, 1.5, 4]) * rng.random())
        await asyncio.to_thread(cluster.signal, _BROKER, signal.SIGKILL)
        await asyncio.sleep(rng.choice([0, 0.5]))
        await asyncio.to_thread(cluster.start, _BROKER)


@pytest.mark.timeout(180 + 30 * KILLS)
@pytest.mark.parametrize("flush", sample(["ASYNC_FLUSH", "SYNC_FLUSH"], 2))
async def test_kills_with_every_feature_in_play(tmp_path: Path, flush: str) -> None:
    seed = f"{flush}{os.environ.get('SEED', '')}"
    features = Features(SystemClock().time_ms)
    properties = {**SETTINGS, "flushDiskType": flush, "mappedFileSizeCommitLog": str(1 << 20)}
    with Cluster(tmp_path, 1, properties=properties).running() as cluster:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            for topic in (TOPIC, POP_TOPIC):
                await admin.create_topic(topic, queues=QUEUES)
        async with (
            rocketpy.connect(cluster.namesrv, instance_name="consuming") as consuming,
            rocketpy.connect(cluster.namesrv, instance_name="sending") as sending,
        ):
            await features.start_consumers(consuming)
            producer = features.producer(sending)
            over = asyncio.Event()
            senders = [
                asyncio.create_task(send_all(features, producer, over, f"{seed}{number}"))
                for number in range(_SENDERS)
            ]
            await kill_again_and_again(cluster, random.Random(seed))
            over.set()
            await asyncio.gather(*senders)
            await quiet(features, 120, INVISIBLE_S + 6)
    assert set(KINDS) <= features.counts.keys(), features.counts
