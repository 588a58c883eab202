"""Delivery of received messages to `async for` loops and to `getone` and `getmany`.

A message of an iterator is handled once the next one is asked for.

Source: there is none: Apache's clients call listeners only.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, Generic

from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import (
    YIELD_AFTER,
    DeliveryLine,
    M,
    Settlement,
)
from rocketpy.client.consumer.pulling.process_queue import queue_of
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.trace import CONSUME_RAISED, CONSUMED
from rocketpy.runtime.clock import Clock

_QUEUE_AND_TOPIC_OF: Final = attrgetter("_settlement", "topic")

Trace = Callable[[list[ReceivedMessage]], Callable[[int], None]]


class IteratorService(ABC, Generic[M]):
    """Messages for iterators; a `Source` of `MessageIterator` and `BatchIterator`.

    Args:
        clock: for the time between two messages.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
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
        self._line.wake()

    def halt(self) -> list[M]:
        """End every iteration after the current message; return what was not handed out."""
        return self._line.halt()

    async def stop(self, timeout_s: float) -> None:  # noqa: ARG002 - no task runs here
        """End every iteration."""
        self.halt()

    def take(self) -> M | None:
        """Return the next message if there is one, and it is not time to yield."""
        if self._since_yield >= YIELD_AFTER or self._failure is not None:
            return None
        waiting = self._line.items
        while waiting:
            taken = self._begin([waiting.popleft()])
            if taken:
                self._since_yield += 1
                return taken[0]
        return None

    def take_more(self, most: int) -> list[M]:
        """Return up to `most` messages that are there."""
        taken: list[M] = []
        waiting = self._line.items
        while waiting and len(taken) < most:
            count = min(most - len(taken), len(waiting))
            taken += self._begin([waiting.popleft() for _ in range(count)])
        self._since_yield += len(taken)
        return taken

    async def next(self) -> M | None:
        """Return the next message, None once halted; raises what `fail` was given."""
        if self._since_yield >= YIELD_AFTER:
            self._since_yield = 0
            await asyncio.sleep(0)
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            message = self.take()
            if message is not None:
                return message
            if self._line.is_halted:
                return None
            self._since_yield = 0
            await self._line.wait()

    def redeliver(self, message: M) -> None:
        """Hand a message out again, before all others, unless it was settled."""
        if self._end(message) and not self._line.is_halted:
            self._line.add_first(message)

    @abstractmethod
    def _begin(self, messages: list[M]) -> list[M]:
        """Note that messages are handed out; return those that are still to be handled."""

    @abstractmethod
    def _end(self, message: M) -> bool:
        """Note that a message was not handled; return whether it is still to be."""

    @abstractmethod
    def done(self, message: M) -> Awaitable[None] | None:
        """Settle a message that was handled; return what has to be awaited, if anything."""

    @abstractmethod
    def done_all(self, messages: list[M]) -> Sequence[Awaitable[None]]:
        """Settle messages that were handed out together."""


class PulledIterator(IteratorService[ReceivedMessage]):
    """Pulled messages for iterators; settling one lets the offset of its queue advance.

    Args:
        stats: counts outcomes.
        clock: for the time between two messages.
        trace: called with each message that is handed out; what it returns gets the outcome.
    """

    def __init__(self, *, stats: ConsumeStats, clock: Clock, trace: Trace | None = None) -> None:
        super().__init__(clock)
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

    def _end_trace(self, message: ReceivedMessage, outcome: int) -> None:
        end = self._traced.pop(message, None)
        if end is not None:
            end(outcome)

    def done(self, message: ReceivedMessage) -> None:
        """Count a message as handled, unless it was settled already."""
        if self._traced:
            self._end_trace(message, CONSUMED)
        self._finish([message], self._clock.monotonic_ms())

    def done_all(self, messages: list[ReceivedMessage]) -> tuple[()]:
        """Count messages as handled that were handed out together."""
        if self._traced:
            for message in messages:
                self._end_trace(message, CONSUMED)
        now_ms = self._clock.monotonic_ms()
        # In a retry topic's queue lie messages of several topics, which are counted by topic.
        for _, run in groupby(messages, _QUEUE_AND_TOPIC_OF):
            self._finish(list(run), now_ms)
        return ()

    def _finish(self, messages: list[ReceivedMessage], now_ms: int) -> None:
        count, spent_ms = queue_of(messages[0]).finish(messages, now_ms)
        if count:
            self._stats.handled(messages[0].topic, count, spent_ms, ok=True)
