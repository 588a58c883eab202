"""Sends without a response: limits, flush at close, and rate-limited logs of losses."""

import asyncio
import logging

import pytest

from rocketpy.client.producer.oneway import OnewayLossCounter
from rocketpy.errors import ConnectError, TooManyInFlightError
from tests.unit.client.pop_kit import run
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim

SEND = 310


def test_burst_is_bounded_like_other_sends_and_nothing_of_it_is_lost() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=100)
            for _ in range(100):
                producer.send_oneway("t", b"x")
            with pytest.raises(TooManyInFlightError, match="ready"):
                producer.send_oneway("t", b"x")
            assert producer.in_flight == 100
            for _ in range(900):
                await producer.ready()
                producer.send_oneway("t", b"x")
                assert len(producer._oneway) <= 100
            await producer.flush()
            assert producer.in_flight == 0
            assert producer.lost_oneway == 0
        await pass_time(5)  # nobody waits for what is written
        assert sum(cluster.store().max_offset("t", number) for number in range(4)) == 1_000

    run_sim(main)


def test_bytes_in_flight_are_bounded_too() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight_bytes=10_000, compress_over_bytes=0)
            for _ in range(2):
                producer.send_oneway("t", bytes(5_000))
            with pytest.raises(TooManyInFlightError):
                producer.send_oneway("t", b"x")

    run_sim(main)


def test_close_waits_for_what_is_on_its_way() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            for _ in range(50):
                producer.send_oneway("t", b"x")
        await pass_time(5)
        assert sum(cluster.store().max_offset("t", number) for number in range(4)) == 50

    run_sim(main)


def test_oneway_losses_are_counted_and_logged_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await producer.send("t", b"x")
            cluster.down.add(BROKER_A)
            for _ in range(500):
                producer.send_oneway("t", b"x")
            await producer.flush()
            assert producer.lost_oneway == 500

    with caplog.at_level(logging.WARNING, "rocketpy.client.producer.oneway"):
        run_sim(main)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2, "the first one, and the rest when the producer closes"
    assert "lost=1 total=1" in lines[0]
    assert "lost=499 total=500" in lines[1]


def test_single_oneway_loss_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        losses = OnewayLossCounter("g")
        for pause_s in (0, 0.3, 0.3, 5, 0.1):
            await pass_time(pause_s)
            losses.add("t", ConnectError("down"))
        losses.close()
        losses.close()
        assert losses.count == 5

    with caplog.at_level(logging.WARNING, "rocketpy.client.producer.oneway"):
        run(main)
    told = [
        (record.args["lost"], record.args["count"])
        for record in caplog.records
        if isinstance(record.args, dict)
    ]
    assert told == [(1, 1), (2, 3), (1, 4), (1, 5)]


def test_one_way_send_that_is_cancelled_leaves_the_window() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            producer.send_oneway("t", b"x")
            (task,) = producer._oneway._tasks
            task.cancel()
            await asyncio.wait([task])
            assert producer.in_flight == 0

    run_sim(main)
