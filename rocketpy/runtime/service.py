"""Background services: a pure step, and the two things that drive it.

A service never sleeps and never reads the clock. It is told the time, does a
bounded amount of work, and says when it next wants to run. In production a
`ServiceThread` or a `LoopService` drives it; in tests the simulator calls `step`
itself, in any order and at any speed.

A step that raises is logged and tried again later, whoever drives it: a flusher that
dies silently would lose data long before anyone looked.

Long work in steps: a generator that pauses every few milliseconds, so that others get a turn.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Protocol, TypeVar, runtime_checkable

from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

_MAX_WAIT_MS = 3_600_000
"""Longest single wait; a service that wants less often is woken in vain once an hour."""
_SHARED_MS = 1_000
_LEAST_SHARED_MS = 100


class Service(Protocol):
    """Work that runs on its own, beside the requests."""

    @property
    def name(self) -> str:
        """Short name, used for the thread and in logs."""
        ...

    def step(self, now_ms: int) -> int:
        """Do what is due and return when to be called next.

        Args:
            now_ms: `Clock.monotonic_ms()` of this moment.

        Returns:
            The next due time on the same clock; a time in the past means "at once".
        """
        ...


@runtime_checkable
class WokenService(Service, Protocol):
    """A service that is given work by others: idle, it waits long, and asks to be run then."""

    def use_wake(self, wake: Callable[[], None]) -> None:
        """Take what brings about the next step at once.

        Args:
            wake: may be called on any thread that gives it work, within a step too; a call during
                a step brings about another one.
        """
        ...


class ServiceRunner(Protocol):
    """What drives one service: `ServiceThread` or `LoopService`."""

    def start(self) -> None:
        """Run the first step soon, and go on."""
        ...

    def wake(self) -> None:
        """Run the next step now instead of when it is due."""
        ...

    def stop(self) -> None:
        """Run one last step and no more."""
        ...


def shared_wait_ms(now_ms: int, wait_ms: int) -> int:
    """Shorten a long wait so that it ends with a whole second, as those of others do.

    Processor time that does next to nothing goes into waking up. What wakes once a second may as
    well do so together with others on the same loop.

    Args:
        now_ms: monotonic time.
        wait_ms: how long to wait; less than a second stays as it is.
    """
    if wait_ms < _SHARED_MS:
        return wait_ms
    shorter_ms = wait_ms - (now_ms + wait_ms) % _SHARED_MS
    # A timer that came a little early has had its turn of this second.
    return shorter_ms if shorter_ms >= _LEAST_SHARED_MS else wait_ms


def no_wake() -> None:
    """Stand in for the wake-up of a service that nobody runs."""


def connect(service: Service, wake: Callable[[], None]) -> None:
    """Hand a service its runner's wake-up, if it wants one."""
    if isinstance(service, WokenService):
        service.use_wake(wake)


def _step_or_retry(service: Service, clock: Clock, retry_ms: int) -> int:
    """Run one step; after a failure the next one is due in `retry_ms`."""
    now_ms = clock.monotonic_ms()
    try:
        return service.step(now_ms)
    except Exception:
        logger.exception("service step failed, will be tried again: service=%s", service.name)
        return now_ms + retry_ms


class ServiceThread:
    """Runs one service on one daemon thread until stopped.

    Args:
        service: what to run; its `step` is only ever called by this thread.
        clock: told to the service, and used to wait.
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
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; the first step runs at once."""
        self._started = True
        self._thread.start()

    def wake(self) -> None:
        """Run the next step now instead of when it is due (any thread)."""
        self._wakeup.set()

    def stop(self) -> None:
        """Run one last step and end the thread; again or before start is harmless."""
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
    """Runs one service on the running asyncio loop, for work that owns what the loop owns.

    Steps must be short: they block the loop. All methods but one are called on that loop.

    Args:
        service: what to run.
        clock: told to the service, and used to compute the delay.
        retry_ms: pause after a step that raised.
    """

    def __init__(self, service: Service, clock: Clock, *, retry_ms: int = 1_000) -> None:
        self._service = service
        self._clock = clock
        self._retry_ms = retry_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Schedule the first step for the next turn of the running loop."""
        assert self._loop is None, "started twice"
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_soon(self._run)

    def wake(self) -> None:
        """Run the next step on the next turn of the loop; nothing when not running."""
        if self._loop is None or self._handle is None:
            return
        self._handle.cancel()
        self._handle = self._loop.call_soon(self._run)

    def wake_from_any_thread(self) -> None:
        """Do as `wake` does, as soon as the loop gets round to it."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.call_soon_threadsafe(self.wake)

    def stop(self) -> None:
        """Run one last step and schedule no more; again or before start is harmless."""
        if self._handle is None:
            return
        self._handle.cancel()
        self._handle = None
        _step_or_retry(self._service, self._clock, self._retry_ms)

    def _run(self) -> None:
        handle = self._handle
        due_ms = _step_or_retry(self._service, self._clock, self._retry_ms)
        if self._handle is not handle or self._loop is None:  # the step itself stopped or woke us
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = shared_wait_ms(now_ms, min(max(0, due_ms - now_ms), _MAX_WAIT_MS))
        self._handle = self._loop.call_later(wait_ms / 1_000, self._run)


class LoopServices:
    """Several services on one loop, started and stopped together."""

    def __init__(self, runners: tuple[LoopService, ...]) -> None:
        self._runners = runners

    def wake(self) -> None:
        """Run the next step of each service now."""
        for runner in self._runners:
            runner.wake()

    def stop(self) -> None:
        """Stop in reverse order of start, each after one last step."""
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
"""Work that pauses at each `yield`, and returns something in the end."""


def run_to_end(steps: Steps[_T]) -> _T:
    """Do all steps without a pause and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result


async def run_cooperatively(steps: Steps[_T]) -> _T:
    """Do a step in each turn of the running loop and return what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await asyncio.sleep(0)


def chunked(items: Iterable[_T], count: int) -> Iterator[list[_T]]:
    """Yield the items in lists of at most so many."""
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some
