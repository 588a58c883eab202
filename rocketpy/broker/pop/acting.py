"""Redelivery of unacknowledged popped messages while a slave acts as master.

The revive queues are read as at a master, continued by the deliveries of the timer (`ReviveSink`).
Each message is sent to the retry topic at another group that has the message's topic: consumers
pop there too. Without such a group, messages stay for the master, and hold those behind them.

Messages that were popped at the acting slave itself have their check points in memory only. Those
whose invisible time is over are sent in the same way, then the group's offset passes them.

Difference from Apache: there, check points and acks go to another group, which fetches the message
from the acting slave. The two may reach different groups, and then an acked message is redelivered.

Source: PopReviveService.reviveRetry, EscapeBridge.putMessageToSpecificQueue (5.4.0).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.revive.revive import DUE_AFTER_MS, ReviveQueue, Reviver
from rocketpy.broker.pop.revive.revive_sink import JoinedQueue, ReviveSink
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.pop import normal_topic
from rocketpy.proto.topic_names import RETRY_PREFIX, pop_retry_topic_v1, pop_retry_topic_v2
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

_MAX_ROUTES: Final = 10_000


@dataclass(frozen=True, slots=True)
class PopEscape:
    """Writer to other broker groups, as far as pops use it.

    Attributes:
        put: the writer.
        sink: receives the check points and acks that the writer must not send.
        route_topics: topics whose routes lead to the groups, by retry topic.
    """

    put: SystemWriter
    sink: ReviveSink
    route_topics: dict[str, str]


class ActingOffsets:
    """Progress of one revive queue, which does not pass the end of the queue in the log.

    Args:
        offsets: committed offsets, which the returning master applies.
        queue: the queue.
    """

    def __init__(self, offsets: ConsumerOffsets, queue: JoinedQueue) -> None:
        self._offsets = offsets
        self._last = queue.start - 1

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset."""
        return self._offsets.query(group, topic, queue_id)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Move the offset forward."""
        self._offsets.advance(group, topic, queue_id, min(offset, self._last))
        return True


class EscapedRetryTopics:
    """Names of retry topics at other groups, which create them.

    Args:
        route_topics: receives the topic whose route leads to the groups, by retry topic.
        is_v2: whether names are of version 2.
    """

    def __init__(self, route_topics: dict[str, str], *, is_v2: bool) -> None:
        self._route_topics = route_topics
        self._is_v2 = is_v2

    def topic_of(self, point: CheckPoint) -> str | None:
        """Return the retry topic of a check point's messages."""
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            make = pop_retry_topic_v2 if self._is_v2 else pop_retry_topic_v1
            topic = make(topic, point.group)
        if len(self._route_topics) >= _MAX_ROUTES:
            self._route_topics.clear()
        self._route_topics[topic] = normal_topic(point.topic, point.group)
        return topic


class ActingRevive:
    """Background service of an acting master; see the module.

    Args:
        sink: check points and acks.
        make_queue: creates the reader of a queue.
        buffer: check points of messages that were popped here.
        reviver: sends messages to another group.
        clock: time.
        interval_ms: interval of the steps while there is nothing to do.
    """

    name = "PopReviveActing"

    def __init__(
        self,
        sink: ReviveSink,
        make_queue: Callable[[JoinedQueue], ReviveQueue],
        buffer: CheckPointBuffer,
        reviver: Reviver,
        *,
        clock: Clock,
        interval_ms: int,
    ) -> None:
        self._sink = sink
        self._make_queue = make_queue
        self._buffer = buffer
        self._reviver = reviver
        self._clock = clock
        self._interval_ms = interval_ms
        self._source: list[JoinedQueue] = []
        self._queues: list[tuple[JoinedQueue, ReviveQueue]] = []

    def step(self, now_ms: int) -> int:
        """Do a bounded amount of work per queue; see `rocketpy.runtime.service.Service.step`."""
        source = self._sink.queues
        if source is not self._source:  # the slave began to act
            self._source = source
            self._queues = [(each, self._make_queue(each)) for each in source]
        has_more = [self._step(joined, queue) for joined, queue in self._queues]
        over_ms = self._clock.time_ms() - DUE_AFTER_MS
        self._buffer.revive_expired(over_ms, self._reviver.revive)
        return now_ms if any(has_more) else now_ms + self._interval_ms

    def _step(self, joined: JoinedQueue, queue: ReviveQueue) -> bool:
        try:
            has_more = queue.step()
        except Exception:  # noqa: BLE001 - one queue must not stop the others
            _log.exception("revive failed", queue_id=queue.queue_id)
            return False
        joined.settle(queue.next_offset, queue.pending_points)
        return has_more
