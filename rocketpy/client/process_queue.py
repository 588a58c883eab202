"""The client's copy of what it pulled from one queue and has not finished.

The committed offset is the smallest unfinished one, so a crash repeats messages and never loses
one. Source: ProcessQueue (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rocketpy.client.message import ReceivedMessage
from rocketpy.client.serializers import Serializer
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX

# The fixed part of a message that its body does not show; keeps tiny messages from being free.
_OVERHEAD_BYTES = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """When to pause pulling: any of the three exceeded (``>``)."""

    messages: int = 1000
    size_bytes: int = 100 * 1024 * 1024
    span: int = 2000


class ProcessQueue:
    """Unfinished messages of one queue, by offset, with the three limits on pulling.

    Args:
        queue: which queue.
        limits: when :meth:`is_full`.
        serializer: for ``message.decode()``.
        give_back: what ``message.nack()`` calls; None when that is impossible.
    """

    __slots__ = (
        "_space_waiter", "broker_max_offset", "broker_min_offset", "dropped", "give_back",
        "is_retry", "last_consume_ms", "last_pull_ms", "limits", "messages", "next_pull_offset",
        "paused", "pulled_end_offset", "queue", "serializer", "size_bytes",
    )  # fmt: skip

    def __init__(
        self,
        queue: MessageQueue,
        limits: Limits,
        *,
        serializer: Serializer | None = None,
        give_back: Callable[[ReceivedMessage, int], Awaitable[None]] | None = None,
    ) -> None:
        self.queue = queue
        self.limits = limits
        self.serializer = serializer
        self.give_back = give_back
        self.is_retry = queue.topic.startswith(RETRY_PREFIX)
        self.messages: dict[int, ReceivedMessage] = {}  # ascending: pulls only append
        self.size_bytes = 0
        self.dropped = False
        self.paused = False
        self.next_pull_offset = -1
        self.pulled_end_offset = -1  # after the last message put in here; -1 before the first
        self.broker_min_offset = 0
        self.broker_max_offset = 0
        self.last_pull_ms = 0
        self.last_consume_ms = 0
        self._space_waiter: asyncio.Future[None] | None = None

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add what a pull brought, in the order of the offsets."""
        if not messages:
            return
        table = self.messages
        size_bytes = 0
        for message in messages:
            table[message.ext.queue_offset] = message
            size_bytes += len(message.body) + _OVERHEAD_BYTES
        self.size_bytes += size_bytes
        self.pulled_end_offset = messages[-1].ext.queue_offset + 1

    def remove(self, message: ReceivedMessage) -> bool:
        """Finish a message; False if it was not, or no longer, here."""
        if self.messages.pop(message.ext.queue_offset, None) is None:
            return False
        self.size_bytes -= len(message.body) + _OVERHEAD_BYTES
        if self._space_waiter is not None and self.is_full() is None:
            self._wake()
        return True

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether the message is unfinished and the queue still ours."""
        return not self.dropped and message.ext.queue_offset in self.messages

    @property
    def first_offset(self) -> int | None:
        """The smallest unfinished offset, or None when everything is finished."""
        return next(iter(self.messages), None)

    @property
    def commit_offset(self) -> int | None:
        """What may be committed now: the smallest unfinished offset, else the end of what came."""
        first = self.first_offset
        if first is not None:
            return first
        return self.next_pull_offset if self.next_pull_offset >= 0 else None

    @property
    def span(self) -> int:
        """How far the unfinished messages are apart."""
        first = self.first_offset
        return 0 if first is None else self.pulled_end_offset - 1 - first

    @property
    def lag(self) -> int:
        """Messages on the broker that this group has not finished, as of the last pull."""
        committed = self.commit_offset
        return 0 if committed is None else max(0, self.broker_max_offset - committed)

    def is_full(self) -> Literal["messages", "size", "span"] | None:
        """Return which limit forbids pulling more, if any."""
        limits = self.limits
        if len(self.messages) > limits.messages:
            return "messages"
        if self.size_bytes > limits.size_bytes:
            return "size"
        if len(self.messages) > 1 and self.span > limits.span:
            return "span"
        return None

    async def wait_for_space(self) -> None:
        """Wait until no limit forbids pulling, or the queue is dropped."""
        while not self.dropped and (self.is_full() is not None or self.paused):
            waiter = asyncio.get_running_loop().create_future()
            self._space_waiter = waiter
            try:
                await waiter
            finally:
                self._space_waiter = None

    def pause(self) -> None:
        """Pull no more until :meth:`resume`."""
        self.paused = True

    def resume(self) -> None:
        """Pull again."""
        self.paused = False
        self._wake()

    def drop(self) -> None:
        """Give the queue up: results of messages still in hand no longer count."""
        self.dropped = True
        self._wake()

    def clear(self) -> None:
        """Forget every message, finished or not."""
        self.messages.clear()
        self.size_bytes = 0
        self.pulled_end_offset = -1
        self._wake()

    def _wake(self) -> None:
        waiter = self._space_waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
