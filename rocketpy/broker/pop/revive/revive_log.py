"""Check points and acks, stored as messages of the revive topic through the timer.

A check point becomes readable there one second before its messages are redelivered, an ack at that
time. A reader in queue order therefore finds both, and knows which messages were not acked.

Source: PopMessageProcessor.buildCkMsg, AckMessageProcessor.appendAck, PopCheckPoint.java,
AckMsg.java, PopReviveService.consumeReviveMessage (5.4.0).
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
"""Longest invisible time: the reach of the timer."""


class Timer(Protocol):
    """Interface of the timer: stores messages that become visible later."""

    def put_at(
        self, message: PutMessage, properties: dict[str, str], deliver_ms: int
    ) -> PutMessageResult:
        """Store a message for a delivery time; at once when that has passed.

        Args:
            message: the message with its final topic and queue.
            properties: its properties, with `PROPERTY_TIMER_DELIVER_MS`.
            deliver_ms: delivery time, wall time.
        """
        ...

    def delivered_before_ms(self) -> int:
        """Return the wall time up to which all due messages are visible."""
        ...


class _Host(Protocol):
    @property
    def store_host(self) -> bytes: ...


class ReviveLog:
    """Writes the revive topic; safe from any thread.

    Args:
        timer: schedules the messages.
        host: the store, which knows this broker's address.
        cluster_name: part of the topic's name.
        queue_nums: returns the number of revive queues.
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
        """Number of revive queues."""
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
            ack: the acked messages.
            revive_queue_id: revive queue of the check point.
            revive_time_ms: redelivery time of the check point.
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
"""Topic, group, queue, start offset and time of a pop, and the broker's name."""


def key_of(one: CheckPoint | PopAck) -> PopKey:
    """Return the key that a check point shares with the acks of its messages."""
    return (
        one.topic,
        one.group,
        one.queue_id,
        one.start_offset,
        one.pop_time_ms,
        one.broker_name,
    )
