"""Rounds of a background job: in time, when it is woken, and no more often than that."""

import asyncio

from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.testing.sim_loop import pass_time
from tests.unit.client.pop_kit import run


def test_job_that_is_woken_all_the_time_runs_twenty_times_a_second() -> None:
    async def case() -> None:
        rounds: list[float] = []
        loop = asyncio.get_running_loop()

        async def step() -> None:
            rounds.append(loop.time())

        job = PeriodicJob("job", step, 30_000)
        job.start()
        for _ in range(10_000):
            job.wake()
            await pass_time(0.001)
        assert 150 <= len(rounds) <= 201
        await pass_time(20)
        before = len(rounds)
        job.wake()
        await pass_time(0.001)
        assert len(rounds) == before + 1, "at once, when the last round is long ago"
        await job.stop()

    run(case)


def test_job_that_asks_to_be_run_sooner_is() -> None:
    async def case() -> None:
        rounds: list[int] = []

        async def step() -> int:
            rounds.append(0)
            return 10

        job = PeriodicJob("job", step, 30_000)
        job.start()
        await pass_time(1)
        assert 90 <= len(rounds) <= 101
        await job.stop()

    run(case)
