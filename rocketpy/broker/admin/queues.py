"""Consume queues: look inside, clean up.

Source: `AdminBrokerProcessor` (queryConsumeQueue, cleanExpiredConsumeQueue, cleanUnusedTopic,
deleteExpiredCommitLog) (5.4.0).
"""

from typing import Any, Final

import structlog

from rocketpy.broker.admin.connections import subscription_json
from rocketpy.broker.admin.fields import integer, ok, optional, refuse, required
from rocketpy.broker.registry import ConsumerTable
from rocketpy.broker.topics import TopicTable
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor
from rocketpy.store.message_store import MessageStore

_log = structlog.get_logger(__name__)

MAX_ENTRIES: Final = 1_000


class QueueAdmin:
    """Admin requests about consume queues and files."""

    def __init__(
        self,
        *,
        consumers: ConsumerTable,
        store: MessageStore,
        topics: TopicTable,
    ) -> None:
        self._consumers = consumers
        self._store = store
        self._topics = topics

    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.query,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
        }

    def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Entries of one consume queue (321), at most 1,000 a request."""
        topic, queue_id = required(request, "topic"), integer(request, "queueId", 0)
        group = optional(request, "consumerGroup")
        store = self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if low < 0:
            remark = f"{queue_id}@{topic} is not exist!"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        start = integer(request, "index", 0)
        count = min(max(0, integer(request, "count", 0)), MAX_ENTRIES)
        subscription = self._consumers.subscription(group, topic) if group else None
        entries = []
        for index in range(max(start, low), min(start + count, high)):
            entry = store.queue_entry(topic, queue_id, index)
            if entry is not None:
                entries.append(_entry(entry, subscription))
        value: dict[str, Any] = {"maxQueueIndex": high, "minQueueIndex": low, "queueData": entries}
        if subscription is not None:
            value["subscriptionData"] = subscription_json(subscription)
        return ok(request, value)

    def clean_expired(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete consume queue files whose messages are gone (306)."""
        self._store.clean_expired_consume_queues()
        return ok(request)

    def clean_unused(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete the queues of topics that this broker does not have any more (316)."""
        known = self._topics
        unused = [topic for topic in self._store.topics() if known.get(topic) is None]
        if unused:
            self._store.delete_topics(unused)
            _log.info("unused topics deleted", topics=unused)
        return ok(request)

    def delete_expired(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete expired commit log files now instead of at the configured hour (329)."""
        self._store.delete_expired_files()
        return ok(request)


def _entry(entry: tuple[int, int, int], subscription: SubscriptionData | None) -> dict[str, Any]:
    phy_offset, size_bytes, tags_code = entry
    return {
        "eval": subscription is not None and subscription.matches_tags_code(tags_code),
        "physicOffset": phy_offset,
        "physicSize": size_bytes,
        "tagsCode": tags_code,
    }
