"""Background services with a `step` function, their runners, and long work in steps.

A service never sleeps and never reads the clock. Its step receives the time, does a bounded amount
of work, and returns when to run next. In production a `ServiceThread` or a `LoopService` calls it;
in tests the simulator does, in any order and at any speed.

A step that raises is logged and retried later: a flusher that died silently would lose data long
before anyone noticed.

Long work is a generator that pauses every few milliseconds, so that a loop can serve other
requests in between.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

from rocketpy.errors import ResourceShortError
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

_MAX_WAIT_MS = 3_600_000
"""Longest wait of a runner; services with longer intervals get an extra step each hour."""
_SHARED_MS = 1_000
_LEAST_SHARED_MS = 100


class Service(Protocol):
    """Interface of background work."""

    @property
    def name(self) -> str:
        """Short name, for the thread and logs."""
        ...

    def step(self, now_ms: int) -> int:
        """Do the due work, and return the time of the next call.

        Args:
            now_ms: current `Clock.monotonic_ms()`.

        Returns:
            The next due time on the same clock; a time in the past means immediately.
        """
        ...


@runtime_checkable
class WokenService(Service, Protocol):
    """Service that waits long when idle, and requests a step when it gets work."""

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Store the function that requests a step immediately.

        Args:
            wake: may be called on any thread, also within a step; a call during a step causes
                another one.
        """
        ...


class ServiceRunner(Protocol):
    """Interface of runners of a service: `ServiceThread` and `LoopService`."""

    def start(self) -> None:
        """Run the first step soon, then the following ones."""
        ...

    def wake(self) -> None:
        """Run the next step now, before it is due."""
        ...

    def stop(self) -> None:
        """Run a last step, then stop."""
        ...


def shared_wait_ms(now_ms: int, wait_ms: int) -> int:
    """Shorten a long wait to end at a whole second, together with other services.

    Most processor time of idle services is spent on wake-ups. Services that wake once a second can
    share a wake-up of their loop.

    Args:
        now_ms: monotonic time.
        wait_ms: the wait; waits below a second are returned unchanged.
    """
    if wait_ms < _SHARED_MS:
        return wait_ms
    shorter_ms = wait_ms - (now_ms + wait_ms) % _SHARED_MS
    # A timer that fired slightly early has already run in this second.
    return shorter_ms if shorter_ms >= _LEAST_SHARED_MS else wait_ms


def no_wake() -> None:
    """Placeholder for the wake-up of a service without a runner."""


def connect(service: Service, wake: Callable[[], None]) -> None:
    """Pass the runner's wake-up to a service that uses one."""
    if isinstance(service, WokenService):
        service.use_wake(wake)


def _step_or_retry(service: Service, clock: Clock, retry_ms: int) -> int:
    """Run a step; after a failure the next one is due in `retry_ms`."""
    now_ms = clock.monotonic_ms()
    try:
        return service.step(now_ms)
    except (ResourceShortError, OSError) as error:
        # A shortage is no fault of the program: a traceback each second would hide its reason.
        logger.error(  # noqa: TRY400 - see above
            "service step failed, will be retried: service=%s reason=%s", service.name, error
        )
        return now_ms + retry_ms
    except Exception:
        logger.exception("service step failed, will be retried: service=%s", service.name)
        return now_ms + retry_ms


class ServiceThread:
    """Runner of a service on a daemon thread.

    Args:
        service: the service; only this thread calls its `step`.
        clock: for steps and waits.
        retry_ms: pause after a step that raised.
    """

    def __init__(self, service: Service, clock: Clock, *, retry_ms: int = 1_000) -> None:
        self._service = service
        self._clock = clock
        self._retry_ms = retry_ms
        self._wakeup = threading.Event()
        self._stopping = False
        self._started = False
        self._thread = threading.Thread(target=self._run, name=service.name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, which runs the first step immediately."""
        self._thread.start()
        self._started = True

    def wake(self) -> None:
        """Run the next step now, before it is due; on any thread."""
        self._wakeup.set()

    def stop(self) -> None:
        """Run a last step and end the thread; idempotent, also before `start`."""
        self._stopping = True
        self._wakeup.set()
        if self._started and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            due_ms = _step_or_retry(self._service, self._clock, self._retry_ms)
            wait_ms = min(due_ms - self._clock.monotonic_ms(), _MAX_WAIT_MS)
            if wait_ms > 0:
                self._wakeup.wait(timeout=wait_ms / 1_000)
            self._wakeup.clear()
        _step_or_retry(self._service, self._clock, self._retry_ms)


class LoopService:
    """Runner of a service on the running asyncio loop, for work on objects of the loop.

    Steps must be short, because they block the loop. Call all methods on that loop, except
    `wake_from_any_thread`.

    Args:
        service: the service.
        clock: for steps and delays.
        retry_ms: pause after a step that raised.
    """

    def __init__(self, service: Service, clock: Clock, *, retry_ms: int = 1_000) -> None:
        self._service = service
        self._clock = clock
        self._retry_ms = retry_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Schedule the first step for the next iteration of the running loop."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._run)

    def wake(self) -> None:
        """Run the next step in the next iteration of the loop; ignored when stopped."""
        if self._loop is None or self._handle is None:
            return
        self._handle.cancel()
        self._handle = self._loop.call_soon(self._run)

    def wake_from_any_thread(self) -> None:
        """Call `wake` on the loop."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
                self._loop.call_soon_threadsafe(self.wake)

    def stop(self) -> None:
        """Run a last step and schedule no more; idempotent, also before `start`."""
        if self._handle is None:
            return
        self._handle.cancel()
        self._handle = None
        _step_or_retry(self._service, self._clock, self._retry_ms)

    def _run(self) -> None:
        handle = self._handle
        due_ms = _step_or_retry(self._service, self._clock, self._retry_ms)
        if self._handle is not handle or self._loop is None:  # the step called `stop` or `wake`
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = shared_wait_ms(now_ms, min(max(0, due_ms - now_ms), _MAX_WAIT_MS))
        self._handle = self._loop.call_later(wait_ms / 1_000, self._run)


class LoopServices:
    """Group of services on one loop, started and stopped together."""

    def __init__(self, runners: tuple[LoopService, ...]) -> None:
        self._runners = runners

    def wake(self) -> None:
        """Run the next step of each service now."""
        for runner in self._runners:
            runner.wake()

    def stop(self) -> None:
        """Stop in reverse order of start, each after a last step."""
        for runner in reversed(self._runners):
            runner.stop()


def run_services_on_loop(services: Iterable[Service], clock: Clock) -> LoopServices:
    """Start every service on the running loop and return the handle that stops them."""
    runners = []
    for service in services:
        runner = LoopService(service, clock)
        connect(service, runner.wake_from_any_thread)
        runner.start()
        runners.append(runner)
    return LoopServices(tuple(runners))


_T = TypeVar("_T")
Steps = Generator[None, None, _T]
"""Generator that pauses at each `yield`, and returns a result."""


def run_to_end(steps: Steps[_T]) -> _T:
    """Run all steps without a pause and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


async def run_cooperatively(steps: Steps[_T]) -> _T:
    """Run one step in each iteration of the running loop and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await asyncio.sleep(0)


def chunked(items: Iterable[_T], count: int) -> Iterator[list[_T]]:
    """Yield the items in lists of a maximum length."""
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some
