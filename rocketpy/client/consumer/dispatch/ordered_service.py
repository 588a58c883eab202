"""Ordered delivery: lanes that have one handler at a time each, and run concurrently.

A lane is a queue (`ordered`) or a key (`order_by_key`). Its states:

    from       event                                                to
    (none)     a message is delivered                               READY
    READY      a worker takes its next messages                     RUNNING
    READY      its queue is not locked by this member               WAITING
    RUNNING    the handler succeeded, or a message was buried       READY, or (none) when empty
    RUNNING    the handler failed                                   WAITING
    WAITING    after a pause                                        READY

A message whose key function fails has a lane alone, and fails as one whose handler raises; after
the pause the function is called again.

A failed message stays at the front of its lane, so no message of the lane overtakes it.

Source: ConsumeMessageOrderlyService (5.4.0).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import Workers, run_handler
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue, queue_of
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import ENDS_PROGRAM, Backoff, Rejection
from rocketpy.errors import RocketPyError
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

LaneOf = Callable[[ProcessQueue, ReceivedMessage], Hashable]
"""Returns the lane of a message; messages of one lane are handled one after the other."""

BLOCKED_PAUSE_S: Final = 0.1
"""Interval in which a waiting lane checks the lock of its queue."""


def queue_lane(queue: ProcessQueue, _message: ReceivedMessage) -> Hashable:
    """Return the queue: its messages are one lane, also after a restart of the queue."""
    return queue.queue


def key_lane(key_of: Callable[[ReceivedMessage], Hashable | None]) -> LaneOf:
    """Return a `LaneOf` with one lane a key; a message without a key has a lane alone.

    Args:
        key_of: the key of a message; None when it has none.
    """

    def lane_of(queue: ProcessQueue, message: ReceivedMessage) -> Hashable:
        key = key_of(message)
        # The key is wrapped: it could equal the name of the lane of a message without a key.
        return (queue.queue, message.offset) if key is None else (key,)

    return lane_of


class _UnknownKey:
    """Name of the lane of a message whose key function failed; unequal to any other name."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Lane:
    __slots__ = ("messages", "name")

    def __init__(self, name: Hashable) -> None:
        self.name = name
        self.messages: deque[ReceivedMessage] = deque()


