"""Callers share one call, which is not repeated too often."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rocketpy.broker.failover.shared_call import SharedCall
from rocketpy.testing.sim_loop import LoopClock, SimLoop

PAUSE_MS = 100


def play(course: Callable[[SimLoop], Awaitable[None]]) -> None:
    loop = SimLoop(1)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> None:
        await course(loop)

    try:
        loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()


def test_shared_call_serves_concurrent_callers_by_few_calls() -> None:
    async def course(loop: SimLoop) -> None:
        clock = LoopClock(loop)
        starts: list[int] = []

        async def call() -> int:
            starts.append(clock.monotonic_ms())
            return len(starts)

        shared = SharedCall(call, PAUSE_MS, clock)
        assert await shared() == 1
        assert await asyncio.gather(*(shared() for _ in range(50))) == [2] * 50
        assert starts[1] - starts[0] >= PAUSE_MS

    play(course)


def test_shared_call_that_has_started_does_not_answer_a_later_caller() -> None:
    async def course(loop: SimLoop) -> None:
        results = [loop.create_future() for _ in range(2)]
        has_started = asyncio.Event()
        waiting = iter(results)

        async def call() -> int:
            has_started.set()
            found: int = await next(waiting)
            return found

        shared = SharedCall(call, PAUSE_MS, LoopClock(loop))
        first = asyncio.ensure_future(shared())
        await has_started.wait()
        second = asyncio.ensure_future(shared())
        for number, each in enumerate(results):
            each.set_result(number)
        assert [await first, await second] == [0, 1]

    play(course)


def test_shared_call_outlives_a_cancelled_caller_and_its_own_failure() -> None:
    async def course(loop: SimLoop) -> None:
        results: list[Exception | int] = [ValueError("no"), 7]
        has_started, may_end = asyncio.Event(), asyncio.Event()

        async def call() -> int:
            has_started.set()
            await may_end.wait()
            found = results.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        shared = SharedCall(call, PAUSE_MS, LoopClock(loop))
        one, two = (asyncio.ensure_future(shared()) for _ in range(2))
        await has_started.wait()
        one.cancel()
        may_end.set()
        with pytest.raises(ValueError, match="no"):
            await two
        assert await shared() == 7

    play(course)
