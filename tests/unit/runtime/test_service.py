import asyncio
import threading
from collections.abc import Callable

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.service import (
    LoopService,
    ServiceThread,
    connect,
    run_services_on_loop,
    shared_wait_ms,
)


class Counter:
    """Service that counts its steps, repeats after `interval_ms`, and may fail at first."""

    name = "counter"

    def __init__(self, interval_ms: int = 3_600_000, failures: int = 0) -> None:
        self.interval_ms = interval_ms
        self.failures = failures
        self.steps = 0
        self.reached = threading.Semaphore(0)

    def step(self, now_ms: int) -> int:
        self.steps += 1
        self.reached.release()
        if self.failures:
            self.failures -= 1
            raise ValueError("disk on fire")
        return now_ms + self.interval_ms

    def wait_for_step(self) -> None:
        assert self.reached.acquire(timeout=10)


def test_thread_steps_at_once_when_woken_and_once_more_at_the_end() -> None:
    service = Counter()
    runner = ServiceThread(service, SystemClock())
    runner.start()
    service.wait_for_step()
    runner.wake()
    service.wait_for_step()
    runner.stop()
    assert service.steps == 3
    assert not runner.is_alive
    runner.stop()
    assert service.steps == 3


def test_thread_steps_again_when_due() -> None:
    service = Counter(interval_ms=1)
    runner = ServiceThread(service, SystemClock())
    runner.start()
    for _ in range(5):
        service.wait_for_step()
    runner.stop()


def test_failing_step_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    service = Counter(failures=2)
    runner = ServiceThread(service, SystemClock(), retry_ms=1)
    runner.start()
    for _ in range(3):
        service.wait_for_step()
    runner.stop()
    failed = [each for each in caplog.records if "step failed" in each.message]
    assert len(failed) == 2
    assert "service=counter" in failed[0].message
    assert failed[0].exc_info is not None


def test_stop_before_start_is_harmless() -> None:
    service = Counter()
    ServiceThread(service, SystemClock()).stop()
    assert service.steps == 0


class VirtualClock:
    """Clock that advances only when a test sets it."""

    def __init__(self) -> None:
        self.now_ms = 0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


async def turn() -> None:
    """Run the ready callbacks of the loop."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_loop_service_steps_when_started_woken_and_stopped() -> None:
    service = Counter()
    runner = LoopService(service, VirtualClock())
    runner.wake()
    runner.start()
    assert service.steps == 0
    await turn()
    assert service.steps == 1
    runner.wake()
    await turn()
    assert service.steps == 2
    runner.stop()
    assert service.steps == 3
    runner.stop()
    runner.wake()
    await turn()
    assert service.steps == 3


async def test_loop_service_runs_again_when_due() -> None:
    service = Counter(interval_ms=0)
    runner = LoopService(service, VirtualClock())
    runner.start()
    for _ in range(10):
        await turn()
    assert service.steps >= 3
    runner.stop()


async def test_failing_step_on_the_loop_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Counter(interval_ms=0, failures=1)
    runner = LoopService(service, VirtualClock(), retry_ms=0)
    runner.start()
    for _ in range(10):
        await turn()
    assert service.steps >= 2
    runner.stop()
    assert sum("step failed" in each.message for each in caplog.records) == 1


async def test_step_may_stop_its_own_service() -> None:
    service = Counter()
    runner = LoopService(service, VirtualClock())

    def stop_once(now_ms: int) -> int:
        service.steps += 1
        if service.steps == 1:
            runner.stop()
        return now_ms

    service.step = stop_once  # type: ignore[method-assign]
    runner.start()
    await turn()
    await turn()
    assert service.steps == 2  # the step, and the last one that stop asks for


async def test_services_start_and_stop_together() -> None:
    services = [Counter(), Counter()]
    running = run_services_on_loop(services, VirtualClock())
    await turn()
    running.wake()
    await turn()
    running.stop()
    assert [each.steps for each in services] == [3, 3]


class Woken(Counter):
    """Service that calls its wake-up within its first steps."""

    def __init__(self, wakes_within: int = 0) -> None:
        super().__init__()
        self.wakes_within = wakes_within
        self.wake: Callable[[], None] = lambda: None

    def use_wake(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def step(self, now_ms: int) -> int:
        if self.wakes_within:
            self.wakes_within -= 1
            self.wake()
        return super().step(now_ms)


def test_only_a_service_that_wants_it_is_handed_its_wake_up() -> None:
    called: list[str] = []
    woken = Woken()
    connect(woken, lambda: called.append("woken"))
    connect(Counter(), lambda: called.append("never"))
    woken.wake()
    assert called == ["woken"]


def test_wake_within_a_step_of_a_thread_brings_about_another() -> None:
    service = Woken(wakes_within=2)
    runner = ServiceThread(service, SystemClock())
    connect(service, runner.wake)
    runner.start()
    for _ in range(3):
        service.wait_for_step()
    runner.stop()
    assert service.steps == 4


async def test_wake_within_a_step_on_the_loop_brings_about_one_more() -> None:
    service = Woken(wakes_within=1)
    runner = LoopService(service, VirtualClock())
    connect(service, runner.wake)
    runner.start()
    for _ in range(5):
        await turn()
    assert service.steps == 2
    runner.stop()
    for _ in range(5):
        await turn()
    assert service.steps == 3, "nothing of the first one is left on the loop"


async def test_loop_service_is_woken_by_other_threads() -> None:
    service = Woken()
    running = run_services_on_loop([service], VirtualClock())
    await turn()
    assert service.steps == 1
    await asyncio.get_running_loop().run_in_executor(None, service.wake)
    await turn()
    assert service.steps == 2
    running.stop()
    service.wake()
    await turn()
    assert service.steps == 3, "the last step was that of stop"


def test_wake_after_the_loop_is_closed_is_harmless() -> None:
    service = Woken()

    async def run() -> None:
        run_services_on_loop([service], VirtualClock())
        await turn()

    asyncio.run(run())
    service.wake()
    assert service.steps == 1


@pytest.mark.parametrize(
    ("now_ms", "wait_ms", "expected"),
    [
        (5_000, 1_000, 1_000),
        (5_400, 1_000, 600),
        (5_400, 10_000, 9_600),
        (5_400, 999, 999),
        (5_999, 1_000, 1_000),
        (5_000, 0, 0),
    ],
)
def test_long_waits_end_with_whole_seconds_and_never_later(
    now_ms: int, wait_ms: int, expected: int
) -> None:
    assert shared_wait_ms(now_ms, wait_ms) == expected


def test_thread_that_the_system_refuses_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    thread = ServiceThread(Counter(), SystemClock())
    with pytest.raises(RuntimeError, match="new thread"):
        thread.start()
    thread.stop()


async def test_loop_service_without_a_resource_logs_its_reason_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Short(Counter):
        def step(self, now_ms: int) -> int:
            raise DiskFullError("no space to write offsets")

    runner = LoopService(Short(), VirtualClock())
    runner.start()
    runner.stop()
    (failed,) = (each for each in caplog.records if "step failed" in each.message)
    assert "reason=no space to write offsets" in failed.message
    assert failed.exc_info is None
