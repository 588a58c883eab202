"""Event loop in virtual time, with processes that can be killed.

Time stands still while anything can run, and jumps to the next timer when nothing can: hours pass
in milliseconds, and a run with the same seed repeats exactly. There are no threads and no sockets:
`run_in_executor` runs its function on a later turn of the loop.

asyncio promises that callbacks run in the order of `call_soon`; that order stays. Where it promises
nothing, between timers due at the same moment, the seed decides.

Tasks, callbacks and timers belong to a `SimProcess`, which they inherit through their context
(`contextvars`). Killing a process drops all of them at once, wherever they wait: no `finally`
runs, as with `kill -9`.
"""

import asyncio
import contextvars
import heapq
import inspect
import itertools
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

from rocketpy.errors import RocketPyError
from rocketpy.runtime.ordered_set import OrderedSet

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]

START_MS: Final = 1_800_000_000_000
_SPIN_LIMIT: Final = 100_000
_LAST_TURNS: Final = 10
_LAST_PAUSE_S: Final = 10.0


class SimulationStuckError(RocketPyError):
    """All tasks wait without a timer, or the loop runs without time passing."""


class SimProcess:
    """Simulated process: tasks, callbacks and timers that can be killed together.

    Attributes:
        name: for error texts.
        is_alive: False after it was killed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive: bool = True
        self.context: contextvars.Context = contextvars.copy_context()
        self.context.run(_process.set, self)

    def __repr__(self) -> str:
        """Return name and state."""
        return f"<SimProcess {self.name} {'alive' if self.is_alive else 'dead'}>"

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process, on the running loop."""
        loop = asyncio.get_running_loop()
        return loop.create_task(coroutine, context=self.context.copy())

    def call(self, function: Callable[[Unpack[Ts]], T], *args: *Ts) -> T:
        """Call a function in this process, now."""
        return self.context.copy().run(function, *args)

    def kill(self) -> None:
        """Kill the process: nothing of it runs again."""
        self.is_alive = False


_process: contextvars.ContextVar[SimProcess | None] = contextvars.ContextVar(
    "rocketpy_sim_process", default=None
)


def current_process() -> SimProcess | None:
    """Return the running process; None for the test itself."""
    return _process.get()


async def pass_time(seconds: float) -> None:
    """Let virtual time pass, while other tasks run."""
    await asyncio.sleep(seconds)


