"""Limits on the sends in flight of one producer, and the callers that wait for room.

The window is independent of messages, queues and brokers.
"""

import asyncio
from collections import deque

from rocketpy.errors import ClosedError


class InFlightWindow:
    """Number and bytes of the sends of one producer that have no result yet.

    Args:
        max_messages: most sends in flight.
        max_bytes: most bytes of bodies in flight; the last send to enter may exceed it, so that a
            body of any size can be sent.

    Attributes:
        entered: number of sends so far.
        left: number of sends that have ended.
        failed: number of those that ended with an error; counted by the send.
        bytes: bytes of the bodies in flight.
    """

    __slots__ = (
        "_closed", "_idle", "_max_bytes", "_max_messages", "_waiters", "bytes", "entered", "failed",
        "left",
    )  # fmt: skip

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.entered: int = 0
        self.left: int = 0
        self.failed: int = 0
        self.bytes: int = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None
        self._closed = False

    @property
    def messages(self) -> int:
        """Sends in flight."""
        return self.entered - self.left

    @property
    def has_space(self) -> bool:
        """Whether one more send may start now."""
        return self.entered - self.left < self._max_messages and self.bytes < self._max_bytes

    def enter(self, size_bytes: int) -> None:
        """Count a send in.

        Raises:
            ClosedError: the window is closed.
        """
        if self._closed:
            raise ClosedError("the producer is closed")
        self.entered += 1
        self.bytes += size_bytes

    def leave(self, size_bytes: int, count: int = 1) -> None:
        """Count sends out, and wake as many callers that wait."""
        self.left += count
        self.bytes -= size_bytes
        while self._waiters and count:
            self._wake_next()
            count -= 1
        if self._idle is not None and not self.messages and not self._idle.done():
            self._idle.set_result(None)

    async def wait_for_space(self) -> None:
        """Wait until one more send may start, in the order of asking."""
        put_in_line = self._waiters.append
        while not self.has_space:
            waiter = asyncio.get_running_loop().create_future()
            put_in_line(waiter)
            # Another caller took the room before this one ran: it stays the first in line.
            put_in_line = self._waiters.appendleft
            try:
                await waiter
            finally:
                # A caller that was woken may never send (it was cancelled, or its body breaks a
                # limit), or leave room for more: the next one checks for itself.
                self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters and self.has_space:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def flush(self) -> None:
        """Wait until everything in flight has its result, sends that start meanwhile included."""
        while self.messages:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Refuse further sends, and wait for those in flight."""
        self._closed = True
        await self.flush()
