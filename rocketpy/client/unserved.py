"""Topics that a consumer wants and nobody serves: told once, and once more when they come."""

import logging

from rocketpy.proto.topic_names import RETRY_PREFIX

logger: logging.Logger = logging.getLogger(__name__)


class UnservedTopics:
    """Those of one consumer.

    Args:
        group: its group, for the log.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._topics: dict[str, None] = {}

    def note(self, topic: str, *, is_served: bool) -> None:
        """Take what a look-up found; a group's own retry topic may come with its first message."""
        if topic.startswith(RETRY_PREFIX) or is_served is (topic not in self._topics):
            return
        if is_served:
            del self._topics[topic]
            logger.warning(
                "topic %(topic)s is there now: group=%(group)s",
                {"topic": topic, "group": self._group},
            )
            return
        self._topics[topic] = None
        logger.warning(
            "no broker has topic %(topic)s: create it, or check its name; it is looked for again "
            "and again: group=%(group)s",
            {"topic": topic, "group": self._group},
        )

    def failures(self) -> dict[str, str]:
        """Return what health says of them."""
        return {
            f"topic {topic}": "no broker has it: create it, or check its name"
            for topic in self._topics
        }
