"""Calls of plain functions: how many threads are woken for them, and that none is lost."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from rocketpy.client.callbacks import handler_threads
from rocketpy.client.callbacks.handler_threads import HandlerThreads, call_on_thread
from rocketpy.runtime.clock import SystemClock
from rocketpy.testing.sim_clock import SimClock


class ByHand(Executor):
    """Threads that run when the test says so."""

    def __init__(self) -> None:
        self.woken: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.woken.append((future, lambda: fn(*args)))
        return future

    def run(self) -> None:
        future, work = self.woken.popleft()
        if future.set_running_or_notify_cancel():
            future.set_result(work())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Kit:
    def __init__(self, count: int = 4) -> None:
        self.clock = SimClock()
        self.executor = ByHand()
        self.threads = HandlerThreads(self.executor, count, self.clock)

    async def be_quick(self) -> None:
        """Have calls be remembered as quick."""
        for number in range(8):
            call = self.threads.call(int, number)
            while self.executor.woken:
                self.executor.run()
            assert await call == number
            await turns()


async def test_one_thread_makes_all_calls_when_the_ones_before_were_quick() -> None:
    kit = Kit()
    await kit.be_quick()
    calls = [kit.threads.call(int, number) for number in range(9)]
    assert len(kit.executor.woken) == 1
    kit.executor.run()
    assert await asyncio.gather(*calls) == list(range(9))


async def test_each_call_has_a_thread_when_the_ones_before_took_time() -> None:
    kit = Kit()
    await kit.be_quick()
    slow = kit.threads.call(kit.clock.advance, 1)
    kit.executor.run()
    await slow
    await turns()
    calls = [kit.threads.call(int, number) for number in range(9)]
    assert len(kit.executor.woken) == 4, "as many as there are"
    kit.executor.run()
    assert await asyncio.gather(*calls) == list(range(9))


async def test_call_behind_a_slow_call_gets_a_thread_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handler_threads, "_LATE_S", 0)
    kit = Kit()
    await kit.be_quick()
    calls = [kit.threads.call(int, number) for number in range(3)]
    assert len(kit.executor.woken) == 1
    await turns()
    assert len(kit.executor.woken) == 4, "the first has not begun: it might as well be blocked"
    kit.executor.woken.popleft()
    kit.executor.run()
    assert await asyncio.gather(*calls) == [0, 1, 2]


async def test_thread_that_goes_to_sleep_leaves_no_call_behind() -> None:
    kit = Kit()
    await kit.be_quick()
    first = kit.threads.call(int, 1)
    kit.executor.run()
    late = kit.threads.call(int, 2)  # the thread is through, and nobody knows yet
    assert not kit.executor.woken
    assert await first == 1
    await turns()
    kit.executor.run()
    assert await late == 2


@pytest.mark.parametrize("count", [2, 4])
async def test_calls_are_made_as_long_as_one_thread_is_not_blocked(count: int) -> None:
    """A call may come between a thread's last look at the line and its sleep."""
    gate = threading.Event()
    with ThreadPoolExecutor(count) as executor:
        threads = HandlerThreads(executor, count, SystemClock())
        blocked = [threads.call(gate.wait, 60) for _ in range(count - 1)]
        try:
            async with asyncio.timeout(30):
                for number in range(200):
                    assert await threads.call(int, number) == number
        finally:
            gate.set()
        assert await asyncio.gather(*blocked) == [True] * (count - 1)


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()], ids=repr)
async def test_exception_of_a_function_reaches_the_caller(error: BaseException) -> None:
    kit = Kit()

    def fail() -> None:
        raise error

    call = kit.threads.call(fail)
    kit.executor.run()
    with pytest.raises(type(error)) as raised:
        await call
    assert raised.value is error


async def test_function_that_raises_stop_iteration_does_not_hang_its_caller() -> None:
    kit = Kit()
    call = kit.threads.call(next, iter(()))
    kit.executor.run()
    with pytest.raises(RuntimeError, match="StopIteration"):
        await call


class UnprintableExit(GeneratorExit):
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize("error", [GeneratorExit(), UnprintableExit()], ids=["plain", "no repr"])
async def test_function_that_raises_generator_exit_does_not_close_its_caller(
    error: BaseException,
) -> None:
    kit = Kit()

    def fail() -> None:
        raise error

    call = kit.threads.call(fail)
    kit.executor.run()
    with pytest.raises(RuntimeError, match="Exit") as raised:
        await call
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("kind", [GeneratorExit, StopIteration, ValueError])
async def test_call_on_thread_raises_what_its_function_raises(kind: type[BaseException]) -> None:
    error = kind()

    def fail() -> None:
        raise error

    async def call() -> BaseException:
        try:
            await call_on_thread(fail)
        except BaseException as raised:  # noqa: BLE001 - what it is, is checked
            await asyncio.sleep(0)
            return raised
        raise AssertionError

    raised = await call()
    assert raised is error or raised.__cause__ is error


async def test_cancelled_call_does_not_begin() -> None:
    kit = Kit()
    begun: list[int] = []
    calls = [kit.threads.call(begun.append, number) for number in range(2)]
    calls[0].cancel()
    kit.executor.run()
    await calls[1]
    assert begun == [1]


async def test_call_sees_the_callers_context_and_leaves_nothing_in_it() -> None:
    kit = Kit()
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    def swap() -> str:
        before = variable.get()
        variable.set("the function's")
        return before

    variable.set("the caller's")
    calls = [kit.threads.call(swap) for _ in range(2)]
    kit.executor.run()
    assert await asyncio.gather(*calls) == ["the caller's"] * 2
    assert variable.get() == "the caller's"


async def test_calls_that_no_thread_has_begun_are_cancelled_with_the_executor() -> None:
    executor = ThreadPoolExecutor(1)
    threads = HandlerThreads(executor, 2, SimClock())
    began, gate = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        gate.wait(60)

    elsewhere = executor.submit(wait)
    began.wait(60)
    call = threads.call(int, 1)
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(RuntimeError, match="shutdown"):
        threads.call(int, 1)
    gate.set()
    elsewhere.result(60)


async def test_many_calls_on_threads_return_each_its_own_and_never_too_many_at_once() -> None:
    running = threading.Semaphore(3)
    with ThreadPoolExecutor(3) as executor:
        threads = HandlerThreads(executor, 3, SystemClock())

        def work(number: int) -> int:
            assert running.acquire(blocking=False), "more calls at once than threads"
            try:
                return sum(range(number % 50)) + number
            finally:
                running.release()

        async def work_on(first: int) -> list[int]:
            return [await threads.call(work, number) for number in range(first, 4000, 8)]

        found = await asyncio.gather(*(work_on(first) for first in range(8)))
    assert sorted(map(sum, found)) == sorted(
        sum(sum(range(n % 50)) + n for n in range(first, 4000, 8)) for first in range(8)
    )
