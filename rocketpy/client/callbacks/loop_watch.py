"""Watch for coroutine handlers that block the event loop.

Such a handler computes, or calls something that waits, without `await`. Meanwhile the loop serves
nothing: no other handler runs, and heartbeats and pulls are late. A timer that runs while a handler
does notices it by its own delay. It cannot tell the handler from other work of the loop, or from a
machine that stands still.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

BLOCKED_MS: Final = 500
"""Shortest delay that is reported."""
INTERVAL_MS: Final = 100
LINE_INTERVAL_MS: Final = 60_000
"""Shortest time between two lines."""


class LoopWatch:
    """Timer of one consumer, set while its handler runs; used on the consumer's loop.

    Args:
        clock: monotonic time.
        handler: named in the log.
    """

    __slots__ = ("_clock", "_count", "_due_ms", "_handler", "_is_set", "_line_ms", "_running")

    def __init__(self, clock: Clock, handler: Callable[..., Any]) -> None:
        self._running = 0
        self._is_set = False
        self._clock = clock
        self._handler = handler
        self._due_ms = 0
        self._count = 0
        self._line_ms: int | None = None

    def begin(self) -> None:
        """Note a call of the handler that begins."""
        self._running += 1
        if not self._is_set:  # it stays set for a moment after the last call
            self._set()

    def end(self) -> None:
        """Note a call that has ended."""
        self._running -= 1

    def _set(self) -> None:
        self._is_set = True
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_MS
        asyncio.get_running_loop().call_later(INTERVAL_MS / 1000, self._check)

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._due_ms >= BLOCKED_MS:
            self._note(now_ms, now_ms - self._due_ms)
        if self._running:
            self._set()
        else:
            self._is_set = False

    def _note(self, now_ms: int, blocked_ms: int) -> None:
        self._count += 1
        if self._line_ms is not None and now_ms - self._line_ms < LINE_INTERVAL_MS:
            return
        logger.warning(
            "event loop blocked while a handler ran, make it a plain function, which runs on a "
            "thread, or await asyncio.to_thread: handler=%(handler)s blocked_ms=%(blocked_ms)d "
            "times=%(times)d",
            {"handler": _name(self._handler), "blocked_ms": blocked_ms, "times": self._count},
        )
        self._line_ms, self._count = now_ms, 0


def _name(handler: Callable[..., Any]) -> str:
    return str(getattr(handler, "__qualname__", None) or type(handler).__qualname__)
