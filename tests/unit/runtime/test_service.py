import asyncio
import threading

import pytest

from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.service import LoopService, ServiceThread, run_services_on_loop


class Counter:
    """Counts its steps; asks to run again after `interval_ms`; may fail at first."""

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


def test_a_thread_steps_at_once_when_woken_and_once_more_at_the_end() -> None:
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


def test_a_thread_steps_again_when_due() -> None:
    service = Counter(interval_ms=1)
    runner = ServiceThread(service, SystemClock())
    runner.start()
    for _ in range(5):
        service.wait_for_step()
    runner.stop()


def test_a_failing_step_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
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
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now_ms = 0

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


async def turn() -> None:
    """Let the loop run what is ready."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_loop_service_steps_when_started_woken_and_stopped() -> None:
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


async def test_a_loop_service_runs_again_when_due() -> None:
    service = Counter(interval_ms=0)
    runner = LoopService(service, VirtualClock())
    runner.start()
    for _ in range(10):
        await turn()
    assert service.steps >= 3
    runner.stop()


async def test_a_failing_step_on_the_loop_is_tried_again(
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


async def test_a_step_may_stop_its_own_service() -> None:
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