class OrderedService:
    """Calls the handler with the messages of each lane in order.

    Args:
        invoke: calls the user's handler.
        concurrency: number of lanes that are handled at the same time.
        batch: most messages of one lane in one call.
        lane_of: assigns messages to lanes.
        may_run: returns whether messages of a queue may be handled now.
        bury: sends a message to the dead letter queue; None when broadcasting, which drops it.
        max_retries: retries of a message before it is buried; unlimited below 0.
        suspend_ms: pause of a lane after its handler failed, unless the handler or `backoff`
            chooses another.
        backoff: returns pauses of retries; None for `suspend_ms`.
        stats: counts outcomes.
        clock: measures the time a handler takes.
        failed: gets the messages that fail before their call, which `invoke` reads.
    """

    def __init__(  # noqa: PLR0913 - each is one rule of delivery
        self,
        invoke: Invoke,
        *,
        concurrency: int,
        batch: int,
        lane_of: LaneOf,
        may_run: Callable[[ProcessQueue], bool],
        bury: Callable[[ReceivedMessage, Rejection], Awaitable[None]] | None,
        max_retries: int,
        suspend_ms: int,
        stats: ConsumeStats,
        clock: Clock,
        backoff: Backoff | None = None,
        failed: dict[ReceivedMessage, BaseException] | None = None,
    ) -> None:
        self._failed_before = {} if failed is None else failed
        self._invoke = invoke
        self._batch = batch
        self._lane_of = lane_of
        self._may_run = may_run
        self._bury = bury
        self._max_retries = max_retries
        self._suspend_s = suspend_ms / 1000
        self._backoff = backoff
        self._stats = stats
        self._clock = clock
        self._failures = FailureLog(clock)
        self._nacked: dict[ReceivedMessage, Rejection] = {}  # by running handlers
        self._lanes: dict[Hashable, _Lane] = {}
        self._workers = Workers(self._work_on, concurrency, self._release)

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """The workers that call the handler."""
        return self._workers.tasks

    def halt(self) -> None:
        """Begin no other lane; handlers continue."""
        self._workers.line.halt()

    async def stop(self, timeout_s: float) -> None:
        """Halt, and wait for handlers up to a limit."""
        await self._workers.stop(timeout_s)

    def deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Put messages at the end of their lanes."""
        fresh = []
        for message in messages:
            name = self._name_of(queue, message)
            lane = self._lanes.get(name)
            # An existing lane is in the line, running or waiting: added twice, two workers
            # would handle it at the same time.
            if lane is None:
                lane = self._lanes[name] = _Lane(name)
                fresh.append(lane)
            lane.messages.append(message)
        self._workers.line.add(fresh)

    def _name_of(self, queue: ProcessQueue, message: ReceivedMessage) -> Hashable:
        """Return the name of a message's lane; the user's function must not end the pulls."""
        try:
            name = self._lane_of(queue, message)
            hash(name)
        except ENDS_PROGRAM:
            raise
        except BaseException as error:  # noqa: BLE001 - the message's failure
            self._failed_before[message] = error
            return _UnknownKey(error)
        return name

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> None:
        """Mark a message as failed, or bury it; a `GiveBack`.

        The lane acts on the mark when the handler has returned.
        """
        if rejection.is_dead_letter:
            await self._bury_message(queue, message, rejection)
        elif queue.leave(message) and queue.started_ms(message) is not None:
            self._nacked[message] = rejection

    # ---- one call of a lane

    async def _work_on(self, lane: _Lane) -> None:
        messages, queue = self._next(lane)
        if queue is None:
            # No await since the check that it is empty: a message delivered between would be lost.
            del self._lanes[lane.name]
            return
        # Before each call, because the lock may lapse while the lane waits for a worker.
        if not self._may_run(queue):
            self._wait(lane, BLOCKED_PAUSE_S)
            return
        pause_s = await self._handle(queue, messages)
        if pause_s is None:
            # To the end of the line: a long lane must not keep a worker from the other lanes.
            self._workers.line.add([lane])
        elif isinstance(lane.name, _UnknownKey):
            # The function may return a key the next time, and the message belongs in that lane.
            del self._lanes[lane.name]
            asyncio.get_running_loop().call_later(pause_s, self._deliver_again, queue, messages)
        else:
            self._wait(lane, pause_s)

    async def _release(self, lane: _Lane, error: BaseException) -> None:  # noqa: ARG002 - logged
        """Retry a lane whose call failed outside of the handler: it must not stay without one."""
        self._wait(lane, self._suspend_s)

    def _deliver_again(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        if not self._workers.line.is_halted:
            self.deliver(queue, [each for each in messages if queue.holds(each)])

    def _next(self, lane: _Lane) -> tuple[list[ReceivedMessage], ProcessQueue | None]:
        """Return the next messages of one queue, which stay in the lane; remove finished ones."""
        waiting = lane.messages
        while waiting and not queue_of(waiting[0]).holds(waiting[0]):
            self._failed_before.pop(waiting.popleft(), None)
        if not waiting:
            return [], None
        queue = queue_of(waiting[0])
        messages: list[ReceivedMessage] = []
        for message in waiting:
            # The lane of a key has messages of several queues: one call settles those of one.
            if len(messages) == self._batch or queue_of(message) is not queue:
                break
            if queue.holds(message):
                messages.append(message)
        return messages, queue

    async def _handle(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> float | None:
        """Call the handler; return how long the lane has to wait, None when it may continue."""
        started_ms = self._clock.monotonic_ms()
        queue.begin(messages, started_ms)
        try:
            rejection = await run_handler(self._invoke, messages, self._failures)
            queue.last_consume_ms = self._clock.time_ms()
            now_ms = self._clock.monotonic_ms()
            ok = rejection is None
            self._stats.handled(messages[0].topic, len(messages), now_ms - started_ms, ok=ok)
            pauses_s: list[float] = []
            for message in messages:
                nacked = self._nacked.pop(message, Rejection())
                # Nothing is finished when the handler nacked the message or the queue was dropped.
                if ok and queue.finish([message], now_ms)[0]:
                    continue
                # The next owner handles messages of a dropped queue: here they did not fail.
                if queue.holds(message):
                    queue.stay(message)
                    pause_s = await self._failed(queue, message, rejection or nacked)
                    pauses_s += [] if pause_s is None else [pause_s]
        finally:
            # After dead letters were stored: the release of a queue waits for this, then drops it.
            queue.end(messages)
            for message in messages:
                self._nacked.pop(message, None)
                self._failed_before.pop(message, None)
        # The longest, because no message may be retried before its delay.
        return max(pauses_s, default=None)

    async def _failed(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> float | None:
        """Count a failure of a message; return the pause before its retry, None if it is buried."""
        is_last = 0 <= self._max_retries <= message.retries
        if (is_last or rejection.is_dead_letter) and await self._bury_message(
            queue, message, rejection
        ):
            return None
        message.retries += 1
        message.ext.reconsume_times += 1
        chosen_s = rejection.backed_off(self._backoff, message.retries).delay_s
        return self._suspend_s if chosen_s is None else chosen_s

    async def _bury_message(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> bool:
        if self._bury is None:
            logger.warning(
                "broadcast message dropped after its last retry: message=%(message)r",
                {"message": message},
            )
        else:
            try:
                await self._bury(message, rejection)
            except RocketPyError as error:
                logger.warning(
                    "dead letter not stored, message retried: message=%(message)r error=%(error)r",
                    {"message": message, "error": error},
                )
                return False
        # Last, because a crash must repeat the message and not lose it.
        queue.remove(message)
        return True

    def _wait(self, lane: _Lane, pause_s: float) -> None:
        # A timer: a worker that slept would be missing for the other lanes.
        asyncio.get_running_loop().call_later(pause_s, self._workers.line.add, [lane])
