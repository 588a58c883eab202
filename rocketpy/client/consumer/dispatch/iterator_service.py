"""Delivery of received messages to `async for` loops and to `getone` and `getmany`.

`rocketpy.client.consumer.iteration` describes when a message is handled and when it has failed. A
message that has failed is redelivered as one of a handler that raised.

Source: there is none: Apache's clients call listeners only.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic

from rocketpy.client.callbacks.loop_watch import IterationWatch
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import (
    YIELD_AFTER,
    DeliveryLine,
    M,
    Settlement,
)
from rocketpy.client.consumer.iteration import LeftMessages, LeftPositions
from rocketpy.client.consumer.pulling.process_queue import queue_of
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.proto.trace import CONSUME_RAISED, CONSUMED
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet

logger: logging.Logger = logging.getLogger(__name__)

_QUEUE_AND_TOPIC_OF: Final = attrgetter("_settlement", "topic")

LOOP_LEFT: Final = Rejection(reason="loops were left with the message twice")

Trace = Callable[[list[ReceivedMessage]], Callable[[int], None]]


class IteratorService(ABC, Generic[M]):
    """Messages for iterators; a `Source` of `MessageIterator` and `BatchIterator`.

    Args:
        clock: for the time between two messages.
        group: of the consumer.
        auto_ack: whether the next request of a caller settles its messages.
        earlier: messages that an earlier consumer of the group was left with.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        group: str,
        auto_ack: bool = True,
        earlier: LeftPositions | None = None,
    ) -> None:
        self.auto_ack: bool = auto_ack
        self.watch: IterationWatch = IterationWatch(clock, group)
        self._clock = clock
        self._left: LeftMessages[M] = LeftMessages(earlier)
        self._background: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._line: DeliveryLine[M] = DeliveryLine()
        self._failure: BaseException | None = None
        self._since_yield = 0

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """No tasks: the caller iterates in its own."""
        return ()

    @property
    def waiting(self) -> list[M]:
        """Messages that were not handed out."""
        return list(self._line.items)

    def deliver(self, settlement: Settlement[M], messages: list[M]) -> None:  # noqa: ARG002 - each message has it
        """Append messages, and wake as many waiting iterators."""
        self._line.add(messages)

    def fail(self, error: BaseException) -> None:
        """Raise `error` from the next (or waiting) iteration."""
        self._failure = error
        # One caller is enough, because `next` raises the failure once.
        self._line.wake()

    def halt(self) -> list[M]:
        """End every iteration after the current message; return what was not handed out."""
        return self._line.halt()

    async def stop(self, timeout_s: float) -> None:
        """End every iteration, and wait for outcomes that are being settled."""
        self.halt()
        if self._background:
            # Bounded: a broker that does not answer must not delay the close any longer.
            await asyncio.wait(self._background, timeout=timeout_s)

    def take(self) -> M | None:
        """Return the next message if there is one, and it is not time to yield."""
        if self._since_yield >= YIELD_AFTER or self._failure is not None:
            return None
        waiting = self._line.items
        while waiting:
            taken = self._take_waiting(1)
            if taken:
                self._since_yield += 1
                return taken[0]
        return None

    def take_more(self, most: int) -> list[M]:
        """Return up to `most` messages that are there."""
        taken: list[M] = []
        waiting = self._line.items
        while waiting and len(taken) < most:
            taken += self._take_waiting(min(most - len(taken), len(waiting)))
        self._since_yield += len(taken)
        return taken

    def _take_waiting(self, count: int) -> list[M]:
        waiting = self._line.items
        messages = [waiting.popleft() for _ in range(count)]
        taken = self._begin(messages)
        if len(taken) < count:
            self._left.settle(set(messages).difference(taken))
        return taken

    async def next(self) -> M | None:
        """Return the next message, None once halted; raises what `fail` was given."""
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._since_yield >= YIELD_AFTER:
                await self._yield()
                continue  # other callers may have taken as many meanwhile
            message = self.take()
            if message is not None:
                return message
            if self._line.is_halted:
                return None
            self._since_yield = 0
            await self._line.wait()

    async def _yield(self) -> None:
        self._since_yield = 0
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self._line.items:
                self._line.wake()  # the item that woke this caller is for another one
            raise

    def done_soon(self, messages: list[M]) -> None:
        """Settle messages that were handled in the background."""
        for work in self.done_all(messages):
            self._start(_wait_for(work))

    def redeliver(self, messages: list[M]) -> None:
        """Deliver messages again before all others; redeliver those that have failed.

        Settled messages are left out.
        """
        failed: list[M] = []
        # Reversed, because each is put before all others.
        for message in reversed(messages):
            has_failed = self._left.leave(message)
            # After a halt nothing is handed out; the group gets the messages again.
            if not self._end(message) or self._line.is_halted:
                self._left.settle([message])
            elif has_failed:
                failed.append(message)
            else:
                self._line.add_first(message)
        failed.reverse()
        self._start_failing(failed)

    def leave_by_exception(self, messages: list[M]) -> None:
        """Redeliver those that have failed, before the close; keep the positions of the others.

        Args:
            messages: handed out, in the moment when the consumer's block ends by an exception.
        """
        # Settled ones, and those on their way back, are left out.
        left = [each for each in messages if self._end(each)]
        self._start_failing([each for each in left if self._left.leave(each)])
        self._left.hand_down()

    def _start_failing(self, failed: list[M]) -> None:
        if failed:
            logger.warning(
                "loop left twice with messages, messages redelivered: messages=%(messages)r",
                {"messages": failed},
            )
            self._start(self._fail(failed))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        # The set keeps the task alive: an event loop has weak references only.
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @abstractmethod
    async def _fail(self, messages: list[M]) -> None:
        """Redeliver messages as those of a handler that failed."""

    @abstractmethod
    def _begin(self, messages: list[M]) -> list[M]:
        """Note that messages are handed out; return those that are still to be handled."""

    @abstractmethod
    def _end(self, message: M) -> bool:
        """Note that a message was not handled; return whether it still has to be."""

    @abstractmethod
    def done(self, message: M) -> Awaitable[None] | None:
        """Settle a message that was handled; return what has to be awaited, if anything."""

    @abstractmethod
    def done_all(self, messages: list[M]) -> Sequence[Awaitable[None]]:
        """Settle messages that were handed out together."""


