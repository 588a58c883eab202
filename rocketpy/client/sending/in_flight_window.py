"""Limits on the sends in flight of one producer, and the line of callers that wait for room.

The window is independent of messages, queues and brokers.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from rocketpy.errors import ClosedError, NotSentError

UNLIMITED: Final = 1 << 62
"""Limit of a window that never is full."""

STALL_S: Final = 60
"""Least time after which a caller in line fails, unless a send was stored in the meantime."""
_CHECK_S: Final = 5

_Line = OrderedDict[asyncio.Future[None], float]
"""Futures of the callers that wait, in the order of asking, and the time when each asked."""


class InFlightWindow:
    """Number and bytes of the sends of one producer that have no result yet.

    Callers beyond the limits wait in line. Room goes to the first of them at once, so that a
    caller that comes later cannot overtake. A caller whose turn came has a reservation until it
    runs; then it either enters, or the next one gets the room.

    Args:
        max_messages: most sends in flight.
        max_bytes: most bytes of bodies in flight; the last send to enter may exceed it, so that a
            body of any size can be sent.
        timeout_s: time of a send. A caller in line fails when no send was stored for `STALL_S`,
            or for twice this time if that is longer.

    Attributes:
        entered: number of sends so far.
        left: number of sends that have ended.
        failed: number of those that ended with an error; counted by the send.
        bytes: bytes of the bodies in flight.
        max_messages: most sends in flight; a change counts from the next send that ends.
    """

    __slots__ = (
        "_closed", "_idle", "_idle_checks", "_is_admitting", "_line", "_max_bytes", "_reserved",
        "_returned", "_stall_s", "_stored", "_timer", "bytes", "entered", "failed", "left",
        "max_messages",
    )  # fmt: skip

    def __init__(self, max_messages: int, max_bytes: int, *, timeout_s: float = 0) -> None:
        self.entered: int = 0
        self.left: int = 0
        self.failed: int = 0
        self.bytes: int = 0
        self.max_messages: int = max_messages
        self._max_bytes = max_bytes
        # Sends in flight may wait so long for a broker that restarts; those in line must, too.
        self._stall_s = max(STALL_S, 2 * timeout_s)
        # An OrderedDict, because cancelled callers leave from the middle, and because taking the
        # first item of a plain dict scans over all items that were removed before it.
        self._line: _Line = OrderedDict()
        self._returned: _Line = OrderedDict()  # had their turn and no room: before all others
        self._reserved = 0
        self._is_admitting = False
        self._idle: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stored = 0
        self._idle_checks = 0
        self._closed = False

    @property
    def messages(self) -> int:
        """Sends in flight, and those whose turn has come."""
        return self.entered - self.left + self._reserved

    @property
    def waiting(self) -> int:
        """Callers in line."""
        return len(self._line) + len(self._returned)

    @property
    def has_space(self) -> bool:
        """Whether one more send may start now."""
        return (
            self.entered - self.left + self._reserved < self.max_messages
            and self.bytes < self._max_bytes
        )

    @property
    def is_free(self) -> bool:
        """Whether one more send may start now, and overtakes no caller in line."""
        return (
            not self._line
            and not self._returned
            and self.entered - self.left + self._reserved < self.max_messages
            and self.bytes < self._max_bytes
        )

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
        """Count sends out, and give the room to the callers in line."""
        self.left += count
        self.bytes -= size_bytes
        if self._line or self._returned:
            self._admit()
        if self._idle is not None:
            self._wake_flush()

    async def wait_for_space(self) -> None:
        """Wait in line until one more send may start; the caller starts it without awaiting.

        Raises:
            NotSentError: the producer was closed, or no send was stored for a long time.
        """
        if self.is_free:
            return
        loop = asyncio.get_running_loop()
        line, asked_s = self._line, loop.time()
        while True:
            self._check_open()
            waiter: asyncio.Future[None] = loop.create_future()
            line[waiter] = asked_s
            self._watch_progress(loop)
            try:
                await waiter
            except BaseException:
                if (
                    self._line.pop(waiter, None) is None
                    and self._returned.pop(waiter, None) is None
                ):
                    self._give_up_turn(waiter)
                raise
            self._reserved -= 1
            self._check_open()
            if self.has_space:
                break
            # The caller before this one had a larger body than the ones in flight.
            line = self._returned
        if (self.waiting or self._idle is not None) and not self._is_admitting:
            # This caller may send less than it reserved, or nothing at all (its body breaks a
            # limit): once it has run, the next ones get what is left.
            self._is_admitting = True
            loop.call_soon(self._admit_rest)

    def _check_open(self) -> None:
        if self._closed:
            self._wake_flush()  # a reservation may have been the last that a close waits for
            raise _closed_error()

    def _give_up_turn(self, waiter: asyncio.Future[None]) -> None:
        """Pass on the reservation of a caller that was cancelled after its turn had come."""
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self._reserved -= 1
            self._admit()
            self._wake_flush()

    def _admit_rest(self) -> None:
        self._is_admitting = False
        self._admit()
        self._wake_flush()

    def _admit(self) -> None:
        """Give the room to callers in line, in their order.

        The bodies of these callers are not built yet. Each is taken to be as large as the mean of
        those in flight; without an estimate, callers with large bodies would all be woken for
        room that one of them fills.
        """
        in_flight = self.entered - self.left
        mean_bytes = self.bytes // in_flight if in_flight else 0
        while self.has_space and self.bytes + self._reserved * mean_bytes < self._max_bytes:
            line = self._returned or self._line
            if not line:
                return
            waiter, _ = line.popitem(last=False)
            if not waiter.done():
                self._reserved += 1
                waiter.set_result(None)

    # ---- callers that wait in vain

    def _watch_progress(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the timer that ends a wait without progress; one for all callers in line."""
        if self._timer is None:
            self._stored, self._idle_checks = self.left - self.failed, 0
            self._timer = loop.call_later(_CHECK_S, self._check_progress, loop)

    def _check_progress(self, loop: asyncio.AbstractEventLoop) -> None:
        # Checks are counted, not seconds: while the loop itself stalls, no response can be read.
        stored = self.left - self.failed
        self._idle_checks = 0 if stored != self._stored else self._idle_checks + 1
        self._stored = stored
        if self._idle_checks * _CHECK_S >= self._stall_s:
            self._fail_since(loop.time() - self._stall_s)
        self._timer = (
            loop.call_later(_CHECK_S, self._check_progress, loop) if self.waiting else None
        )

    def _fail_since(self, asked_s: float) -> None:
        """Fail the callers that have waited since then."""
        for line in (self._returned, self._line):
            while line and next(iter(line.values())) <= asked_s:
                waiter, _ = line.popitem(last=False)
                if not waiter.done():
                    words = (
                        f"waited {self._stall_s:g} s for room behind {self.messages} sends in "
                        "flight, none of which has succeeded; nothing was sent"
                    )
                    waiter.set_exception(NotSentError(words))

    def refuse_waiting(self) -> None:
        """Fail the callers in line, because the producer closes."""
        for line in (self._returned, self._line):
            while line:
                waiter, _ = line.popitem(last=False)
                if not waiter.done():
                    waiter.set_exception(_closed_error())

    # ---- the end

    async def flush(self) -> None:
        """Wait until everything in flight has its result, sends that start meanwhile included."""
        while self.messages:
            if self._idle is None or self._idle.done():
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _wake_flush(self) -> None:
        if self._idle is not None and not self.messages and not self._idle.done():
            self._idle.set_result(None)

    async def close(self) -> None:
        """Refuse further sends and the callers in line, and wait for the sends in flight."""
        self._closed = True
        self.refuse_waiting()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.flush()


def _closed_error() -> NotSentError:
    words = "the producer was closed while the send waited for room; nothing was sent"
    return NotSentError(words, retriable=False)
