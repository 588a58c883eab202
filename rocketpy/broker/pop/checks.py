"""Checks of a pop request: permissions, and the age of the request.

Names and permissions are checked in Apache's order.

A pop that arrives after its client timed out must not pop: its messages would be invisible for
nothing. Apache compares the clocks of both machines, so a consumer whose clock is behind by more
than its poll time never gets a message. Here, a peer whose requests all seem late is taken to have
a wrong clock, and from then on only the differences between its own times count.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor (5.4.0).
"""

import threading
from collections.abc import Hashable
from typing import Final

from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock


class PopChecks:
    """Checks the topic, the queue and the group of a request.

    Args:
        topics: topic table.
        groups: group table; creates missing groups under the same conditions as a pull.
    """

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        self._topics = topics
        self._groups = groups

    def check(self, topic_name: str, queue_id: int, group_name: str) -> Refusal | None:
        """Return why a group may not pop a queue, or None when it may.

        Args:
            topic_name: topic of the queue.
            queue_id: queue; below 0 means all queues.
            group_name: consumer group.
        """
        topic = self._topics.get(topic_name)
        if topic is None:
            return no_topic(topic_name)
        if not topic.perm & PERM_READ:
            remark = f"the topic[{topic_name}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if queue_id >= topic.read_queue_nums:
            remark = bad_queue(topic_name, queue_id, topic.read_queue_nums)
            return Refusal(ResponseCode.INVALID_PARAMETER, remark)
        group = self._groups.get_or_create(group_name)
        if group is None:
            remark = f"subscription group [{group_name[:255]}] does not exist"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {group_name}"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if topic.is_batch_cq:
            remark = "this broker version does not support topics with queue.type BatchCQ"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return None


def no_topic(topic_name: str) -> Refusal:
    """Return the refusal for a topic that does not exist."""
    remark = f"topic[{topic_name[:255]}] not exist, apply first please!"
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


def bad_queue(topic_name: str, queue_id: int, read_queue_nums: int) -> str:
    """Return the remark about a queue id that a topic does not have."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
        f"topicConfig.readQueueNums:[{read_queue_nums}]"
    )


LATE_MS: Final = 500
"""The client of a request that arrives this long after its poll time ended has timed out."""
_WRONG_AFTER_MS: Final = 2_000
"""A peer that is late for this long has a wrong clock; a pause of the network is shorter."""
_SHARE: Final = 16
"""Part of a small delay that counts as drift: delays vary, and drift is slow."""


class _Peer:
    """Clock offset of one peer, in monotonic time."""

    __slots__ = ("apart_ms", "late_since_ms")

    def __init__(self, apart_ms: int) -> None:
        self.apart_ms = apart_ms
        self.late_since_ms = -1


class PeerClocks:
    """Clock offsets of connected peers; safe from any thread.

    Args:
        clock: this machine's clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._peers: dict[Hashable, _Peer] = {}

    def __len__(self) -> int:
        """Number of peers with a clock offset."""
        return len(self._peers)

    def born_ms(self, peer: Hashable, sent_ms: int | None, poll_ms: int) -> int:
        """Return when a request was sent, by this machine's wall clock.

        Args:
            peer: sender of the request.
            sent_ms: when it was sent, by the peer's wall clock; None or 0 when not given.
            poll_ms: how long its client waits.
        """
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        if not sent_ms:
            return wall_ms
        with self._lock:
            known = self._peers.get(peer)
            if known is None:
                known = self._peers[peer] = _Peer(now_ms - wall_ms)
            return wall_ms - self._age_ms(known, now_ms, now_ms - sent_ms, poll_ms)

    def _age_ms(self, known: _Peer, now_ms: int, apart_ms: int, poll_ms: int) -> int:
        age_ms = apart_ms - known.apart_ms
        if age_ms <= poll_ms + LATE_MS:
            known.late_since_ms = -1
            # Clocks drift: a request that is a little late moves the offset slowly, because it
            # may have been delayed; one that is early moves it at once, because it cannot be.
            known.apart_ms += age_ms // _SHARE if age_ms > 0 else age_ms
            return max(0, age_ms)
        if known.late_since_ms < 0:
            known.late_since_ms = now_ms
        if now_ms - known.late_since_ms < _WRONG_AFTER_MS:
            return age_ms
        known.apart_ms, known.late_since_ms = apart_ms, -1
        return 0

    def forget(self, peer: Hashable) -> None:
        """Drop the clock offset of a lost peer."""
        with self._lock:
            self._peers.pop(peer, None)
