"""Handing pulled messages to the user: workers that call a handler, or an iterator that is asked.

Source: ConsumeMessageConcurrentlyService (5.4.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from rocketpy.client.callbacks.handlers import CURRENT_WORKER, Invoke
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.pulling.process_queue import GiveBack, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import DEAD_LETTER, Retry, ToDLQ
from rocketpy.proto.trace import CONSUME_RAISED, CONSUMED
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")
Trace = Callable[[list[ReceivedMessage]], Callable[[int], None]]

_QUEUE_OF: Final[Callable[[ReceivedMessage], ProcessQueue]] = attrgetter("_settlement")
_RUN_OF: Final[Callable[[ReceivedMessage], tuple[ProcessQueue, str]]] = attrgetter(
    "_settlement", "topic"
)

# A handler that never waits must still let pulls and heartbeats run.
_YIELD_AFTER = 64
_CANCELLING_S: Final = 1.0


class _Chunk(NamedTuple):
    """What one call of a handler gets."""

    queue: ProcessQueue
    messages: list[ReceivedMessage]


class Delivery(NamedTuple):
    """A message, and the queue that waits for its outcome."""

    queue: ProcessQueue
    message: ReceivedMessage


class ConsumeService(Protocol):
    """Where pulled messages go."""

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The workers, that call a handler."""
        ...

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Take messages of one queue, in order."""
        ...

    def halt(self) -> None:
        """Hand out no more; what is in hand goes on."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Hand out no more and finish what is in hand, within a limit."""
        ...


class Workers(Generic[T]):
    """A fixed number of tasks that take items from a line, the oldest first.

    Args:
        handle: what is done with one; what it raises ends the worker.
        count: how many.
    """

    def __init__(self, handle: Callable[[T], Awaitable[None]], count: int) -> None:
        self._handle = handle
        self._line: deque[T] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._stopping = False
        self._workers = [
            asyncio.create_task(self._work(), name=f"rocketpy-worker-{number}")
            for number in range(count)
        ]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The workers."""
        return self._workers

    def add(self, items: Sequence[T]) -> None:
        """Put items at the end of the line, and wake as many workers."""
        self._line.extend(items)
        for _ in items:
            if not self._idle:
                return
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def halt(self) -> None:
        """Drop what no worker has begun; workers end with what they have in hand."""
        self._stopping = True
        self._line.clear()
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        self._idle.clear()

    async def stop(self, timeout_s: float) -> None:
        """Halt, wait for what is in hand, then cancel what still runs."""
        self.halt()
        await asyncio.wait(self._workers, timeout=timeout_s)
        running = [worker for worker in self._workers if not worker.done()]
        for worker in running:
            worker.cancel()
        if running:
            logger.warning(
                "%(count)d handlers did not finish in time and were cancelled",
                {"count": len(running)},
            )
            await wait_for_cancelled(running)

    async def _work(self) -> None:
        CURRENT_WORKER.set(asyncio.current_task())
        line = self._line
        since_yield = 0
        while not self._stopping:
            if not line:
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                since_yield = 0
                await waiter
                continue
            item = line.popleft()
            await self._handle(item)
            since_yield += 1
            if since_yield >= _YIELD_AFTER:
                since_yield = 0
                await asyncio.sleep(0)


async def wait_for_cancelled(workers: Iterable[asyncio.Task[None]]) -> None:
    """Wait for workers that were cancelled, but not for handlers that take no notice of it."""
    _, running = await asyncio.wait(workers, timeout=_CANCELLING_S)
    if running:
        logger.error(
            "%(count)d handlers go on though they were cancelled, and are left alone: what they "
            "have in hand comes again",
            {"count": len(running)},
        )


async def handled(invoke: Invoke, messages: list[ReceivedMessage]) -> int | None:
    """Call the handler with messages.

    Returns:
        None when it succeeded, else the delay level it wants them again with; 0 is any, -1 the
        dead letters.

    Raises:
        asyncio.CancelledError: the worker that calls this is to end.
    """
    try:
        await invoke(messages)
    except Retry as order:
        return order.delay_level
    except ToDLQ as order:
        logger.info(
            "to the dead letter queue: %(messages)r: %(reason)s",
            {"messages": messages, "reason": order.reason},
        )
        return DEAD_LETTER
    except asyncio.CancelledError:
        # Of something the handler waited for, unless it is we who are to end.
        worker = asyncio.current_task()
        if worker is None or worker.cancelling():
            raise
        logger.warning(
            "handler was cancelled, messages given back: %(messages)r", {"messages": messages}
        )
    except Exception:
        logger.warning(
            "handler failed, messages given back: %(messages)r",
            {"messages": messages},
            exc_info=True,
        )
    else:
        return None
    return 0


class ConcurrentService:
    """Calls the handler with messages as they come, many calls beside each other.

    Args:
        invoke: calls the user's handler.
        concurrency: number of workers.
        batch: most messages of one queue per call.
        give_back: for messages whose handling failed.
        stats: counts.
        clock: for the time a handler takes.
    """

    def __init__(
        self,
        invoke: Invoke,
        *,
        concurrency: int,
        batch: int,
        give_back: GiveBack,
        stats: ConsumeStats,
        clock: Clock,
    ) -> None:
        self._invoke = invoke
        self._batch = batch
        self._give_back = give_back
        self._stats = stats
        self._clock = clock
        self._workers = Workers(self._handle, concurrency)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """See `ConsumeService.tasks`."""
        return self._workers.tasks

    def halt(self) -> None:
        """See `ConsumeService.halt`."""
        self._workers.halt()

    async def stop(self, timeout_s: float) -> None:
        """See `ConsumeService.stop`."""
        await self._workers.stop(timeout_s)

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Cut into chunks and put them in line."""
        size = self._batch
        self._workers.add(
            [_Chunk(queue, messages[at : at + size]) for at in range(0, len(messages), size)]
        )

    async def _handle(self, chunk: _Chunk) -> None:
        queue, messages = chunk
        if queue.dropped:
            return
        started_ms = self._clock.monotonic_ms()
        for message in messages:
            queue.begin(message, started_ms)
        try:
            delay_level = await handled(self._invoke, messages)
        except BaseException:
            for message in messages:
                queue.end(message)
            raise
        count_handled(self._stats, self._clock, queue, messages, started_ms, ok=delay_level is None)
        if delay_level is None:
            queue.settle_run(messages, started_ms)
            return
        for message in messages:
            queue.end(message)
        for message in messages:
            await self._give_back(queue, message, delay_level)


