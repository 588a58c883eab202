"""Queues that a pop reads, and whether one of them has a message for it.

Source: PopMessageProcessor.processRequest, NotificationProcessor.hasMsgFromTopic (5.4.0).
"""

from collections.abc import Iterator
from typing import Final, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.suspended_pops import ANY_QUEUE
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import pop_retry_topic_v1, pop_retry_topic_v2
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import QueueBounds

PERCENT: Final = 100


class Wanted(Protocol):
    """Interface of requests: the fields that select queues."""

    @property
    def group(self) -> str:
        """Consumer group."""
        ...

    @property
    def topic(self) -> str:
        """The subscribed topic."""
        ...

    @property
    def queue_id(self) -> int:
        """Queue; below 0 means all queues."""
        ...

    @property
    def init_mode(self) -> int:
        """First offset of a group that has none."""
        ...

    @property
    def is_ordered(self) -> bool:
        """Whether blocked queues and retry topics are left out."""
        ...

    @property
    def attempt_id(self) -> str | None:
        """Identifies an ordered call, which its own messages do not block."""
        ...


class PopQueues:
    """Selects the queues of requests; safe from any thread.

    Args:
        topics: topic table.
        positions: next offsets of the groups.
        order: blocked queues of ordered groups.
        ends: first and last offsets of queues.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        topics: TopicTable,
        positions: PopPositions,
        order: OrderTable,
        ends: QueueBounds,
        *,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._positions = positions
        self._order = order
        self._ends = ends
        self._config = config
        self._clock = clock

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def in_pop_order(self, wanted: Wanted, start: int) -> Iterator[GroupQueue]:
        """Yield every queue that a pop reads, those of the retry topic first or last.

        Args:
            wanted: the request.
            start: random number from 0 to 99, chooses the first queue.
        """
        retry: list[GroupQueue] = []
        if not wanted.is_ordered:
            retry = _all_queues(self._retry_topic(wanted, start), wanted.group, start)
        # As Apache: `pop_from_retry_probability` percent of the pops read the retry topic first,
        # so that neither new nor retried messages starve.
        is_first = start < self._config.pop_from_retry_probability
        if is_first:
            yield from retry
        if wanted.queue_id < 0:
            yield from _all_queues(self._topics.get(wanted.topic), wanted.group, start)
        else:
            yield GroupQueue(wanted.topic, wanted.group, wanted.queue_id)
        if not is_first:
            yield from retry

    def has_message(self, wanted: Wanted) -> bool:
        """Return whether a message was not popped yet; filters are not applied."""
        return any(
            self._ends.max_offset(queue.topic, queue.queue_id)
            > self._positions.next_offset(queue, wanted.init_mode)
            and not (wanted.is_ordered and self._order.is_blocked(queue, wanted.attempt_id))
            for queue in self._known(wanted)
        )

    def free_at_ms(self, wanted: Wanted) -> int | None:
        """Return the monotonic time at which the next blocked queue is free; None if none is."""
        now_ms = self._clock.monotonic_ms()
        times = [self._order.free_at_ms(one, wanted.attempt_id) for one in self._known(wanted)]
        return min((each for each in times if each > now_ms), default=None)

    def _retry_topic(self, wanted: Wanted, start: int) -> TopicConfig | None:
        """Return the retry topic of one pop; it alternates when both versions exist."""
        topic, group = wanted.topic, wanted.group
        old = self._topics.get(pop_retry_topic_v1(topic, group))
        new = self._topics.get(pop_retry_topic_v2(topic, group))
        if old is None or new is None:
            return new or old
        return old if start % 2 == 0 else new

    def _known(self, wanted: Wanted) -> Iterator[GroupQueue]:
        if wanted.queue_id >= 0:
            yield GroupQueue(wanted.topic, wanted.group, wanted.queue_id)
        else:
            yield from _all_queues(self._topics.get(wanted.topic), wanted.group, 0)
        if not wanted.is_ordered:
            for make in (pop_retry_topic_v1, pop_retry_topic_v2):
                retry = self._topics.get(make(wanted.topic, wanted.group))
                yield from _all_queues(retry, wanted.group, 0)


def _all_queues(topic: TopicConfig | None, group: str, start: int) -> list[GroupQueue]:
    if topic is None:
        return []
    count = topic.read_queue_nums
    return [GroupQueue(topic.topic_name, group, (start + index) % count) for index in range(count)]


def awaited_queues(topic: str, group: str, queue_id: int) -> list[GroupQueue]:
    """Return the queues that wake a request: its own, and those of the group's retry topics."""
    return [
        GroupQueue(topic, group, max(ANY_QUEUE, queue_id)),
        GroupQueue(pop_retry_topic_v1(topic, group), group, ANY_QUEUE),
        GroupQueue(pop_retry_topic_v2(topic, group), group, ANY_QUEUE),
    ]
