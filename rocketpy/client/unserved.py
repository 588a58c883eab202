"""Topics that a consumer wants and nobody serves: told once, and once more when they come.

A consumer often starts a moment before the first message makes its topic, so it is only worth a
warning when the topic does not follow.
"""

import logging
from typing import Final

from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

WARN_AFTER_MS: Final = 10_000


class UnservedTopics:
    """Those of one consumer.

    Args:
        group: its group, for the log.
        clock: for how long they have been missed (monotonic).
    """

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._missed_ms: dict[str, int] = {}  # since when, by topic
        self._told: set[str] = set()  # in a warning

    def note(self, topic: str, *, is_served: bool) -> None:
        """Take what a look-up found; a group's own retry topic may come with its first message."""
        if topic.startswith(RETRY_PREFIX):
            return
        if is_served:
            if self._missed_ms.pop(topic, None) is not None:
                self._note_served(topic)
            return
        now_ms = self._clock.monotonic_ms()
        if topic not in self._missed_ms:
            self._missed_ms[topic] = now_ms
            self._log(logging.INFO, "topic %(topic)s is not there yet: group=%(group)s", topic)
        elif topic not in self._told and now_ms - self._missed_ms[topic] >= WARN_AFTER_MS:
            self._told.add(topic)
            text = (
                "no broker has topic %(topic)s: create it, or check its name; it is looked for "
                "again and again: group=%(group)s"
            )
            self._log(logging.WARNING, text, topic)

    def _note_served(self, topic: str) -> None:
        level = logging.WARNING if topic in self._told else logging.INFO
        self._told.discard(topic)
        self._log(level, "topic %(topic)s is there now: group=%(group)s", topic)

    def _log(self, level: int, text: str, topic: str) -> None:
        logger.log(level, text, {"topic": topic, "group": self._group})

    def failures(self) -> dict[str, str]:
        """Return what health says of them."""
        return {
            f"topic {topic}": "no broker has it: create it, or check its name"
            for topic in self._missed_ms
        }