def count_handled(
    stats: ConsumeStats,
    clock: Clock,
    queue: ProcessQueue,
    messages: Sequence[ReceivedMessage],
    started_ms: int,
    *,
    ok: bool,
) -> None:
    """Count one call of a handler that has ended."""
    queue.last_consume_ms = clock.time_ms()
    spent_ms = clock.monotonic_ms() - started_ms
    stats.handled(messages[0].topic, len(messages), spent_ms, ok=ok)


class IteratorService:
    """Messages for `async for`: each counts as done when the next one is asked for.

    Args:
        stats: counts.
        clock: for the time between two messages.
        trace: told of each message that is handed out; returns what is told how that ended.
    """

    def __init__(self, *, stats: ConsumeStats, clock: Clock, trace: Trace | None = None) -> None:
        self._stats = stats
        self._clock = clock
        self._trace = trace
        self._traced: dict[ReceivedMessage, Callable[[int], None]] = {}
        self._waiting: deque[ReceivedMessage] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failure: BaseException | None = None
        self._stopped = False
        self._since_yield = 0

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """None: who iterates is nobody of ours."""
        return ()

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:  # noqa: ARG002 - each message knows it
        """Queue up, and wake as many waiting iterators."""
        if self._stopped:
            return
        self._waiting.extend(messages)
        for _ in messages:
            if not self._waiters:
                return
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Raise `error` from the next (or waiting) iteration."""
        self._failure = error
        self._wake()

    def halt(self) -> None:
        """End every iteration, after the message in hand."""
        self._stopped = True
        self._waiting.clear()
        while self._waiters:
            self._wake()

    async def stop(self, timeout_s: float) -> None:  # noqa: ARG002 - nothing of ours runs
        """End every iteration."""
        self.halt()

    def take(self) -> ReceivedMessage | None:
        """Return the next message if there is one, and it is not time to let others run."""
        if self._since_yield >= _YIELD_AFTER or self._failure is not None:
            return None
        self._since_yield += 1
        waiting, now_ms = self._waiting, self._clock.monotonic_ms()
        while waiting:
            message = waiting.popleft()
            if _QUEUE_OF(message).take(message, now_ms):
                if self._trace is not None:
                    self._traced[message] = self._trace([message])
                return message
        return None

    def take_more(self, most: int) -> list[ReceivedMessage]:
        """Return up to `most` messages that are there."""
        taken: list[ReceivedMessage] = []
        waiting, now_ms = self._waiting, self._clock.monotonic_ms()
        while waiting and len(taken) < most:
            next_ones = [waiting.popleft() for _ in range(min(most - len(taken), len(waiting)))]
            for queue, run in groupby(next_ones, _QUEUE_OF):
                taken += queue.take_run(list(run), now_ms)
        if self._trace is not None:
            for message in taken:
                self._traced[message] = self._trace([message])
        self._since_yield += len(taken)
        return taken

    async def next(self) -> ReceivedMessage | None:
        """Return the next message, None once stopped; raises what `fail` was given."""
        if self._since_yield >= _YIELD_AFTER:
            self._since_yield = 0
            await asyncio.sleep(0)
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            message = self.take()
            if message is not None:
                return message
            if self._stopped:
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._since_yield = 0
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the message that was meant for us goes to another
                raise

    def again(self, message: ReceivedMessage) -> None:
        """Hand a message out again, before all others, unless it was acked or given back."""
        queue = _QUEUE_OF(message)
        self._tell(message, CONSUME_RAISED)
        queue.end(message)
        if not self._stopped and queue.waits(message):
            self._waiting.appendleft(message)
            self._wake()

    def _tell(self, message: ReceivedMessage, outcome: int) -> None:
        end = self._traced.pop(message, None)
        if end is not None:
            end(outcome)

    def done(self, message: ReceivedMessage) -> None:
        """Count a message as handled, unless it was acked or given back already."""
        if self._traced:
            self._tell(message, CONSUMED)
        queue = _QUEUE_OF(message)
        spent_ms = queue.settle(message, self._clock.monotonic_ms())
        if spent_ms is not None:
            queue.last_consume_ms = self._clock.time_ms()
            self._stats.handled(message.topic, 1, spent_ms, ok=True)

    def done_all(self, messages: list[ReceivedMessage]) -> tuple[()]:
        """Count messages as handled that were handed out together."""
        if self._traced:
            for message in messages:
                self._tell(message, CONSUMED)
        now_ms = self._clock.monotonic_ms()
        for (queue, topic), run in groupby(messages, _RUN_OF):
            count, spent_ms = queue.settle_run(list(run), now_ms)
            if count:
                queue.last_consume_ms = self._clock.time_ms()
                self._stats.handled(topic, count, spent_ms, ok=True)
        return ()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
