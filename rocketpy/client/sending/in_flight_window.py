"""Who may send now: the limits on what is in flight, and those who wait for room.

Knows nothing of messages, queues or brokers.
"""

import asyncio
from collections import deque

from rocketpy.errors import ClosedError


class InFlightWindow:
    """Counts the sends of one producer that have no result yet, and their bytes.

    Args:
        max_messages: sends in flight.
        max_bytes: bytes of bodies in flight; the last one let in may go over it.

    Attributes:
        entered: sends so far.
        left: those that have ended.
        failed: of these, those that ended with an error; whoever ends them counts.
        bytes: of bodies in flight.
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
        """Count a send out, or several, and let as many in that wait."""
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
            put_in_line = self._waiters.appendleft  # woken in vain: our place is still the first
            try:
                await waiter
            finally:
                # Whoever is woken may never send (cancelled, a body that breaks a limit), or leave
                # room for more: the next one looks for itself.
                self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters and self.has_space:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def flush(self) -> None:
        """Wait until everything in flight has its result."""
        while self.messages:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Let nobody in any more and wait for what is in flight."""
        self._closed = True
        await self.flush()
