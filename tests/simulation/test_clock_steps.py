"""Clocks that are set, and a broker that takes nothing more, while every feature is in play."""

import asyncio
from dataclasses import replace

import pytest

from rocketpy.proto.perm import PERM_READ
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.simulation.features import (
    KINDS,
    POP_TOPIC,
    QUEUES,
    SETTINGS,
    TOPIC,
    Features,
    quiet,
)

HOUR_MS = 3_600_000


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("steps_ms", "restarts", "flush"),
    [
        ([-HOUR_MS], False, "ASYNC_FLUSH"),
        ([-HOUR_MS], True, "SYNC_FLUSH"),
        ([HOUR_MS], False, "SYNC_FLUSH"),
        ([HOUR_MS, -HOUR_MS], True, "ASYNC_FLUSH"),
    ],
)
def test_clock_that_is_set_holds_up_nothing_that_comes_afterwards(
    steps_ms: list[int], restarts: bool, flush: str
) -> None:
    """Delayed messages follow the clock: one hour later after it was set back."""

    async def scenario(cluster: SimCluster) -> None:
        (broker,) = cluster.brokers
        for topic in (TOPIC, POP_TOPIC):
            cluster.create_topic(topic, QUEUES)
        features = Features(broker.clock.time_ms, judges_time=False)
        async with cluster.client() as consuming, cluster.client() as sending:
            await features.start_consumers(consuming)
            producer = features.producer(sending)

            async def send_all() -> None:
                for kind in KINDS:
                    await features.send(producer, kind)
                    await asyncio.sleep(0.1)

            await send_all()
            before = set(features.acknowledged)
            for step_ms in steps_ms:
                broker.clock.jump(step_ms)
                if restarts:
                    await broker.stop()
                    await broker.start()
                await asyncio.sleep(1)
            await send_all()
            await asyncio.sleep(90)
            late = set(features.missing) - before
            assert not late, f"held up: {late}"
            await quiet(features, 2 * HOUR_MS / 1_000, 20)

    run_simulation(scenario, properties={**SETTINGS, "flushDiskType": flush})


@pytest.mark.timeout(300)
def test_broker_that_takes_nothing_more_delivers_what_it_took() -> None:
    async def scenario(cluster: SimCluster) -> None:
        (broker,) = cluster.brokers
        for topic in (TOPIC, POP_TOPIC):
            cluster.create_topic(topic, QUEUES)
        features = Features(broker.clock.time_ms)
        async with cluster.client() as consuming, cluster.client() as sending:
            await features.start_consumers(consuming)
            producer = features.producer(sending)
            for kind in KINDS:
                await features.send(producer, kind)
            broker.broker.parts.configs.update({"brokerPermission": "4"})
            for topic in (TOPIC, POP_TOPIC):
                found = broker.broker.parts.topics.get(topic)
                assert found is not None
                broker.broker.parts.topics.put(replace(found, perm=PERM_READ))
            await quiet(features, 200, 20)

    run_simulation(scenario, properties=SETTINGS)
