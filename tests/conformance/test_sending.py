"""Sends and brokers that are away, busy or slow, on either kind of cluster."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.errors import ConnectionLostError, FlowControlError, RocketPyError
from tests.conformance.worlds import SimWorld, World

SEND_V2 = 310


def test_sends_survive_a_restart_of_the_only_broker(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        async with world.client() as client:
            producer = client.producer(timeout=20)
            await producer.send("t", b"first")
            restart = asyncio.create_task(world.restart_broker())
            futures = []
            while not restart.done():
                futures.append(producer.send_nowait("t", b"x"))
                await asyncio.sleep(0.01)
            await restart
            results = await asyncio.gather(*futures)
        places = {(result.queue, result.offset) for result in results}
        assert len(places) == len(futures)
        assert world.message_count("t") >= len(futures) + 1

    run(case)


def test_lost_connection_is_tried_on_the_other_broker(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        world.script[SEND_V2] = [ConnectionLostError("lost"), 1]
        async with world.client() as client:
            await client.producer().send("t", b"x")
        tried = [request.ext_fields["n"] for request in world.of_code(SEND_V2)]
        assert len(tried) == 3
        assert tried[0] != tried[1] != tried[2]
        assert world.message_count("t") == 1

    run(case, brokers=2)


@pytest.mark.parametrize("code", [2, 215, 530, 42900])
def test_flow_control_may_be_an_error_at_once(run: Callable[..., Any], code: int) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        world.script[SEND_V2] = [code]
        async with world.client() as client:
            with pytest.raises(FlowControlError) as caught:
                await client.producer(flow_control_retry="none").send("t", b"x")
            assert 0 < caught.value.retry_after <= 1
        assert world.message_count("t") == 0

    run(case)


def test_hour_of_flow_control_is_waited_out(run_simulated: Callable[..., Any]) -> None:
    async def case(world: SimWorld) -> None:
        world.create_topic("t")
        loop = world.cluster.loop
        began_s = loop.time()
        times: list[float] = []

        def busy_for_an_hour(*_: object) -> int | None:
            times.append(loop.time())
            if loop.time() - began_s < 3600:
                world.script[SEND_V2].append(busy_for_an_hour)
                return 530
            return None

        world.script[SEND_V2] = [busy_for_an_hour]
        async with world.client() as client:
            await client.producer(timeout=7200, retries=100).send("t", b"x")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert pauses[0] == pytest.approx(1, abs=0.01)
        assert max(pauses) <= 144.1
        assert min(pauses[12:]) >= 95.9
        assert world.message_count("t") == 1

    run_simulated(case)


@pytest.mark.parametrize("latency_fault", [False, True])
def test_brokers_come_and_go_and_no_send_takes_longer_than_its_time(
    run_simulated: Callable[..., Any], latency_fault: bool
) -> None:
    async def case(world: SimWorld) -> None:
        world.create_topic("t")
        cluster = world.cluster
        loop, rng = cluster.loop, cluster.loop.rng
        stored: set[object] = set()
        slowest_s = 0.0
        failed = 0

        async def send(producer: Any, count: int) -> None:
            nonlocal slowest_s, failed
            for _ in range(count):
                began_s = loop.time()
                try:
                    result = await producer.send("t", b"x")
                    stored.add((result.queue, result.offset))
                except RocketPyError:
                    failed += 1
                    assert loop.time() - began_s >= 2.99
                slowest_s = max(slowest_s, loop.time() - began_s)
                await asyncio.sleep(0.05)

        async with world.client() as client:
            producer = client.producer(latency_fault=latency_fault)
            workers = [asyncio.create_task(send(producer, 200)) for _ in range(4)]
            for _ in range(12):
                await asyncio.sleep(rng.uniform(0.2, 2))
                broker = rng.choice(cluster.brokers)
                broker.kill()
                await asyncio.sleep(rng.uniform(0.1, 2))
                await broker.start()
            await asyncio.gather(*workers)
        assert slowest_s <= 3.01
        assert failed == 0, "one broker was always there"
        assert world.message_count("t") >= len(stored) == 800

    for seed in range(3):
        run_simulated(case, brokers=2, seed=seed)
