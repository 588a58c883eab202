"""The loop's time jumps, its order is asyncio's, and a killed process never runs again."""

import asyncio

import pytest

from rocketpy.testing.sim_loop import (
    LoopClock,
    SimLoop,
    SimProcess,
    SimulationStuckError,
    pass_time,
)


def run(main, seed=0):
    loop = SimLoop(seed)  # type: ignore[abstract]  # as in run_simulation
    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        await pass_time(3_600)
        return asyncio.get_running_loop().time()

    assert run(main) == 3_600


def test_callbacks_run_in_the_order_of_call_soon() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_soon(order.append, number)
        await asyncio.sleep(0)
        return order

    assert run(main) == list(range(20))


def timers_of_one_moment(seed: int) -> list[int]:
    async def main() -> list[int]:
        order: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_later(1, order.append, number)
        await pass_time(2)
        return order

    return run(main, seed)


def test_seed_orders_timers_of_one_moment() -> None:
    assert timers_of_one_moment(1) == timers_of_one_moment(1)
    assert timers_of_one_moment(1) != timers_of_one_moment(2)
    assert sorted(timers_of_one_moment(1)) == list(range(20))


def test_killed_process_runs_no_further_not_even_its_finally() -> None:
    async def main() -> list[str]:
        seen: list[str] = []

        async def work() -> None:
            try:
                while True:
                    await pass_time(1)
                    seen.append("works")
                    asyncio.get_running_loop().call_later(0.75, seen.append, "later")
            finally:
                seen.append("cleans up")

        process = SimProcess("p")
        process.spawn(work())
        await pass_time(2.5)
        process.kill()
        await pass_time(60)
        return list(seen)

    assert run(main) == ["works", "later", "works"]


def test_timers_of_a_killed_process_stay_silent_while_its_tasks_are_ended() -> None:
    loop = SimLoop(1)  # type: ignore[abstract]
    seen: list[str] = []

    async def inside() -> None:
        asyncio.get_running_loop().call_later(0.5, seen.append, "a timer of the dead")
        try:
            await pass_time(3_600)
        finally:
            seen.append("ended")

    async def main() -> None:
        process = SimProcess("p")
        process.spawn(inside())
        await pass_time(0.25)
        process.kill()

    loop.run_until_complete(main())
    loop.end_tasks()
    loop.close()
    assert seen == ["ended"]


def test_timeout_ends_what_it_guards() -> None:
    async def main() -> None:
        async with asyncio.timeout(5):
            await pass_time(10)

    with pytest.raises(TimeoutError):
        run(main)


def test_executor_is_a_later_turn_of_the_loop() -> None:
    async def main() -> int:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(max, 3, 4)

    assert run(main) == 4


def test_loop_without_a_timer_raises_stuck() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationStuckError, match="no timer is left"):
        run(main)


def test_loop_that_spins_raises_stuck() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110 - it spins on purpose
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuckError, match="spins"):
        run(main)


def test_unhandled_errors_are_kept() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        loop.call_soon(lambda: 1 // 0)
        await pass_time(1)
        return [type(each["exception"]) for each in loop.errors]

    assert run(main) == [ZeroDivisionError]


def test_wall_clock_can_be_set() -> None:
    async def main() -> tuple[int, int]:
        clock = LoopClock(asyncio.get_running_loop())
        before = clock.time_ms()
        clock.jump(-5_000)
        await pass_time(1)
        return clock.time_ms() - before, clock.monotonic_ms()

    assert run(main) == (-4_000, 1_000)
