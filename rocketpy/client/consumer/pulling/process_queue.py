"""Unfinished messages of one queue, and the limits on pulling more.

The committed offset is the smallest unfinished one: a crash repeats messages but loses none.

Source: ProcessQueue (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal

from rocketpy.client.messages.message import CANNOT_REDELIVER, SETTLED_TOO_LATE, ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.clock import Clock

# Memory of a message beside its body, about: without it, tiny bodies would never reach the limit.
_OVERHEAD_BYTES = 200
_OFFSET_OF: Final[Callable[[ReceivedMessage], int]] = attrgetter("offset")
_BODY_OF: Final[Callable[[ReceivedMessage], bytes]] = attrgetter("body")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one queue; pulling pauses while any of them is exceeded.

    Attributes:
        messages: number of unfinished messages.
        size_bytes: memory of the unfinished messages.
        span: distance from the first unfinished offset to the last pulled one.
    """

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000


class CacheTotal:
    """Number of unfinished messages of all queues of one consumer, and its limit.

    Args:
        limit: number of messages above which no queue pulls.
    """

    __slots__ = ("_limit", "_waiting", "messages")

    def __init__(self, limit: int) -> None:
        self.messages: int = 0
        self._limit = limit
        self._waiting: set[ProcessQueue] = set()

    @property
    def is_full(self) -> bool:
        """Whether the limit is exceeded."""
        return self.messages > self._limit

    def add(self, count: int) -> None:
        """Add to the number (or subtract), and wake the queues that may pull again."""
        self.messages += count
        if self._waiting and not self.is_full:
            # Replaced first, because a queue that finds no room adds itself again.
            waiting, self._waiting = self._waiting, set()
            for queue in waiting:
                queue.check_space()

    def wait(self, queue: "ProcessQueue") -> None:
        """Have a queue check its space again when there is room."""
        self._waiting.add(queue)

    def forget(self, queue: "ProcessQueue") -> None:
        """Remove a queue from those that are woken."""
        self._waiting.discard(queue)


