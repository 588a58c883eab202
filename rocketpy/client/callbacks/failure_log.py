"""Log of failed calls of a user's function, bounded however many fail.

A failure that is like one before it needs no second traceback. Alike are exceptions of one class
that were raised by the same line.
"""

import logging
from collections.abc import Sequence
from typing import Final, Literal

from rocketpy.client.messages.outcomes import shown
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

TRACEBACK_INTERVAL_MS: Final = 600_000
"""Time after which a failure is logged with its traceback again."""
LINE_INTERVAL_MS: Final = 5_000
"""Shortest time between two lines about one kind of failure."""
# Exceptions that are made at run time could otherwise fill the memory.
_MAX_KINDS: Final = 200


class _Kind:
    """Failures of one kind: when they were logged last (monotonic), and how many came since."""

    __slots__ = ("count", "line_ms", "traceback_ms")

    def __init__(self) -> None:
        self.count = 0
        self.line_ms = 0
        self.traceback_ms: int | None = None


class FailureLog:
    """Log of the failures of one function of a consumer or producer.

    The first failure of a kind is logged with its traceback. Further ones are one line, with the
    number of failures since the line before, at most every five seconds.

    Args:
        clock: time between two lines.
        callback: the option that failed, for the log.
        outcome: what becomes of the messages, for the log.
    """

    def __init__(
        self,
        clock: Clock,
        callback: Literal["handler", "on_error", "on_retry", "tx_checker"] = "handler",
        outcome: Literal["redelivered", "answered", "checked_back", "sent_again"] = "redelivered",
    ) -> None:
        self._callback = callback
        self._outcome = outcome
        self._clock = clock
        self._kinds: dict[tuple[object, ...], _Kind] = {}

    def note(self, messages: Sequence[object], error: BaseException) -> None:
        """Log a failure, or count it.

        Args:
            messages: arguments of the failed call, for the log.
            error: the failure.
        """
        now_ms = self._clock.monotonic_ms()
        kind = self._kind_of(error)
        kind.count += 1
        if kind.traceback_ms is None or now_ms - kind.traceback_ms >= TRACEBACK_INTERVAL_MS:
            kind.traceback_ms = now_ms
            logger.warning(
                "handler failed: messages=%(messages)r outcome=%(outcome)s "
                "callback=%(callback)s failures=%(count)d",
                {
                    "messages": messages,
                    "outcome": self._outcome,
                    "callback": self._callback,
                    "count": kind.count,
                },
                exc_info=error,
            )
        elif now_ms - kind.line_ms >= LINE_INTERVAL_MS:
            logger.warning(
                "handler failed as before: messages=%(messages)r outcome=%(outcome)s "
                "error=%(error)s callback=%(callback)s failures=%(count)d",
                {
                    "messages": messages,
                    "outcome": self._outcome,
                    "error": shown(error),
                    "callback": self._callback,
                    "count": kind.count,
                },
            )
        else:
            return
        kind.line_ms = now_ms
        kind.count = 0

    def _kind_of(self, error: BaseException) -> _Kind:
        traceback = error.__traceback__
        while traceback is not None and traceback.tb_next is not None:
            traceback = traceback.tb_next
        place = () if traceback is None else (traceback.tb_frame.f_code, traceback.tb_lineno)
        key = (type(error), *place)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MAX_KINDS:
                del self._kinds[next(iter(self._kinds))]
            kind = self._kinds[key] = _Kind()
        return kind
