"""Rate-limited log of messages that can no longer be delivered.

A deleted topic may have millions of them; a line for each would take more space than the messages.
"""

from collections.abc import Callable, Mapping
from typing import Final

import structlog

from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

MOST_LINES: Final = 10
PAUSE_MS: Final = 10_000
_MOST_CHARS: Final = 256
"""Bound on the logged properties, which a client chose."""


class SkippedMessages:
    """Logs skipped messages: at most 10 in 10 s, with the number of those left out.

    Args:
        event: the log event.
        clock: time.
    """

    def __init__(self, event: str, clock: Clock) -> None:
        self._event = event
        self._clock = clock
        self._until_ms = 0
        self._lines = 0
        self._left_out = 0

    def report(
        self, phy_offset: int, properties: Callable[[], Mapping[str, str]], reason: str
    ) -> None:
        """Log one message.

        Args:
            phy_offset: position of the message in the log.
            properties: returns its properties; called only when they are logged.
            reason: why it is skipped.
        """
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self._until_ms, self._lines = now_ms + PAUSE_MS, 0
        self._lines += 1
        if self._lines > MOST_LINES:
            self._left_out += 1
            return
        _log.error(
            self._event,
            phy_offset=phy_offset,
            properties=str(dict(properties()))[:_MOST_CHARS],
            reason=reason,
            left_out=self._left_out,
        )
        self._left_out = 0
