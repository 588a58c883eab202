"""Iterators over a consumer's messages: `async for`, or `anext` with a time-out.

States of a message:

    from        event                                                     to
    (none)      the next message is requested                             delivered
    delivered   the next message is requested                             handled
    delivered   the loop is left (break, an exception, `aclose`)          redelivered

A redelivered message is the next one of any iterator. A request that is cancelled or times out
loses no message: the iterator can be used again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Generic, Protocol, Self, TypeVar

from rocketpy.client.messages.message import ReceivedMessage

M = TypeVar("M", bound=ReceivedMessage)


class Source(Protocol[M]):
    """Provider of messages for iterators."""

    def take(self) -> M | None:
        """Return the next message if there is one."""
        ...

    async def next(self) -> M | None:
        """Wait for the next message; None after the end. May be cancelled."""
        ...

    def done(self, message: M) -> Awaitable[None] | None:
        """Settle a handled message; return an awaitable when that takes a request."""
        ...

    def done_all(self, messages: list[M]) -> Sequence[Awaitable[None]]:
        """Settle handled messages in their order, as `done`."""
        ...

    def take_more(self, most: int) -> list[M]:
        """Return up to `most` messages without waiting."""
        ...

    def redeliver(self, message: M) -> None:
        """Deliver a message again, before all others, unless it was settled."""
        ...


def _redeliver(source: Source[M], loop: asyncio.AbstractEventLoop, messages: list[M]) -> None:
    """Redeliver the messages of a loop that was left, in their order."""

    def give() -> None:
        for message in reversed(messages):
            source.redeliver(message)

    with contextlib.suppress(RuntimeError):  # no loop runs here, or it is closed
        if asyncio.get_running_loop() is loop:
            give()
            return
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(give)


class MessageIterator(Generic[M]):
    """Asynchronous iterator that survives a time-out, and loses no message when it is left.

    Args:
        source: provides the messages.
    """

    __slots__ = ("_delivered", "_loop", "_source")

    def __init__(self, source: Source[M]) -> None:
        self._delivered: M | None = None
        self._source = source
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        source = self._source
        message = self._delivered
        if message is not None:
            self._delivered = None
            settled = source.done(message)
            if settled is not None:
                await settled
        message = source.take()
        if message is None:
            message = await source.next()
            if message is None:
                raise StopAsyncIteration
        self._delivered = message
        return message

    async def aclose(self) -> None:
        """End the loop; redeliver its unhandled message."""
        message, self._delivered = self._delivered, None
        if message is not None:
            self._source.redeliver(message)

    def __del__(self) -> None:
        """Redeliver the unhandled messages of a loop that was left."""
        message, self._delivered = self._delivered, None
        if message is not None:
            _redeliver(self._source, self._loop, [message])


class BatchIterator(Generic[M]):
    """Asynchronous iterator over lists of messages.

    Messages of a list are handled when the next list is requested.

    Args:
        source: provides the messages.
        max_messages: most messages of one list.
    """

    __slots__ = ("_delivered", "_loop", "_max_messages", "_source")

    def __init__(self, source: Source[M], max_messages: int) -> None:
        self._delivered: list[M] = []
        self._source = source
        self._max_messages = max_messages
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[M]:
        messages = await self.take(self._max_messages, None)
        if messages is None:
            raise StopAsyncIteration
        return messages

    async def take(self, max_messages: int, timeout_s: float | None) -> list[M] | None:
        """Return up to `max_messages`, waiting for the first; earlier ones count as handled.

        Args:
            max_messages: 1 or more.
            timeout_s: time-out of waiting; None waits without limit.

        Returns:
            An empty list when none came in time, None when there will be none.
        """
        source = self._source
        await self._finish()
        first = source.take()
        if first is None:
            try:
                async with asyncio.timeout(timeout_s):
                    first = await source.next()
            except TimeoutError:
                return []
        if first is None:
            return None
        messages = self._delivered = [first, *source.take_more(max_messages - 1)]
        return messages.copy()  # the caller may change its list

    async def _finish(self) -> None:
        messages, self._delivered = self._delivered, []
        if waited_for := self._source.done_all(messages):
            await asyncio.gather(*waited_for)

    async def aclose(self) -> None:
        """End the loop; redeliver its unhandled messages."""
        messages, self._delivered = self._delivered, []
        _redeliver(self._source, self._loop, messages)

    def __del__(self) -> None:
        """Redeliver the unhandled messages of a loop that was left."""
        messages, self._delivered = self._delivered, []
        if messages:
            _redeliver(self._source, self._loop, messages)
