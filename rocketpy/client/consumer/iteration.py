"""One loop over a consumer's messages: `async for`, or `anext` with a time limit.

A message's way through a loop:

    from       event                                                     to
    (none)     the next one is asked for                                 in hand
    in hand    the next one is asked for                                 done
    in hand    the loop is left (break, an exception, `aclose`)          given again

Given again: whoever asks next gets it, before all others. Nobody who asks in vain (cancelled, out
of time) loses anything: the loop goes on when it is asked again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from typing import Generic, Protocol, Self, TypeVar

from rocketpy.client.messages.message import ReceivedMessage

M = TypeVar("M", bound=ReceivedMessage)


class Source(Protocol[M]):
    """What hands messages out, and takes them back."""

    def take(self) -> M | None:
        """Return the next one if it need not be waited for."""
        ...

    async def next(self) -> M | None:
        """Return the next one, None when there will be none; may be cancelled."""
        ...

    def done(self, message: M) -> Awaitable[None] | None:
        """Take it for done, and return what has to be waited for, if anything."""
        ...

    def done_all(self, messages: list[M]) -> Sequence[Awaitable[None]]:
        """Do as `done` with many, in their order."""
        ...

    def take_more(self, most: int) -> list[M]:
        """Return up to `most` that need not be waited for; none when there are none."""
        ...

    def redeliver(self, message: M) -> None:
        """Hand it out again, before all others, unless it was acked or given back."""
        ...


def _give_again(source: Source[M], loop: asyncio.AbstractEventLoop, messages: list[M]) -> None:
    """Have messages of a loop that is left handed out again, the first of them first."""

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
    """An asynchronous iterator that survives a time-out, and loses no message when it is left.

    Args:
        source: hands the messages out.
    """

    __slots__ = ("_in_hand", "_loop", "_source")

    def __init__(self, source: Source[M]) -> None:
        self._in_hand: M | None = None
        self._source = source
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        source = self._source
        message = self._in_hand
        if message is not None:
            self._in_hand = None
            settled = source.done(message)
            if settled is not None:
                await settled
        message = source.take()
        if message is None:
            message = await source.next()
            if message is None:
                raise StopAsyncIteration
        self._in_hand = message
        return message

    async def aclose(self) -> None:
        """End the loop; a message in hand is given again."""
        message, self._in_hand = self._in_hand, None
        if message is not None:
            self._source.redeliver(message)

    def __del__(self) -> None:
        """Do the same for a loop that was left."""
        message, self._in_hand = self._in_hand, None
        if message is not None:
            _give_again(self._source, self._loop, [message])


class BatchIterator(Generic[M]):
    """The same with many messages at a time: those before are done when the next are asked for.

    Args:
        source: hands the messages out.
        max_messages: most messages of one step of a loop.
    """

    __slots__ = ("_in_hand", "_loop", "_max_messages", "_source")

    def __init__(self, source: Source[M], max_messages: int) -> None:
        self._in_hand: list[M] = []
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
        """Return up to `max_messages`, waiting for the first; what was returned before is done.

        Args:
            max_messages: 1 or more.
            timeout_s: of waiting; None is no limit.

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
        messages = self._in_hand = [first, *source.take_more(max_messages - 1)]
        return messages.copy()  # what is in hand stays that, whatever is done to the list

    async def _finish(self) -> None:
        messages, self._in_hand = self._in_hand, []
        if waited_for := self._source.done_all(messages):
            await asyncio.gather(*waited_for)

    async def aclose(self) -> None:
        """End the loop; messages in hand are given again."""
        messages, self._in_hand = self._in_hand, []
        _give_again(self._source, self._loop, messages)

    def __del__(self) -> None:
        """Do the same for a loop that was left."""
        messages, self._in_hand = self._in_hand, []
        if messages:
            _give_again(self._source, self._loop, messages)