class LoopClock:
    """The clocks of a simulated machine; satisfies `rocketpy.runtime.clock.Clock`.

    Args:
        loop: source of the time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wall_ms = START_MS

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970."""
        return self._wall_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        """Monotonic time, ms."""
        return round(self._loop.time() * 1_000)

    def jump(self, change_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._wall_ms += change_ms


class SimLoop(asyncio.AbstractEventLoop):
    """Event loop in virtual time; see the module.

    Args:
        seed: decides the order that asyncio leaves open.
    """

    def __init__(self, seed: int = 0) -> None:
        self.rng: random.Random = random.Random(seed)  # noqa: S311 - repeats, guards nothing
        self.errors: list[dict[str, Any]] = []
        self._now_s = 0.0
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._turns = 0
        self._is_running = self._is_stopping = self._is_closed = False
        self._debug = False
        self._exception_handler: _ExceptionHandler | None = None
        self._task_factory: Any = None
        self._tasks: OrderedSet[asyncio.Task[Any]] = OrderedSet()
        self._running_process: SimProcess | None = None
        self._is_ending = False

    # -- time --------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """See `asyncio.loop.call_soon`."""
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Same as `call_soon`, because there is only one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_later`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio.loop.call_at`; the seed orders timers of the same moment."""
        self._check_open()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        due_s = max(self._now_s, when)
        heapq.heappush(self._timers, (due_s, self.rng.random(), next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it is due."""

    # -- running -----------------------------------------------------------------------------

    def run_forever(self) -> None:
        """Run until `stop`.

        Raises:
            SimulationStuckError: nothing is left to run, or time does not pass.
        """
        self._check_open()
        if self._is_running:
            raise RuntimeError("this loop runs already")
        before = asyncio._get_running_loop()  # noqa: SLF001 - what loops are to call
        self._is_running = True
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            while not self._is_stopping:
                self._turn()
        finally:
            self._is_running = self._is_stopping = False
            asyncio._set_running_loop(before)  # noqa: SLF001

    def _turn(self) -> None:
        if not self._ready:
            self._pass_time()
        self._turns += 1
        if self._turns > _SPIN_LIMIT:
            raise SimulationStuckError(f"the loop spins at {self.time()} s")
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            process = handle._context.get(_process)  # type: ignore[attr-defined]  # noqa: SLF001
            if self._may_run(process, handle):
                self._running_process = process
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - what loops are to call
            else:
                _forget(handle)

    def _may_run(self, process: SimProcess | None, handle: asyncio.Handle | None = None) -> bool:
        """Return whether callbacks of a process may run.

        At the end the tasks of dead processes are cancelled and finish. Their timers do not run,
        because a service would write to the disk of the next process.
        """
        if process is None or process.is_alive:
            return True
        return self._is_ending and not isinstance(handle, asyncio.TimerHandle)

    def _pass_time(self) -> None:
        """Jump to the next live timer, and make all timers due at that time ready."""
        while self._timers and self._timers[0][3].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise SimulationStuckError("all tasks wait, and no timer is left")
        due_s = self._timers[0][0]
        if due_s > self._now_s:
            self._now_s, self._turns = due_s, 0
        while self._timers and self._timers[0][0] <= self._now_s:
            self._ready.append(heapq.heappop(self._timers)[3])

    def run_until_complete(
        self,
        future: Awaitable[T],  # type: ignore[override]  # a generator is no awaitable any more
    ) -> T:
        """See `asyncio.loop.run_until_complete`."""
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._stop_when_done)
        try:
            self.run_forever()
        finally:
            task.remove_done_callback(self._stop_when_done)
        if not task.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return task.result()

    def _stop_when_done(self, _: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop after this iteration."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Return whether the loop runs."""
        return self._is_running

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""
        return self._is_closed

    def end_tasks(self) -> None:
        """Cancel remaining tasks, also of dead processes, and let them finish; before `close`."""
        self._is_ending = True
        for _ in range(_LAST_TURNS):
            rest = [task for task in self._tasks if not task.done() and not _never_ran(task)]
            if not rest:
                return
            for task in rest:
                task.cancel()
            self.call_later(_LAST_PAUSE_S, self.stop)
            self.run_forever()

    def close(self) -> None:
        """Close the loop; remaining callbacks are dropped."""
        self._is_closed = True
        for handle in (*self._ready, *(timer[3] for timer in self._timers)):
            _forget(handle)
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: generators are left to the garbage collector."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Do nothing: there is no executor."""

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("the event loop is closed")

    # -- tasks -------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: object,
    ) -> asyncio.Task[T]:
        """Run a coroutine; tasks of killed processes are kept until the loop ends."""
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - there are no threads
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Run a function in the next iteration of the loop; the executor is ignored."""
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - the waiting caller gets it
                future.set_exception(error)

        self.call_soon(run)
        return future

    # -- other methods of a loop ---------------------------------------------------------------

    def set_task_factory(self, factory: Any) -> None:  # noqa: ANN401 - as asyncio has it
        """Accept None only; other factories are not supported."""
        assert factory is None, "the simulation creates the tasks"

    def get_task_factory(self) -> None:
        """Return None: there is no factory."""
        return

    def get_debug(self) -> bool:
        """Return whether debug mode is on."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Set debug mode."""
        self._debug = enabled

    def set_exception_handler(self, handler: _ExceptionHandler | None) -> None:
        """Set the handler of unhandled errors."""
        self._exception_handler = handler

    def get_exception_handler(self) -> _ExceptionHandler | None:
        """Return the handler of unhandled errors."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error in `errors` and log it; errors of dead processes are ignored."""
        error = context.get("exception")
        if error is not None and not isinstance(error, Exception):
            return  # the end of a process
        if self._is_ending or not self._may_run(self._running_process):
            return
        self.errors.append(context)
        _logger.error("%s", context.get("message"), exc_info=context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio.loop.call_exception_handler`."""
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)


def _never_ran(task: asyncio.Task[Any]) -> bool:
    """Close the coroutine of a task whose process died before its first step."""
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine):
        return False
    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        coroutine.close()
    return inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def _forget(handle: asyncio.Handle) -> None:
    """Close coroutines that would have become tasks, which avoids never-awaited warnings."""
    for each in handle._args or ():  # noqa: SLF001
        if asyncio.iscoroutine(each):
            each.close()
