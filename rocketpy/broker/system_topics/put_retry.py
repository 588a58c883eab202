"""Parking of due messages that cannot be stored for long, so that they do not delay others.

A failed delivery is tried again, and the due messages behind it wait. When one topic accepts
nothing for long while others do (its files cannot be written), that would delay all of them. Such a
message is stored in a delay level instead, like a retry, and is delivered again half a minute
later. If the delay level does not accept it either, the disk is at fault and not the topic: the
reader waits.

Popped messages are parked in the same way when the retry topic of their group accepts nothing.
Messages of system topics (check points, acks) are never parked, because their order matters.

Apache has no such parking; its broker blocks the level, or one of its threads for timed messages,
until the put succeeds (ScheduleMessageService, TimerDequeuePutMessageService of 5.4.0).
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.topic_names import is_system_topic
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

HOLD_MS: Final = 10_000
"""How long deliveries fail before a message is parked."""
WAIT_MS: Final = 30_000
"""Shortest delay of a parked message."""
_FORGET_MS: Final = 2 * WAIT_MS
"""After this long without a failure, the next one is retried for `HOLD_MS` again."""


class PutRetry:
    """Parks failed messages of one reader in a delay level.

    Args:
        put: stores parked messages.
        delay: redirects a message, with its properties, to a delay level.
        delays_ms: the delays, level 1 first.
    """

    def __init__(
        self,
        put: SystemWriter,
        delay: Callable[[PutMessage, dict[str, str], int], None],
        delays_ms: Sequence[int],
    ) -> None:
        self._put = put
        self._delay = delay
        long_enough = (at for at, each in enumerate(delays_ms, 1) if each >= WAIT_MS)
        self._level = next(long_enough, len(delays_ms))
        self._since_ms = 0
        self._failed_ms: int | None = None

    def fails_long(self, now_ms: int) -> bool:
        """Record a failure; whether there were failures for so long that messages are parked.

        Args:
            now_ms: monotonic time.
        """
        if not self._put.parks:
            return False
        if self._failed_ms is None or now_ms - self._failed_ms > _FORGET_MS:
            self._since_ms = now_ms
        self._failed_ms = now_ms
        return now_ms - self._since_ms >= HOLD_MS

    def store(self, message: PutMessage, now_ms: int) -> int | None:
        """Park a message that could not be stored, if failures have lasted long enough.

        Args:
            message: the message for its topic; changed when it is parked.
            now_ms: monotonic time.

        Returns:
            End of the parked message in the log; None to try the original again.
        """
        if not self.fails_long(now_ms) or is_system_topic(message.topic):
            return None
        topic = message.topic
        self._delay(message, parse_properties(message.properties), self._level)
        result = self._put.put(message)
        if result.status is not PutMessageStatus.PUT_OK:
            return None
        _log.info("message parked", topic=topic, delay_level=self._level)
        return result.phy_end
