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
from collections.abc import Awaitable
from typing import Generic, Protocol, Self, TypeVar

from rocketpy.client.message import ReceivedMessage

D = TypeVar("D")
M = TypeVar("M", bound=ReceivedMessage)
M_co = TypeVar("M_co", bound=ReceivedMessage, covariant=True)


class Source(Protocol[D, M_co]):
    """What hands messages out, and takes them back."""

    def take(self) -> D | None:
        """Return the next one if it need not be waited for."""
        ...

    async def next(self) -> D | None:
        """Return the next one, None when there will be none; may be cancelled."""
        ...

    def message(self, delivery: D) -> M_co:
        """Return the message of what was handed out."""
        ...

    def done(self, delivery: D) -> Awaitable[None] | None:
        """Take it for done, and return what has to be waited for, if anything."""
        ...

    def again(self, delivery: D) -> None:
        """Hand it out again, before all others, unless it was acked or given back."""
        ...


class MessageIterator(Generic[D, M]):
    """An asynchronous iterator that survives a time-out, and loses no message when it is left.

    Args:
        source: hands the messages out.
    """

    __slots__ = ("_in_hand", "_loop", "_source")

    def __init__(self, source: Source[D, M]) -> None:
        self._in_hand: D | None = None
        self._source = source
        self._loop = asyncio.get_running_loop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        source = self._source
        delivery, self._in_hand = self._in_hand, None
        if delivery is not None and (settled := source.done(delivery)) is not None:
            await settled
        delivery = source.take() or await source.next()
        if delivery is None:
            raise StopAsyncIteration
        self._in_hand = delivery
        return source.message(delivery)

    async def aclose(self) -> None:
        """End the loop; a message in hand is given again."""
        delivery, self._in_hand = self._in_hand, None
        if delivery is not None:
            self._source.again(delivery)

    def __del__(self) -> None:
        """Do the same for a loop that was left."""
        delivery, self._in_hand = self._in_hand, None
        if delivery is None:
            return
        with contextlib.suppress(RuntimeError):  # no loop runs here, or it is closed
            if asyncio.get_running_loop() is self._loop:
                self._source.again(delivery)
                return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._source.again, delivery)