class ProcessQueue:
    """Unfinished messages of one queue, by offset, with the three limits on pulling.

    Implements `Settlement` for its messages: users and handlers report outcomes to it.

    Args:
        queue: the queue.
        limits: of `is_full`.
        give_back: called for failed messages and by `message.nack()`; None when that is impossible.
        total: common limit of all queues of the consumer; None without one.
        clock: for `in_progress` and `last_consume_ms`; None if no handler gets the messages.
        on_ack: called with messages that their user acknowledges, to finish them; None removes
            them.

    Attributes:
        queue: the queue.
        limits: of `is_full`.
        messages: unfinished messages by offset, ascending, because pulls only append.
        size_bytes: memory of the unfinished messages.
        dropped: whether the queue is no longer assigned; outcomes are ignored.
        consumer_closed: whether its consumer closed, so that an ack comes too late.
        closing: whether no further handler may begin; the queue is dropped after the running ones.
        paused: whether the user has paused pulling.
        parked: messages of a pull that ended during a pause; delivered when the pause ends.
        begin_offset: offset of the first pull; -1 before it is known.
        next_pull_offset: offset of the next pull; -1 before it is known.
        pulled_end_offset: offset after the last pulled message; -1 before the first.
        broker_min_offset: first offset of the broker's queue, as of the last pull.
        broker_max_offset: end offset of the broker's queue, as of the last pull.
        last_pull_ms: wall time of the last pull, for reports.
        pulled_at_ms: monotonic time of the last pull, or of the start.
        last_consume_ms: wall time of the last finished message, for reports.
    """

    __slots__ = (
        "_clock", "_give_back", "_idle_waiter", "_leaving", "_on_ack", "_space_waiter",
        "_started", "_total", "begin_offset", "broker_max_offset", "broker_min_offset", "closing",
        "consumer_closed", "dropped",
        "last_consume_ms", "last_pull_ms", "limits", "messages", "next_pull_offset", "parked",
        "paused", "pulled_at_ms", "pulled_end_offset", "queue", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        queue: MessageQueue,
        limits: Limits,
        *,
        give_back: "GiveBack | None" = None,
        total: CacheTotal | None = None,
        clock: Clock | None = None,
        on_ack: Callable[[ReceivedMessage], None] | None = None,
    ) -> None:
        self.queue: MessageQueue = queue
        self._on_ack = on_ack
        self._clock = clock
        self.limits: Limits = limits
        self._give_back = give_back
        self._total = total
        self.messages: dict[int, ReceivedMessage] = {}
        self.size_bytes: int = 0
        self.dropped: bool = False
        self.consumer_closed: bool = False
        self.closing: bool = False
        self.paused: bool = False
        self.parked: list[ReceivedMessage] = []
        self.begin_offset: int = -1
        self.next_pull_offset: int = -1
        self.pulled_end_offset: int = -1
        self.broker_min_offset: int = 0
        self.broker_max_offset: int = 0
        self.last_pull_ms: int = 0
        self.pulled_at_ms: int = 0
        self.last_consume_ms: int = 0
        # Monotonic start of the handler by offset, oldest first.
        self._started: dict[int, int] = {}
        self._leaving: set[int] = set()  # offsets of messages being redelivered
        self._space_waiter: asyncio.Future[None] | None = None
        self._idle_waiter: asyncio.Future[None] | None = None

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add pulled messages, which have ascending offsets."""
        if not messages:
            return
        self.messages.update(zip(map(_OFFSET_OF, messages), messages, strict=True))
        self.size_bytes += sum(map(len, map(_BODY_OF, messages))) + len(messages) * _OVERHEAD_BYTES
        if self._total is not None:
            self._total.add(len(messages))
        self.pulled_end_offset = messages[-1].offset + 1

    def remove(self, message: ReceivedMessage) -> bool:
        """Remove a finished message; return False if it was not here."""
        if self.messages.pop(message.offset, None) is None:
            return False
        self._leaving.discard(message.offset)
        self.size_bytes -= len(message.body) + _OVERHEAD_BYTES
        if self._total is not None:
            self._total.add(-1)
        self.check_space()
        return True

    def holds(self, message: ReceivedMessage) -> bool:
        """Return whether the message is unfinished and the queue still assigned."""
        return not self.dropped and message.offset in self.messages

    def ack(self, message: ReceivedMessage) -> None:
        """Finish a message that its user acknowledged.

        Raises:
            ClosedError: its consumer closed before, so that it is delivered again.
        """
        self._check_open(message)
        if self.consumer_closed:
            return
        if self._on_ack is None:
            self.remove(message)
        elif self.holds(message):
            self._on_ack(message)

    def _check_open(self, message: ReceivedMessage) -> None:
        """Raise ClosedError for an outcome of a message that the close has left to the group."""
        is_unsettled = message.offset in self.messages and message.offset not in self._leaving
        if self.consumer_closed and is_unsettled:
            raise ClosedError(SETTLED_TOO_LATE)

    async def nack(self, message: ReceivedMessage, rejection: Rejection) -> None:
        """Redeliver a message that its user rejected.

        Raises:
            ClosedError: this consumer cannot redeliver, or it closed before.
        """
        self._check_open(message)
        await self._redeliver(message, rejection)

    async def _redeliver(self, message: ReceivedMessage, rejection: Rejection) -> None:
        if self._give_back is None:
            raise ClosedError(CANNOT_REDELIVER)
        await self._give_back(self, message, rejection)

    def begin(self, messages: list[ReceivedMessage], now_ms: int) -> list[ReceivedMessage]:
        """See `Settlement.begin`; messages of a dropped queue are not handled."""
        if self.dropped:
            return []
        table = self.messages
        for message in messages:
            if message.offset in table:
                self._started[message.offset] = now_ms
        return messages

    def take(self, messages: list[ReceivedMessage], now_ms: int) -> list[ReceivedMessage]:
        """Begin the messages that are unfinished and not being redelivered; return them."""
        if self.dropped:
            return []
        table, leaving = self.messages, self._leaving
        found = [each for each in messages if each.offset in table and each.offset not in leaving]
        self._started.update(dict.fromkeys(map(_OFFSET_OF, found), now_ms))
        return found

    def finish(self, messages: list[ReceivedMessage], now_ms: int) -> tuple[int, int]:
        """End handled messages; finish those that were not redelivered meanwhile.

        Args:
            messages: of this queue.
            now_ms: monotonic.

        Returns:
            Number of messages finished, 0 for a dropped queue, and the sum of the times since they
            began, ms.
        """
        table, leaving, is_dropped = self.messages, self._leaving, self.dropped
        end, remove = self._started.pop, table.pop
        count = spent_ms = size_bytes = 0
        for message in messages:
            offset = message.offset
            # In any case: `wait_idle` waits for handlers of leaving and dropped messages, too.
            started_ms = end(offset, now_ms)
            if is_dropped or offset in leaving or remove(offset, None) is None:
                continue
            size_bytes += len(message.body)
            count += 1
            spent_ms += now_ms - started_ms
        if self._idle_waiter is not None:
            self._check_idle()
        if count:
            self.size_bytes -= size_bytes + count * _OVERHEAD_BYTES
            if self._total is not None:
                self._total.add(-count)
            if self._space_waiter is not None:
                self.check_space()
            self._note_consumed()
        return count, spent_ms

    async def settle(self, messages: list[ReceivedMessage], now_ms: int) -> None:
        """See `Settlement.settle`."""
        self.finish(messages, now_ms)

    async def redeliver(self, messages: list[ReceivedMessage], rejection: Rejection) -> None:
        """See `Settlement.redeliver`."""
        self._note_consumed()
        for message in messages:
            # Not `nack`: a handler may end during the close, when no error helps its user.
            await self._redeliver(message, rejection)

    def _note_consumed(self) -> None:
        if self._clock is not None:
            self.last_consume_ms = self._clock.time_ms()

    def in_progress(self, message: ReceivedMessage) -> None:
        """Restart the consume time-out of the message; raises ClosedError after the close."""
        self._check_open(message)
        if self._clock is not None and self._started.pop(message.offset, None) is not None:
            # Inserted at the end: `overdue` relies on the order of the times.
            self._started[message.offset] = self._clock.monotonic_ms()

    def end(self, messages: list[ReceivedMessage]) -> None:
        """See `Settlement.end`."""
        for message in messages:
            self._started.pop(message.offset, None)
        self._check_idle()

    def _check_idle(self) -> None:
        waiter = self._idle_waiter
        if waiter is not None and not self._started and not waiter.done():
            waiter.set_result(None)

    async def wait_idle(self, limit_s: float) -> bool:
        """Wait until no handler has a message of the queue; return False after the limit."""
        if self._started:
            self._idle_waiter = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._idle_waiter], timeout=limit_s)
        return not self._started

    def started_ms(self, message: ReceivedMessage) -> int | None:
        """Return the start of the message's handler (monotonic), None when none has it."""
        return self._started.get(message.offset)

    def leave(self, message: ReceivedMessage) -> bool:
        """Reserve the message for one redelivery; `stay` cancels that.

        Returns:
            False when it is finished or reserved already, or when the queue was dropped.
        """
        offset = message.offset
        if self.dropped or offset not in self.messages or offset in self._leaving:
            return False
        self._leaving.add(offset)
        return True

    def waits(self, message: ReceivedMessage) -> bool:
        """Return whether the message is unfinished and not being redelivered."""
        offset = message.offset
        return not self.dropped and offset in self.messages and offset not in self._leaving

    def stay(self, message: ReceivedMessage) -> None:
        """Cancel the redelivery of a message: it may be handled here again."""
        self._leaving.discard(message.offset)

    def overdue(self, since_ms: int, limit: int) -> list[ReceivedMessage]:
        """Return up to `limit` messages whose handlers began before `since_ms`, oldest first."""
        found: list[ReceivedMessage] = []
        for offset, started_ms in self._started.items():
            if started_ms >= since_ms or len(found) == limit:
                break
            if offset not in self._leaving and offset in self.messages:
                found.append(self.messages[offset])
        return found

    @property
    def first_offset(self) -> int | None:
        """Smallest unfinished offset, None when everything is finished."""
        return next(iter(self.messages), None)

    @property
    def commit_offset(self) -> int | None:
        """Offset to commit: the smallest unfinished one, else that of the next pull."""
        if (first := self.first_offset) is not None:
            return first
        return self.next_pull_offset if self.next_pull_offset >= 0 else None

    @property
    def skipped_end(self) -> int | None:
        """End of what was pulled, None while messages of it are here, or nothing was pulled."""
        if self.messages or self.dropped or self.next_pull_offset <= self.begin_offset:
            return None
        return self.next_pull_offset

    @property
    def span(self) -> int:
        """Distance between the first unfinished message and the last pulled one."""
        first = self.first_offset
        return 0 if first is None else self.pulled_end_offset - 1 - first

    @property
    def lag(self) -> int:
        """Number of messages of the broker's queue that are unfinished, as of the last pull."""
        committed = self.commit_offset
        return 0 if committed is None else max(0, self.broker_max_offset - committed)

    def is_full(self) -> Literal["messages", "size", "span", "all"] | None:
        """Return the limit that is exceeded, None when there is room."""
        limits = self.limits
        if len(self.messages) > limits.messages:
            return "messages"
        if self.size_bytes > limits.size_bytes:
            return "size"
        # As in Apache's clients, one unfinished message alone does not stop the pulls, however old.
        if len(self.messages) > 1 and self.span > limits.span:
            return "span"
        if self._total is not None and self._total.is_full:
            return "all"
        return None

    def check_space(self) -> None:
        """End `wait_for_space` if there is room."""
        if self._space_waiter is None:
            return
        full = self.is_full()
        if full is None:
            self._wake()
        elif full == "all" and self._total is not None:
            self._total.wait(self)  # this queue has room, all together have none

    async def wait_for_space(self) -> None:
        """Wait until there is room and no pause, or the queue is dropped."""
        # Checked after each wake-up: another queue may have used the common room, or a pause begun.
        while not self.dropped and (self.is_full() is not None or self.paused):
            waiter = asyncio.get_running_loop().create_future()
            self._space_waiter = waiter
            if self._total is not None and self.is_full() == "all":
                self._total.wait(self)
            try:
                await waiter
            finally:
                self._space_waiter = None
                if self._total is not None:
                    self._total.forget(self)

    def pause(self) -> None:
        """Stop pulling until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Pull again."""
        self.paused = False
        self._wake()

    def drop(self) -> None:
        """Drop the queue: outcomes of its messages no longer count."""
        self.dropped = True
        if self._total is not None:
            # Removed, because later outcomes must not subtract these messages a second time.
            total, self._total = self._total, None
            total.forget(self)
            total.add(-len(self.messages))
        self._wake()

    def _wake(self) -> None:
        waiter = self._space_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


GiveBack = Callable[[ProcessQueue, ReceivedMessage, Rejection], Awaitable[None]]
"""Redelivers a message of a queue as a rejection asks."""

queue_of: Final[Callable[[ReceivedMessage], ProcessQueue]] = attrgetter("_settlement")
"""Process queue of a message that a pull loop delivered."""
