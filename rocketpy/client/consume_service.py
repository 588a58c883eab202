"""Handing pulled messages to the user: workers that call a handler, or an iterator that is asked.

Step 31 of a message's life (docs/ARCHITECTURE.md).

Source: ConsumeMessageConcurrentlyService (5.4.0).
"""

import asyncio
import logging
from collections import deque
from typing import NamedTuple, Protocol

from rocketpy.client.consume_stats import ConsumeStats
from rocketpy.client.handlers import Invoke
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.outcomes import Retry, ToDLQ
from rocketpy.client.process_queue import GiveBack, ProcessQueue
from rocketpy.runtime.clock import Clock

logger = logging.getLogger(__name__)

# A handler that never waits must still let pulls and heartbeats run.
_YIELD_AFTER = 64


class _Chunk(NamedTuple):
    """What one call of a handler gets."""

    queue: ProcessQueue
    messages: list[ReceivedMessage]


class Delivery(NamedTuple):
    """A message for an iterator, and the queue that waits for its outcome."""

    queue: ProcessQueue
    message: ReceivedMessage


class ConsumeService(Protocol):
    """Where pulled messages go."""

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Take messages of one queue, in order."""
        ...

    async def stop(self, timeout_s: float) -> None:
        """Hand out no more and finish what is in hand, within a limit."""
        ...


class HandlerService:
    """A fixed number of workers that call the handler.

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
        self._chunks: deque[_Chunk] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._busy = 0
        self._stopping = False
        self._workers = [
            asyncio.create_task(self._work(), name=f"rocketpy-worker-{number}")
            for number in range(concurrency)
        ]

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Cut into chunks and wake as many workers."""
        size = self._batch
        chunks = [_Chunk(queue, messages[at : at + size]) for at in range(0, len(messages), size)]
        self._chunks.extend(chunks)
        for _ in chunks:
            if not self._idle:
                return
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def stop(self, timeout_s: float) -> None:
        """Drop what no handler has begun, wait for the others, then cancel those still running."""
        self._stopping = True
        self._chunks.clear()
        for waiter in self._idle:
            if not waiter.done():
                waiter.set_result(None)
        self._idle.clear()
        await asyncio.wait(self._workers, timeout=timeout_s)
        running = [worker for worker in self._workers if not worker.done()]
        for worker in running:
            worker.cancel()
        if running:
            logger.warning("%d handlers did not finish in time and were cancelled", len(running))
            await asyncio.wait(running)

    async def _work(self) -> None:
        chunks = self._chunks
        since_yield = 0
        while not self._stopping:
            if not chunks:
                waiter = asyncio.get_running_loop().create_future()
                self._idle.append(waiter)
                since_yield = 0
                await waiter
                continue
            chunk = chunks.popleft()
            await self._handle(chunk)
            since_yield += 1
            if since_yield >= _YIELD_AFTER:
                since_yield = 0
                await asyncio.sleep(0)

    async def _handle(self, chunk: _Chunk) -> None:
        queue, messages = chunk
        if queue.dropped:
            return
        started_ms = self._clock.monotonic_ms()
        for message in messages:
            queue.begin(message, started_ms)
        delay_level = 0
        try:
            await self._invoke(messages)
        except Retry as order:
            delay_level = order.delay_level
        except ToDLQ as order:
            logger.info("to the dead letter queue: %r: %s", messages, order.reason)
            delay_level = -1
        except asyncio.CancelledError:
            # Of something the handler waited for, unless it is we who are to end.
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            logger.warning("handler was cancelled, to be delivered again: %r", messages)
        except Exception:
            logger.warning("handler failed, to be delivered again: %r", messages, exc_info=True)
        else:
            self._done(chunk, started_ms, ok=True)
            for message in messages:
                queue.remove(message)
            return
        self._done(chunk, started_ms, ok=False)
        for message in messages:
            await self._give_back(queue, message, delay_level)

    def _done(self, chunk: _Chunk, started_ms: int, *, ok: bool) -> None:
        queue, messages = chunk
        queue.last_consume_ms = self._clock.time_ms()
        spent_ms = self._clock.monotonic_ms() - started_ms
        self._stats.handled(messages[0].topic, len(messages), spent_ms, ok=ok)


class IteratorService:
    """Messages for `async for`: each counts as done when the next one is asked for.

    Args:
        stats: counts.
        clock: for the time between two messages.
    """

    def __init__(self, *, stats: ConsumeStats, clock: Clock) -> None:
        self._stats = stats
        self._clock = clock
        self._deliveries: deque[Delivery] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._failure: BaseException | None = None
        self._stopped = False
        self._since_yield = 0

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Queue up, and wake as many waiting iterators."""
        self._deliveries.extend([Delivery(queue, message) for message in messages])
        for _ in messages:
            if not self._waiters:
                return
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Raise `error` from the next (or waiting) iteration."""
        self._failure = error
        self._wake()

    async def stop(self, timeout_s: float) -> None:  # noqa: ARG002 - nothing of ours runs
        """End every iteration."""
        self._stopped = True
        self._deliveries.clear()
        while self._waiters:
            self._wake()

    async def next(self) -> Delivery | None:
        """Return the next message, None once stopped; raises what `fail` was given."""
        self._since_yield += 1
        if self._since_yield >= _YIELD_AFTER:
            self._since_yield = 0
            await asyncio.sleep(0)
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            while self._deliveries:
                delivery = self._deliveries.popleft()
                if not delivery.queue.dropped:
                    delivery.queue.begin(delivery.message, self._clock.monotonic_ms())
                    return delivery
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

    def done(self, delivery: Delivery) -> None:
        """Count a message as handled, unless it was acked or given back already."""
        queue, message = delivery
        started_ms = queue.started_ms(message)
        if not queue.dropped and queue.remove(message):
            queue.last_consume_ms = self._clock.time_ms()
            now_ms = self._clock.monotonic_ms()
            spent_ms = 0 if started_ms is None else now_ms - started_ms
            self._stats.handled(message.topic, 1, spent_ms, ok=True)

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
