"""Check points and acks as messages of the revive topic, which reach it through the timer.

A check point arrives there a second before its messages may come back, an ack when they may: who
reads the topic in order finds both, and knows what was not acked.

Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck (5.4.0).

What a check point and the acks of its messages have in common.

Source: PopCheckPoint.java, AckMsg.java, PopReviveService.consumeReviveMessage (5.4.0).
"""

from collections.abc import Callable
from typing import Final, Protocol

from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import CHECK_POINT_TAG, revive_topic
from rocketpy.proto.record.properties import (
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessage, PutMessageResult

CHECK_POINT_LEAD_MS: Final = 1_000
MAX_INVISIBLE_MS: Final = 3 * 24 * 3_600 * 1_000
"""As far as the timer reaches."""


class Timer(Protocol):
    """Stores messages that become visible later."""

    def put_at(
        self, message: PutMessage, properties: dict[str, str], deliver_ms: int
    ) -> PutMessageResult:
        """Store a message for a time; when that is past, at once.

        Args:
            message: with its own topic and queue.
            properties: of the message, with `PROPERTY_TIMER_DELIVER_MS`.
            deliver_ms: wall time.
        """
        ...

    def delivered_before_ms(self) -> int:
        """Everything stored so far that was due before this moment is visible; wall time."""
        ...


class _Host(Protocol):
    @property
    def store_host(self) -> bytes: ...


class ReviveLog:
    """Writes the revive topic; safe from any thread.

    Args:
        timer: stores messages for later.
        host: the store, which knows this broker's address.
        cluster_name: names the topic.
        queue_nums: asked how many queues there are.
        clock: time.
    """

    def __init__(
        self,
        timer: Timer,
        host: _Host,
        *,
        cluster_name: str,
        queue_nums: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.topic: str = revive_topic(cluster_name)
        self._queue_nums = queue_nums
        self._timer = timer
        self._host = host
        self._clock = clock

    @property
    def queue_nums(self) -> int:
        """Queues that check points and acks may lie in."""
        return self._queue_nums()

    def put_check_point(self, point: CheckPoint, revive_queue_id: int) -> PutMessageResult:
        """Store a check point."""
        point.revive_time_ms = point.pop_time_ms + point.invisible_ms
        return self._put(
            point.encode(),
            CHECK_POINT_TAG,
            point.unique_key,
            revive_queue_id,
            point.revive_time_ms - CHECK_POINT_LEAD_MS,
        )

    def put_ack(self, ack: PopAck, revive_queue_id: int, revive_time_ms: int) -> PutMessageResult:
        """Store an ack.

        Args:
            ack: what is acked.
            revive_queue_id: of the check point.
            revive_time_ms: of the check point.
        """
        return self._put(ack.encode(), ack.tag, ack.unique_key, revive_queue_id, revive_time_ms)

    def _put(
        self, body: bytes, tag: str, unique_key: str, revive_queue_id: int, deliver_ms: int
    ) -> PutMessageResult:
        properties = {
            PROPERTY_TIMER_DELIVER_MS: str(deliver_ms),
            PROPERTY_UNIQ_KEY: unique_key,
            PROPERTY_TAGS: tag,
        }
        message = PutMessage(
            self.topic,
            revive_queue_id,
            body,
            encode_properties(properties),
            self._host.store_host,
            born_timestamp_ms=self._clock.time_ms(),
            tags_code=tags_code(tag),
            uniq_key=unique_key,
            tags=tag,
        )
        return self._timer.put_at(message, properties, deliver_ms)


PopKey = tuple[str, str, int, int, int, str | None]
"""Topic, group, queue, offset and time of a pop, and the broker's name."""


def key_of(one: CheckPoint | PopAck) -> PopKey:
    """Which pop of which queue it belongs to."""
    return (
        one.topic,
        one.group,
        one.queue_id,
        one.start_offset,
        one.pop_time_ms,
        one.broker_name,
    )
