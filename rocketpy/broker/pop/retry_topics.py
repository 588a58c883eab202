"""Where popped messages go that come back: a group's retry topic, made when it is needed.

Source: PopReviveService.reviveRetry, addRetryTopicIfNotExist (5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.topics import TopicTable
from rocketpy.errors import StoreError
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.topic_names import RETRY_PREFIX, pop_retry_topic_v1, pop_retry_topic_v2

_RETRY_QUEUES: Final = 1

_log = structlog.get_logger(__name__)


class RetryTopics:
    """Names and makes retry topics.

    Args:
        topics: where they are made.
        offsets: where a group begins in a new one.
        is_v2: which kind is used.
    """

    def __init__(self, topics: TopicTable, offsets: ConsumerOffsets, *, is_v2: bool) -> None:
        self._topics = topics
        self._offsets = offsets
        self._is_v2 = is_v2

    def topic_of(self, point: CheckPoint) -> str | None:
        """Return the retry topic of a check point's messages; None when it cannot be made now."""
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            make = pop_retry_topic_v2 if self._is_v2 else pop_retry_topic_v1
            topic = make(topic, point.group)
        try:
            self._ensure(topic, point.group)
        except (StoreError, OSError) as error:
            _log.warning("no retry topic for popped messages", topic=topic, error=str(error))
            return None
        return topic

    def _ensure(self, topic: str, group: str) -> None:
        is_new = self._topics.get(topic) is None
        if not self._topics.is_written(topic):
            with self._topics.one_write():  # a check point that is passed counts on it
                self._topics.create_on_send_back(topic, _RETRY_QUEUES)
        if is_new and self._offsets.query(group, topic, 0) == NO_OFFSET:
            self._offsets.commit(group, topic, 0, 0)