async def _wait_for(work: Awaitable[None]) -> None:
    await work


class PulledIterator(IteratorService[ReceivedMessage]):
    """Pulled messages for iterators; settling one lets the offset of its queue advance.

    Args:
        stats: counts outcomes.
        clock: for the time between two messages.
        group: of the consumer.
        trace: called with each message that is handed out; what it returns gets the outcome.
        auto_ack: whether the next request of a caller settles its messages.
        earlier: messages that an earlier consumer of the group was left with.
    """

    def __init__(
        self,
        *,
        stats: ConsumeStats,
        clock: Clock,
        group: str,
        trace: Trace | None = None,
        auto_ack: bool = True,
        earlier: LeftPositions | None = None,
    ) -> None:
        super().__init__(clock, group=group, auto_ack=auto_ack, earlier=earlier)
        self._stats = stats
        self._trace = trace
        self._traced: dict[ReceivedMessage, Callable[[int], None]] = {}

    def _begin(self, messages: list[ReceivedMessage]) -> list[ReceivedMessage]:
        now_ms = self._clock.monotonic_ms()
        if len(messages) == 1:  # as a loop over single messages has it
            taken = queue_of(messages[0]).take(messages, now_ms)
        else:
            taken = []
            for queue, run in groupby(messages, queue_of):
                taken += queue.take(list(run), now_ms)
        if self._trace is not None:
            for message in taken:
                self._traced[message] = self._trace([message])
        return taken

    def _end(self, message: ReceivedMessage) -> bool:
        self._end_trace(message, CONSUME_RAISED)
        queue = queue_of(message)
        queue.end([message])
        return queue.waits(message)

    async def _fail(self, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            self._stats.handled(message.topic, 1, 0, ok=False)
            await queue_of(message).redeliver([message], LOOP_LEFT)

    def acked(self, message: ReceivedMessage) -> None:
        """Count a message as handled that its user acknowledged."""
        queue_of(message).stay(message)  # the outcome counts also while it is being sent back
        self.done(message)

    def nacked(self, message: ReceivedMessage) -> None:
        """End a message that its user rejected, and whose caller settles nothing else."""
        if not self.auto_ack and self._end(message):
            self._stats.handled(message.topic, 1, 0, ok=False)

    def _end_trace(self, message: ReceivedMessage, outcome: int) -> None:
        end = self._traced.pop(message, None)
        if end is not None:
            end(outcome)

    def done(self, message: ReceivedMessage) -> None:
        """Count a message as handled, unless it was settled already."""
        if self._traced:
            self._end_trace(message, CONSUMED)
        self._left.settle([message])
        self._finish([message], self._clock.monotonic_ms())

    def done_all(self, messages: list[ReceivedMessage]) -> tuple[()]:
        """Count messages as handled that were handed out together."""
        if self._traced:
            for message in messages:
                self._end_trace(message, CONSUMED)
        self._left.settle(messages)
        now_ms = self._clock.monotonic_ms()
        # In a retry topic's queue lie messages of several topics, which are counted by topic.
        for _, run in groupby(messages, _QUEUE_AND_TOPIC_OF):
            self._finish(list(run), now_ms)
        return ()

    def _finish(self, messages: list[ReceivedMessage], now_ms: int) -> None:
        count, spent_ms = queue_of(messages[0]).finish(messages, now_ms)
        if count:
            self._stats.handled(messages[0].topic, count, spent_ms, ok=True)
