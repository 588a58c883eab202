"""Handing popped messages to the user: workers that call a handler, or an iterator that is asked.

A message whose time is over before its turn comes is not handed out: another member has it.
Apache's client lets the time of what waits run out; here the consumer keeps it while handlers get
on.

Source: ConsumeMessagePopConcurrentlyService, ConsumeMessagePopOrderlyService (5.4.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from rocketpy.client.callbacks.handlers import CURRENT_WORKER, Invoke
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import wait_for_cancelled
from rocketpy.client.messages.outcomes import Retry, ToDLQ
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.popped_message import DEAD_LETTER, PoppedMessage, delay_of_level
from rocketpy.errors import RocketPyError
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet

logger: logging.Logger = logging.getLogger(__name__)


class _Failed(NamedTuple):
    """The handler failed; when its messages come back is as in `InvisibleMessages.nack`."""

    delay_s: float | None


class PopService:
    """Popped messages in the order in which they came.

    Args:
        hand: settles them.
        stats: counts.
        clock: for the time a handler takes.
        invoke: calls the user's handler; None: an iterator asks with `next`.
        concurrency: handlers that run at the same time.
        batch: most messages of one pop per call of the handler.
    """

    def __init__(
        self,
        hand: InvisibleMessages,
        stats: ConsumeStats,
        clock: Clock,
        *,
        invoke: Invoke | None,
        concurrency: int,
        batch: int,
    ) -> None:
        self._hand = hand
        self._stats = stats
        self._clock = clock
        self._invoke = invoke
        self._batch = batch
        self._chunks: deque[list[PoppedMessage]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._stopped = False
        self._failure: BaseException | None = None
        self._handled: OrderedSet[PoppedMessage] = OrderedSet()
        self._taken_ms = clock.monotonic_ms()
        self._workers: list[asyncio.Task[None]] = []
        if invoke is not None:
            self._workers = [
                asyncio.create_task(self._work(invoke), name=f"rocketpy-pop-worker-{number}")
                for number in range(concurrency)
            ]

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The workers, that call a handler."""
        return self._workers

    @property
    def is_halted(self) -> bool:
        """Whether nothing more is handed out."""
        return self._stopped

    @property
    def waiting(self) -> list[PoppedMessage]:
        """What was not handed out yet."""
        return [message for chunk in self._chunks for message in chunk]

    @property
    def idle_ms(self) -> int:
        """How long nobody has taken a message."""
        return self._clock.monotonic_ms() - self._taken_ms

    def is_handled(self, message: PoppedMessage) -> bool:
        """Whether a handler has it right now."""
        return message in self._handled

    def deliver(self, messages: list[PoppedMessage]) -> None:
        """Take what a pop brought; wakes who waits for it."""
        if self._stopped:
            return
        size = self._batch if self._invoke is not None else 1
        chunks = [messages[at : at + size] for at in range(0, len(messages), size)]
        self._chunks.extend(chunks)
        for _ in chunks:
            self._wake()

    def take(self) -> PoppedMessage | None:
        """Return None: each message is waited for in its turn."""
        return None

    async def next(self) -> PoppedMessage | None:
        """Return the next message for an iterator; None once stopped; raises what `fail` got."""
        chunk = await self._next_chunk()
        return None if chunk is None else chunk[0]

    def take_more(self, most: int) -> list[PoppedMessage]:
        """Return up to `most` messages that are there, and still ours."""
        taken: list[PoppedMessage] = []
        self._taken_ms = self._clock.monotonic_ms()
        while self._chunks and len(taken) < most:
            taken += [each for each in self._chunks.popleft() if self._hand.holds(each)]
        return taken

    def again(self, message: PoppedMessage) -> None:
        """Hand a message out again, before all others, unless it was settled."""
        if not self._stopped and self._hand.holds(message):
            self._chunks.appendleft([message])
            self._wake()

    def fail(self, error: BaseException) -> None:
        """Raise `error` from the next (or waiting) iteration."""
        self._failure = error
        if self._invoke is None:
            self._wake()

    async def done(self, message: PoppedMessage) -> None:
        """Ack what an iterator handed out, unless it was settled already; failures are logged."""
        if self._hand.holds(message):
            await self._ack(message)

    def done_all(self, messages: list[PoppedMessage]) -> list[Awaitable[None]]:
        """Return the acks of messages that were handed out together."""
        return [self.done(message) for message in messages]

    def halt(self) -> list[PoppedMessage]:
        """Hand out no more, what is in hand goes on; returns what was not handed out."""
        self._stopped = True
        rest = self.waiting
        self._chunks.clear()
        while self._waiters:
            self._wake()
        return rest

    async def stop(self, timeout_s: float) -> None:
        """Hand out no more and finish what is in hand, within a limit."""
        self.halt()
        if self._workers:
            _, running = await asyncio.wait(self._workers, timeout=timeout_s)
            for worker in running:
                worker.cancel()
            if running:
                await wait_for_cancelled(running)

    async def _next_chunk(self) -> list[PoppedMessage] | None:
        while True:
            if self._failure is not None and self._invoke is None:
                failure, self._failure = self._failure, None
                raise failure
            while self._chunks:
                chunk = [each for each in self._chunks.popleft() if self._hand.holds(each)]
                if chunk:
                    self._taken_ms = self._clock.monotonic_ms()
                    return chunk
            if self._stopped:
                return None
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the message that was meant for us goes to another
                raise

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _work(self, invoke: Invoke) -> None:
        CURRENT_WORKER.set(asyncio.current_task())
        while (chunk := await self._next_chunk()) is not None:
            started_ms = self._clock.monotonic_ms()
            self._handled.update(dict.fromkeys(chunk))
            try:
                failed = await self._handle(invoke, chunk)
            finally:
                for message in chunk:
                    self._handled.discard(message)
            spent_ms = self._clock.monotonic_ms() - started_ms
            self._stats.handled(chunk[0].topic, len(chunk), spent_ms, ok=failed is None)
            for message in chunk:
                if failed is None:
                    await self._ack(message)
                else:
                    await self._nack(message, failed.delay_s)

    async def _handle(self, invoke: Invoke, chunk: list[PoppedMessage]) -> _Failed | None:
        """Call the handler; None when the messages are done."""
        try:
            await invoke(list(chunk))
        except Retry as order:
            return _Failed(delay_of_level(order.delay_level))
        except ToDLQ as order:
            logger.info(
                "to the dead letter queue: %(messages)r: %(reason)s",
                {"messages": chunk, "reason": order.reason},
            )
            return _Failed(DEAD_LETTER)
        except asyncio.CancelledError:
            # Of something the handler waited for, unless it is we who are to end.
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            logger.warning(
                "handler was cancelled, messages given back: %(messages)r", {"messages": chunk}
            )
        except Exception:
            logger.warning(
                "handler failed, messages given back: %(messages)r",
                {"messages": chunk},
                exc_info=True,
            )
        else:
            return None
        return _Failed(None)

    async def _ack(self, message: PoppedMessage) -> None:
        try:
            await self._hand.ack(message)
        except RocketPyError as error:
            logger.warning(
                "%(message)r is done, but may come again: %(error)r",
                {"message": message, "error": error},
            )

    async def _nack(self, message: PoppedMessage, delay_s: float | None) -> None:
        try:
            await self._hand.nack(message, delay_s)
        except RocketPyError as error:
            logger.info(
                "%(message)r comes back after its invisible time: %(error)r",
                {"message": message, "error": error},
            )
