"""Delivery of received messages to a handler, by a fixed number of workers.

Pulled and popped messages take the same way; what their outcome means is the `Settlement`'s part.

Source: ConsumeMessageConcurrentlyService, ConsumeMessagePopConcurrentlyService (5.4.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handlers import CURRENT_WORKER, Invoke, in_own_context
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import (
    Rejection,
    Retry,
    ToDLQ,
    decision_of,
    ends_task,
    retrieve_exit,
    shown,
)
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
M = TypeVar("M", bound=ReceivedMessage)

YIELD_AFTER: Final = 64
"""Messages after which a worker or a loop yields: pulls and heartbeats must run in between, also
beside a handler that never waits."""
_CANCEL_TIMEOUT_S: Final = 1.0


class Settlement(Protocol[M]):
    """Keeper of delivered messages: the process queue of a pull, or the leases of a pop."""

    def begin(self, messages: list[M], now_ms: int) -> list[M]:
        """Note that a handler has messages from now on (monotonic).

        Returns:
            Those that are still to be handled.
        """
        ...

    def end(self, messages: list[M]) -> None:
        """Note that no handler has the messages any more, after any outcome."""
        ...

    async def settle(self, messages: list[M], now_ms: int) -> None:
        """End messages that were handled (monotonic), and finish them."""
        ...

    async def redeliver(self, messages: list[M], rejection: Rejection) -> None:
        """Have messages delivered again whose handler failed."""
        ...


class ConsumeService(Protocol[M]):
    """Receiver of pulled or popped messages: workers that call a handler, or iterators."""

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The workers that call a handler."""
        ...

    def deliver(self, settlement: Settlement[M], messages: list[M]) -> None:
        """Take messages of one queue or one pop, in order."""
        ...

    def halt(self) -> list[M]:
        """Hand out nothing more; return what was not handed out. Handlers continue."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Halt, and wait for handlers up to a limit."""
        ...


class DeliveryLine(Generic[T]):
    """Items in the order of delivery, and the tasks that wait for the next one.

    Attributes:
        items: items that were not taken.
        is_halted: nothing is taken any more.
    """

    __slots__ = ("_waiters", "is_halted", "items")

    def __init__(self) -> None:
        self.items: deque[T] = deque()
        self.is_halted: bool = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    def add(self, items: Sequence[T]) -> None:
        """Append items, and wake as many waiting tasks."""
        # Messages that arrive after a halt are not settled: the group gets them again.
        if self.is_halted:
            return
        self.items.extend(items)
        for _ in items:
            if not self._waiters:
                return
            self.wake()

    def add_first(self, item: T) -> None:
        """Put an item before all others."""
        self.items.appendleft(item)
        self.wake()

    def wake(self) -> None:
        """Wake one task."""
        while self._waiters:
            waiter = self._waiters.popleft()
            # A cancelled waiter is still listed, and would use up the wake-up of another task.
            if not waiter.done():
                waiter.set_result(None)
                return

    async def wait(self) -> None:
        """Wait to be woken: by an item, which another task may take first, or by `halt`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake()  # the item that woke this task is for another one
            raise

    def halt(self) -> list[T]:
        """Wake every task and drop all items; return them."""
        self.is_halted = True
        rest = list(self.items)
        self.items.clear()
        while self._waiters:
            self.wake()
        return rest


class _Unclosed(Coroutine[Any, Any, None]):
    """Coroutine of a worker that a `GeneratorExit` of an awaited future does not close.

    A task throws the exception of a future into its coroutine, and a `GeneratorExit` that is thrown
    closes the coroutines that it awaits: a failed handler could not be followed by a redelivery. As
    another exception, it is a failure of the handler. When Python destroys the task, it closes the
    inner coroutine itself.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> object:
        """Return what stack dumps of a task read, as `cr_frame`."""
        return getattr(self._coroutine, name)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()

    def send(self, value: object) -> Any:  # noqa: ANN401 - as a coroutine
        """Continue the worker."""
        return self._coroutine.send(value)

    def throw(self, error: Any, *rest: Any) -> Any:  # noqa: ANN401 - as a coroutine
        """Continue the worker by an exception."""
        if isinstance(error, GeneratorExit):
            stopped = RuntimeError(f"a future raised {shown(error)}")
            stopped.__cause__ = error
            return self._coroutine.throw(stopped)
        return self._coroutine.throw(error, *rest)

    def close(self) -> None:
        """Close the worker."""
        self._coroutine.close()


class Workers(Generic[T]):
    """Fixed number of tasks that take items from a line.

    Args:
        handle: handles one item; an exception of it that does not end the worker is logged.
        count: number of workers.
        failed: called with an item whose handling raised such an exception, and that exception.

    Attributes:
        line: the items.
        tasks: the workers.
    """

    def __init__(
        self,
        handle: Callable[[T], Awaitable[None]],
        count: int,
        failed: Callable[[T, BaseException], Awaitable[None]],
    ) -> None:
        self.line: DeliveryLine[T] = DeliveryLine()
        self._handle = handle
        self._failed = failed
        self.tasks: Final[Sequence[asyncio.Task[None]]] = [
            asyncio.create_task(_Unclosed(self._work()), name=f"rocketpy-worker-{number}")
            for number in range(count)
        ]

    async def stop(self, timeout_s: float) -> None:
        """Halt, wait for running handlers, then cancel those that still run."""
        # First, so that a worker that finishes during the wait takes no other item.
        self.line.halt()
        await asyncio.wait(self.tasks, timeout=timeout_s)
        running = [worker for worker in self.tasks if not worker.done()]
        for worker in running:
            worker.cancel()
        if running:
            logger.warning(
                "handlers did not finish in time and were cancelled: count=%(count)d",
                {"count": len(running)},
            )
            await wait_for_cancelled(running)

    async def _work(self) -> None:
        # By this mark a `close` inside the handler is refused: it would wait for its caller.
        worker = asyncio.current_task()
        CURRENT_WORKER.set(worker)
        line = self.line
        since_yield = 0
        while not line.is_halted:
            if not line.items:
                since_yield = 0
                await line.wait()
                continue
            item = line.items.popleft()
            try:
                await self._handle(item)
            except BaseException as error:
                if ends_task(error, worker):
                    retrieve_exit(error, worker)
                    raise
                await self._recover(item, error)
            since_yield += 1
            if since_yield >= YIELD_AFTER:
                since_yield = 0
                await asyncio.sleep(0)

    async def _recover(self, item: T, error: BaseException) -> None:
        """Log an unexpected failure, and release its item: messages behind it must not wait."""
        logger.error("worker failed and continues", exc_info=error)
        try:
            await self._failed(item, error)
        except Exception:
            logger.exception("worker did not release its messages")


