"""Watch for user code that blocks the event loop: coroutine handlers, and bodies of loops.

Such code computes, or makes a blocking call, without `await`. Meanwhile no other handler runs, and
heartbeats and pulls are late. A timer that is set while such code runs detects the block by its
delay. It cannot distinguish the code from other work of the loop, or from a suspended machine.
"""

import asyncio
import logging
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol

from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

BLOCKED_MS: Final = 500
"""Least delay that is reported."""
INTERVAL_MS: Final = 100
LINE_INTERVAL_MS: Final = 60_000
"""Least time between two log lines."""


class LoopWatch(ABC):
    """Timer of one consumer, set while user code handles its messages; used on its loop.

    Args:
        clock: monotonic time.
    """

    __slots__ = ("_clock", "_count", "_due_ms", "_is_set", "_line_ms")

    def __init__(self, clock: Clock) -> None:
        self._is_set = False
        self._clock = clock
        self._due_ms = 0
        self._count = 0
        self._line_ms: int | None = None

    @abstractmethod
    def _is_needed(self) -> bool:
        """Return whether user code handles messages."""

    @abstractmethod
    def _log(self, blocked_ms: int, times: int) -> None:
        """Log that the loop was blocked, so many times since the last line."""

    def start(self) -> None:
        """Set the timer; it stays set for a moment after the last message was handled."""
        if not self._is_set:
            self._set()

    def _set(self) -> None:
        self._is_set = True
        self._due_ms = self._clock.monotonic_ms() + INTERVAL_MS
        asyncio.get_running_loop().call_later(INTERVAL_MS / 1000, self._check)

    def _check(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._due_ms >= BLOCKED_MS:
            self._note(now_ms, now_ms - self._due_ms)
        if self._is_needed():
            self._set()
        else:
            self._is_set = False

    def _note(self, now_ms: int, blocked_ms: int) -> None:
        self._count += 1
        if self._line_ms is not None and now_ms - self._line_ms < LINE_INTERVAL_MS:
            return
        self._log(blocked_ms, self._count)
        self._line_ms, self._count = now_ms, 0


class HandlerWatch(LoopWatch):
    """Watch of the calls of a handler.

    Args:
        clock: monotonic time.
        handler: named in the log.
    """

    __slots__ = ("_handler", "_running")

    def __init__(self, clock: Clock, handler: Callable[..., Any]) -> None:
        super().__init__(clock)
        self._running = 0
        self._handler = handler

    def begin(self) -> None:
        """Note the start of a call of the handler."""
        self._running += 1
        self.start()

    def end(self) -> None:
        """Note the end of a call."""
        self._running -= 1

    def _is_needed(self) -> bool:
        return self._running > 0

    def _log(self, blocked_ms: int, times: int) -> None:
        logger.warning(
            "event loop blocked while a handler ran, make it a plain function, which runs on a "
            "thread, or await asyncio.to_thread: handler=%(handler)s blocked_ms=%(blocked_ms)d "
            "times=%(times)d",
            {"handler": _name(self._handler), "blocked_ms": blocked_ms, "times": times},
        )


class Iteration(Protocol):
    """Interface of an iterator over messages, for its watch."""

    @property
    def has_busy_task(self) -> bool:
        """Whether a task has received messages, and has not requested the next ones."""
        ...


class IterationWatch(LoopWatch):
    """Watch of tasks that iterate over messages, between two requests.

    Args:
        clock: monotonic time.
        group: named in the log.
    """

    __slots__ = ("_group", "_iterators")

    def __init__(self, clock: Clock, group: str) -> None:
        super().__init__(clock)
        self._group = group
        # Weak: an iterator ends with its loop, and must not be kept alive here.
        self._iterators: weakref.WeakSet[Iteration] = weakref.WeakSet()

    def add(self, iterator: Iteration) -> None:
        """Watch an iterator, too."""
        self._iterators.add(iterator)

    def _is_needed(self) -> bool:
        return any(each.has_busy_task for each in self._iterators)

    def _log(self, blocked_ms: int, times: int) -> None:
        logger.warning(
            "event loop blocked while messages of a loop or of getone were handled, await "
            "asyncio.to_thread for what blocks: group=%(group)s blocked_ms=%(blocked_ms)d "
            "times=%(times)d",
            {"group": self._group, "blocked_ms": blocked_ms, "times": times},
        )


def _name(handler: Callable[..., Any]) -> str:
    return str(getattr(handler, "__qualname__", None) or type(handler).__qualname__)
