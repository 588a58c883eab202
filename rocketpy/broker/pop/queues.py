"""Which queues a pop reads, and whether one of them has something.

Source: PopMessageProcessor.processRequest, NotificationProcessor.hasMsgFromTopic (5.4.0).
"""

from collections.abc import Iterator
from typing import Final, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.positions import PopPositions, QueueEnds
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.broker.pop.waiters import ANY_QUEUE
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import pop_retry_topic_v1, pop_retry_topic_v2
from rocketpy.runtime.clock import Clock

PERCENT: Final = 100


class Wanted(Protocol):
    """What names the queues of a request."""

    @property
    def group(self) -> str:
        """Consumer group."""
        ...

    @property
    def topic(self) -> str:
        """As it was subscribed."""
        ...

    @property
    def queue_id(self) -> int:
        """Below 0 is any queue."""
        ...

    @property
    def init_mode(self) -> int:
        """Where a group begins that has no offset."""
        ...

    @property
    def is_ordered(self) -> bool:
        """Whether blocked queues are left alone, and retry topics too."""
        ...

    @property
    def attempt_id(self) -> str | None:
        """Of an ordered call, whose own messages do not block it."""
        ...


class PopQueues:
    """The queues of requests; safe from any thread.

    Args:
        topics: topic table.
        positions: where pops begin.
        order: which queues are blocked.
        ends: where queues end.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        topics: TopicTable,
        positions: PopPositions,
        order: OrderTable,
        ends: QueueEnds,
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
        """Take over changed settings."""
        self._config = config

    def in_turn(self, wanted: Wanted, start: int) -> Iterator[GroupQueue]:
        """Every queue that a pop reads, in turn; those of the retry topic first or last.

        Args:
            wanted: what is popped.
            start: 0 to 99, by chance: where to begin.
        """
        retry: list[GroupQueue] = []
        if not wanted.is_ordered:
            retry = _all_queues(self._retry_topic(wanted, start), wanted.group, start)
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
        """Whether there is a message that is not popped yet, whatever a filter says."""
        return any(
            self._ends.max_offset(queue.topic, queue.queue_id)
            > self._positions.of(queue, wanted.init_mode)
            and not (wanted.is_ordered and self._order.is_blocked(queue, wanted.attempt_id))
            for queue in self._known(wanted)
        )

    def free_at_ms(self, wanted: Wanted) -> int | None:
        """Monotonic time at which the next blocked queue becomes free; None when none is."""
        now_ms = self._clock.monotonic_ms()
        times = [self._order.free_at_ms(one, wanted.attempt_id) for one in self._known(wanted)]
        return min((each for each in times if each > now_ms), default=None)

    def _retry_topic(self, wanted: Wanted, start: int) -> TopicConfig | None:
        """The retry topic of one pop: one of the two kinds, now this, now that."""
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


def waits_for(topic: str, group: str, queue_id: int) -> list[GroupQueue]:
    """What a request waits for: its queues, and the group's retry topics."""
    return [
        GroupQueue(topic, group, max(ANY_QUEUE, queue_id)),
        GroupQueue(pop_retry_topic_v1(topic, group), group, ANY_QUEUE),
        GroupQueue(pop_retry_topic_v2(topic, group), group, ANY_QUEUE),
    ]