async def wait_for_cancelled(workers: Iterable[asyncio.Task[None]]) -> None:
    """Wait for cancelled workers, up to a limit: a handler may ignore its cancellation."""
    _, running = await asyncio.wait(workers, timeout=_CANCEL_TIMEOUT_S)
    if running:
        logger.error(
            "handlers ignored their cancellation, their messages are delivered again: "
            "count=%(count)d",
            {"count": len(running)},
        )


async def run_handler(
    invoke: Invoke, messages: Sequence[ReceivedMessage], failures: FailureLog
) -> Rejection | None:
    """Call the handler with messages.

    Args:
        invoke: calls the user's handler.
        messages: copied, because the handler may change its list.
        failures: logs exceptions.

    Returns:
        None when it succeeded, else how the messages are to be redelivered.

    Raises:
        asyncio.CancelledError: the calling worker was cancelled.
    """
    worker = asyncio.current_task()
    try:
        await in_own_context(invoke([*messages]))
    except BaseException as raised:
        # Any failure of a handler is a failed delivery: it must not end the worker.
        if ends_task(raised, worker):
            raise
        error = decision_of(raised)
        if isinstance(error, ToDLQ):
            logger.info(
                "message sent to the dead letter queue: messages=%(messages)r reason=%(reason)s",
                {"messages": messages, "reason": error.reason},
            )
        elif isinstance(error, asyncio.CancelledError):
            logger.warning(
                "handler cancelled, messages redelivered: messages=%(messages)r",
                {"messages": messages},
            )
        elif not isinstance(error, Retry):
            failures.note(messages, error)
        return Rejection.of(error)
    return None


class Chunk(NamedTuple, Generic[M]):
    """Messages of one call of the handler."""

    settlement: Settlement[M]
    messages: list[M]


class ConcurrentService(Generic[M]):
    """Calls a handler with messages as they come; several calls run at the same time.

    Args:
        invoke: calls the user's handler.
        concurrency: number of workers.
        batch: most messages of one call.
        stats: counts outcomes.
        clock: measures the time a handler takes.
    """

    def __init__(
        self, invoke: Invoke, *, concurrency: int, batch: int, stats: ConsumeStats, clock: Clock
    ) -> None:
        self._invoke = invoke
        self._batch = batch
        self._stats = stats
        self._clock = clock
        self._failures = FailureLog(clock)
        self._workers: Workers[Chunk[M]] = Workers(self._handle, concurrency, self._release)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """See `ConsumeService.tasks`."""
        return self._workers.tasks

    @property
    def waiting(self) -> list[M]:
        """Messages that no worker has taken."""
        return [message for chunk in self._workers.line.items for message in chunk.messages]

    def halt(self) -> list[M]:
        """See `ConsumeService.halt`."""
        return [message for chunk in self._workers.line.halt() for message in chunk.messages]

    async def stop(self, timeout_s: float) -> None:
        """See `ConsumeService.stop`."""
        await self._workers.stop(timeout_s)

    def deliver(self, settlement: Settlement[M], messages: list[M]) -> None:
        """Split messages into chunks of one call each, and append them."""
        self._workers.line.add(self._chunks(settlement, messages))

    def _chunks(self, settlement: Settlement[M], messages: list[M]) -> list[Chunk[M]]:
        size = self._batch
        return [Chunk(settlement, messages[at : at + size]) for at in range(0, len(messages), size)]

    async def _handle(self, chunk: Chunk[M]) -> None:
        settlement = chunk.settlement
        started_ms = self._clock.monotonic_ms()
        # Not earlier: the queue may be dropped, or the time expire, while the chunk waits.
        messages = settlement.begin(chunk.messages, started_ms)
        if not messages:
            return
        try:
            rejection = await run_handler(self._invoke, messages, self._failures)
        except BaseException:
            # The worker was cancelled: the close nacks popped messages that no handler has.
            settlement.end(messages)
            raise
        now_ms = self._clock.monotonic_ms()
        is_success = rejection is None
        self._stats.handled(messages[0].topic, len(messages), now_ms - started_ms, ok=is_success)
        if rejection is None:
            await settlement.settle(messages, now_ms)
        else:
            # First: a message that no broker takes is delivered here again once no handler has it.
            settlement.end(messages)
            await settlement.redeliver(messages, rejection)

    async def _release(self, chunk: Chunk[M], error: BaseException) -> None:
        """Redeliver the messages of a call that failed outside of the handler."""
        chunk.settlement.end(chunk.messages)
        await chunk.settlement.redeliver(chunk.messages, Rejection.of(error))
