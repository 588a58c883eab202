"""Threads for plain functions; one hop between loop and thread carries many calls.

To wake a thread, and the loop again, costs some twenty times what a quick function does. So calls
wait in one line. A thread that was woken takes them from it one after the other until it is empty,
and what they returned goes to the loop together.

How many threads are woken depends on what the calls were like:

- they took some time, because they waited for something: one thread per call, as long as there are;
- they were quick: one thread for all. When a call has not begun within one or two milliseconds,
  because the one before it waits for something, as many threads as there are calls.

A handler is never called by more threads at once than there are.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, NamedTuple

from rocketpy.client.messages.outcomes import shown
from rocketpy.runtime.clock import Clock

_LATE_S: Final = 0.001
_SLOW: Final = 8
"""After a call that took time, so many quick ones make one thread do for all again."""
_SLOWEST: Final = 64


class _Call(NamedTuple):
    """Call that waits for a thread, and the future of its result."""

    future: asyncio.Future[Any]
    context: contextvars.Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class _Returned(NamedTuple):
    """Outcome of a call."""

    future: asyncio.Future[Any]
    result: object
    error: BaseException | None


async def call_on_thread(function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    """Call a user's plain function on a thread of the loop, in a copy of the caller's context.

    Unlike `asyncio.to_thread`, it raises any exception of the function in its own frame: a
    `StopIteration` in a future would never arrive (here it becomes a RuntimeError), and a
    `GeneratorExit` would close the caller.
    """

    def call() -> tuple[Any, BaseException | None]:
        try:
            return function(*arguments), None
        except BaseException as raised:  # noqa: BLE001 - raised in the waiting call
            return None, raised

    result, error = await asyncio.to_thread(call)
    if error is not None:
        raise error
    return result


class HandlerThreads:
    """Calls functions on the threads of an executor; of one loop.

    Args:
        executor: has the threads.
        count: how many.
        clock: separates quick functions from slow ones (monotonic).
    """

    __slots__ = (
        "_begun", "_clock", "_count", "_executor", "_is_told", "_line", "_loop", "_returned",
        "_slowness", "_taken", "_timer", "_woken",
    )  # fmt: skip

    def __init__(self, executor: Executor, count: int, clock: Clock) -> None:
        self._executor = executor
        self._count = count
        self._clock = clock
        self._line: deque[_Call] = deque()
        self._returned: deque[_Returned] = deque()
        self._loop: asyncio.AbstractEventLoop
        self._woken = 0  # threads that take calls, or are about to
        self._slowness = _SLOW  # 0: the last calls were quick
        self._taken = 0  # calls that came
        self._begun = -1  # calls that came before the timer was set; -1 without a timer
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False  # the loop knows that calls have returned

    @property
    def clock(self) -> Clock:
        """The clock it was made with."""
        return self._clock

    def call(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # noqa: ANN401
        """Have a thread call a function, in a copy of the caller's context; on the loop.

        Returns:
            The future of its result; one that is cancelled before the call begins prevents it.

        Raises:
            RuntimeError: the executor was shut down.
        """
        if not self._taken:
            self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._line.append(_Call(future, contextvars.copy_context(), function, arguments))
        self._taken += 1
        if not self._woken or (self._slowness and self._woken < self._count):
            self._wake(1)
        elif self._timer is None and self._woken < self._count:
            self._look_later()
        return future

    def _wake(self, count: int) -> None:
        for _ in range(count):
            woken = self._loop.run_in_executor(self._executor, self._take)
            self._woken += 1
            woken.add_done_callback(self._slept)

    def _look_later(self) -> None:
        self._begun = self._taken
        self._timer = self._loop.call_later(_LATE_S, self._look)

    def _look(self) -> None:
        """Wake threads for calls that have waited since the timer was set."""
        self._timer = None
        waiting = len(self._line)
        if not waiting:
            return
        if self._taken - waiting < self._begun:
            self._slowness = _SLOW
            self._wake_for(waiting)
        elif self._woken < self._count:
            self._look_later()

    def _wake_for(self, waiting: int) -> None:
        try:
            self._wake(min(waiting, self._count - self._woken))
        except RuntimeError as error:  # the executor was shut down
            for call in list(self._line):
                if not call.future.done():
                    call.future.set_exception(error)

    def _slept(self, woken: asyncio.Future[None]) -> None:
        """Note that a thread has found the line empty; a call may have come since."""
        self._woken -= 1
        self._tell()
        if woken.cancelled():
            for call in list(self._line):
                call.future.cancel()
        elif self._line and (self._slowness or not self._woken):
            self._wake_for(1)
        elif self._line and self._timer is None:
            self._look_later()  # all running threads may be blocked

    def _take(self) -> None:
        """Call what waits, one after the other; on a thread."""
        line, clock = self._line, self._clock
        while True:
            try:
                call = line.popleft()
            except IndexError:
                return
            if call.future.cancelled():
                continue
            began_ms = clock.monotonic_ms()
            result, error = None, None
            try:
                result = call.context.run(call.function, *call.arguments)
            except BaseException as raised:  # noqa: BLE001 - raised in the waiting call
                error = raised
            if clock.monotonic_ms() > began_ms:
                self._slowness = min(_SLOWEST, self._slowness + _SLOW)
            elif self._slowness:
                self._slowness -= 1
            self._returned.append(_Returned(call.future, result, error))
            if not self._is_told:
                self._is_told = True
                try:
                    self._loop.call_soon_threadsafe(self._tell)
                except RuntimeError:  # the loop is closed, no call waits
                    return

    def _tell(self) -> None:
        """Hand over what calls returned; on the loop."""
        self._is_told = False
        returned = self._returned
        while returned:
            future, result, error = returned.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            elif isinstance(error, (StopIteration, GeneratorExit)):
                # No future takes the first. For the second, the task that awaits the future would
                # close the coroutines below its outermost one, and they could await nothing.
                stopped = RuntimeError(f"a handler raised {shown(error)}")
                stopped.__cause__ = error
                future.set_exception(stopped)
            else:
                future.set_exception(error)
