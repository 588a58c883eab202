"""Topics of the log that the topic table lacks, at a slave or at a master that was one.

A slave fetches its topics from the master. If a topic was created just before the master was lost,
its messages are in the slave's log, but no consumer could read them without the topic. Such a topic
is therefore created from the log: with the queues that its messages need, and with default
settings. The next table that a master sends replaces or removes it.

Topics that the master has deleted must not return with their old messages. When the slave has
read the master's topic table, the master's log ended at some offset: a topic with messages before
it only, which the table lacks, was deleted.
"""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import StoreError
from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX

_log = structlog.get_logger(__name__)

_MOST_LOGGED: Final = 10


class StoredTopics(Protocol):
    """Topics that have messages: part of the message store."""

    @property
    def max_phy_offset(self) -> int:
        """End of the log."""
        ...

    def topics(self) -> list[str]:
        """Return the names of the topics that have queues."""
        ...

    def queue_count_from(self, topic: str, phy_offset: int) -> int:
        """Return the queues of a topic with messages from an offset on; 0 without any."""
        ...


class FoundTopics:
    """Creator of topics of which only messages are known; safe from any thread.

    Args:
        store: the topics with messages.
        table: the topics with settings.
        tables_end: returns the end of the master's log when its topic table was read last; None
            if it is unknown: then no topic is created.
        queue_nums: returns the least number of queues of an ordinary topic.
    """

    def __init__(
        self,
        store: StoredTopics,
        table: TopicTable,
        tables_end: Callable[[], int | None],
        queue_nums: Callable[[], int],
    ) -> None:
        self._store = store
        self._table = table
        self._tables_end = tables_end
        self._queue_nums = queue_nums

    def is_new(self, topic: str) -> bool:
        """Return whether a message that was just stored may be the first of a new topic."""
        if topic in self._table.entries or self._table.is_system(topic):
            return False
        # Old parts of the log have messages of topics that were deleted long ago.
        return self._store.max_phy_offset > (self._tables_end() or 0)

    def create(self) -> list[str]:
        """Create the topics that the table lacks; return their names."""
        end = self._tables_end()
        if end is None:
            return []
        created: list[str] = []
        for topic in self._store.topics():
            if topic in self._table.entries or self._table.is_system(topic):
                continue
            count = self._store.queue_count_from(topic, end)
            if count:
                try:
                    self._table.create_on_send_back(topic, max(count, self._least_of(topic)))
                except StoreError as error:
                    _log.warning("topic not created", topic=topic, error=str(error))
                    break
                created.append(topic)
        if created:
            names = ";".join(created[:_MOST_LOGGED])
            _log.warning("topics created from the log", count=len(created), topics=names)
        return created

    def _least_of(self, topic: str) -> int:
        is_derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        return 1 if is_derived else self._queue_nums()
