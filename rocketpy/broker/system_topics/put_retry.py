"""What is due and cannot be stored where it belongs, for long: it lets others pass.

A delivery that fails is tried again, and what is due behind it waits. When one topic takes nothing
for long while others do (its files cannot be written), that would hold up all of them: such a
message is stored in a delay level instead, as a retry is, and comes again half a minute later.
When it cannot be stored there either, the disk is at fault and not the topic: everybody waits.

Popped messages that come back go the same way when their group's retry topic takes none.

Messages of topics of the system (check points, acks) are not set aside: their order matters.

Ours; Apache's broker holds up the level, or one of its threads for timed messages, until the put
succeeds (ScheduleMessageService, TimerDequeuePutMessageService of 5.4.0).
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
"""How long deliveries fail before one is set aside."""
WAIT_MS: Final = 30_000
"""How long it waits then, at least."""
_FORGET_MS: Final = 2 * WAIT_MS
"""After so long without a failure, the next one is held for `HOLD_MS` again."""


class PutRetry:
    """Decides for one reader what waits in a delay level, and stores it there.

    Args:
        put: stores it.
        delay: sends a message the way of a delay level: the message, its properties, the level.
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
        """Note a failure; whether there were some for so long that others are to pass.

        Args:
            now_ms: monotonic time.
        """
        if self._failed_ms is None or now_ms - self._failed_ms > _FORGET_MS:
            self._since_ms = now_ms
        self._failed_ms = now_ms
        return now_ms - self._since_ms >= HOLD_MS

    def store(self, message: PutMessage, now_ms: int) -> int | None:
        """Deal with a message that could not be stored.

        Args:
            message: where it belongs; changed when it is set aside.
            now_ms: monotonic time.

        Returns:
            Physical offset after it where it waits now; None to try it again.
        """
        if not self.fails_long(now_ms) or is_system_topic(message.topic):
            return None
        topic = message.topic
        self._delay(message, parse_properties(message.properties), self._level)
        result = self._put.put(message)
        if result.status is not PutMessageStatus.PUT_OK:
            return None
        _log.info("what cannot be delivered is set aside", topic=topic, delay_level=self._level)
        return result.phy_end
