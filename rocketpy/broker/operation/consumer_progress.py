"""Queries and commits of a group's progress in a queue.

Source: ConsumerManageProcessor.java (5.4.0).
"""

from typing import Protocol

from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.interfaces import QueueStart, RecentMessages


class ProgressStore(QueueStart, RecentMessages, Protocol):
    """Store of consumer progress: starts of queues, and recent messages."""


class ConsumerProgress:
    """Queries and commits consumer offsets.

    Args:
        store: starts of queues.
        configs: the broker's settings.
        topics: topic table.
        groups: group table.
        offsets: committed offsets.
    """

    def __init__(
        self,
        store: ProgressStore,
        *,
        configs: LiveBrokerConfig,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsets,
    ) -> None:
        self._store = store
        self._configs = configs
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    def query(self, group: str, topic: str, queue_id: int, *, may_be_zero: bool) -> int | Refusal:
        """Return the committed offset.

        A group without a commit starts at 0 on a young queue (nothing deleted yet, its first
        message still in memory). Otherwise code 22 leaves the start to the client.

        Args:
            group: consumer group.
            topic: topic of the queue.
            queue_id: queue within the topic.
            may_be_zero: False always returns code 22 without a commit.
        """
        offset = self._offsets.query(group, topic, queue_id)
        if offset != NO_OFFSET:
            return offset
        if (
            may_be_zero
            and self._store.min_offset(topic, queue_id) <= 0
            and self._store.is_in_memory(topic, queue_id, 0)
        ):
            return 0
        remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
        return Refusal(ResponseCode.QUERY_NOT_FOUND, remark)

    def commit(
        self, group: str, topic: str, queue_id: int, offset: int, *, only_forward: bool = False
    ) -> Refusal | str | None:
        """Commit an offset.

        An offset of a missing queue is answered with success, as in Apache, but not stored: it
        would stay on disk for ever.

        Args:
            group: consumer group.
            topic: topic of the queue.
            queue_id: queue within the topic.
            offset: the offset.
            only_forward: keep a larger offset.

        Returns:
            A refusal, or the remark of a success: that a reset was not delivered yet, so nothing
            was committed.
        """
        if self._groups.get(group) is None:
            remark = f"Group {group} not exist!"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        found = self._topics.get(topic)
        if found is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        # Until the reset is delivered, a commit comes from the position before it.
        if self._configs.broker.use_server_side_reset_offset and self._offsets.has_reset(
            group, topic, queue_id
        ):
            return "Offset has been previously reset"
        if only_forward and offset <= self._offsets.query(group, topic, queue_id):
            return None
        # Write queues as well: a consumer drains them after the topic has shrunk.
        if not 0 <= queue_id < max(found.read_queue_nums, found.write_queue_nums):
            return None
        if not self._offsets.commit(group, topic, queue_id, offset):
            remark = "the broker keeps no more offsets: too many queues, topics or groups"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return None
