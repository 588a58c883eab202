"""Who may pop what: names and permissions, in Apache's order.

Source: PopMessageProcessor, NotificationProcessor, PollingInfoProcessor (5.4.0).

How long ago a peer sent a request, by its own clock, which may be wrong.

A pop that comes long after it was sent is answered to nobody: its client gave up, and what it
popped would be invisible for nothing. Apache compares the clocks of both machines, so a consumer
whose clock is behind by more than it waits never gets a message. Here a peer whose requests all
seem late has a wrong clock, and from then on its requests are told apart by their own times.
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
    """Checks the names of a request.

    Args:
        topics: topic table.
        groups: group table; a group that does not exist yet is created as for a pull.
    """

    def __init__(self, topics: TopicTable, groups: SubscriptionGroupTable) -> None:
        self._topics = topics
        self._groups = groups

    def check(self, topic_name: str, queue_id: int, group_name: str) -> Refusal | None:
        """Return why a group may not pop a queue; None when it may.

        Args:
            topic_name: of the queue.
            queue_id: below 0 is any queue.
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
    """The refusal of a topic that does not exist."""
    remark = f"topic[{topic_name[:255]}] not exist, apply first please!"
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


def bad_queue(topic_name: str, queue_id: int, read_queue_nums: int) -> str:
    """The remark on a queue that a topic does not have."""
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
        f"topicConfig.readQueueNums:[{read_queue_nums}]"
    )


LATE_MS: Final = 500
"""A request that comes so long after its own poll time was given up by its client."""
_WRONG_AFTER_MS: Final = 2_000
_SHARE: Final = 16


class _Peer:
    """What is known of one peer's clock; monotonic times."""

    __slots__ = ("apart_ms", "late_since_ms")

    def __init__(self, apart_ms: int) -> None:
        self.apart_ms = apart_ms
        self.late_since_ms = -1


class PeerClocks:
    """The clocks of peers that are connected; safe from any thread.

    Args:
        clock: this machine's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._peers: dict[Hashable, _Peer] = {}

    def __len__(self) -> int:
        """How many peers are known."""
        return len(self._peers)

    def born_ms(self, peer: Hashable, told_ms: int | None, poll_ms: int) -> int:
        """When a request was sent, by this machine's wall clock.

        Args:
            peer: who sent it.
            told_ms: when it was sent, by the peer's wall clock; None when it does not say.
            poll_ms: how long its client waits.
        """
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        if not told_ms:
            return wall_ms
        with self._lock:
            known = self._peers.get(peer)
            if known is None:
                known = self._peers[peer] = _Peer(now_ms - wall_ms)
            return wall_ms - self._age_ms(known, now_ms, now_ms - told_ms, poll_ms)

    def _age_ms(self, known: _Peer, now_ms: int, apart_ms: int, poll_ms: int) -> int:
        age_ms = apart_ms - known.apart_ms
        if age_ms <= poll_ms + LATE_MS:
            known.late_since_ms = -1
            # Clocks drift: what is nearly in time is followed slowly, what is early at once.
            known.apart_ms += age_ms // _SHARE if age_ms > 0 else age_ms
            return max(0, age_ms)
        if known.late_since_ms < 0:
            known.late_since_ms = now_ms
        if now_ms - known.late_since_ms < _WRONG_AFTER_MS:
            return age_ms
        known.apart_ms, known.late_since_ms = apart_ms, -1
        return 0

    def forget(self, peer: Hashable) -> None:
        """Forget a peer that is lost."""
        with self._lock:
            self._peers.pop(peer, None)
