"""Consume queues and files: read queue entries, delete what is obsolete.

Source: `AdminBrokerProcessor` (queryConsumeQueue, cleanExpiredConsumeQueue, cleanUnusedTopic,
deleteExpiredCommitLog) (5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.bodies.stats import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketpy.proto.headers.admin import QueryConsumeQueueRequestHeader
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.store.message_store import MessageStore

_log = structlog.get_logger(__name__)

MAX_ENTRIES: Final = 1_000
"""Entries of one response; each is read by itself."""


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
        """Return the processors by request code."""
        return {
            RequestCode.QUERY_CONSUME_QUEUE: self.query,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired,
        }

    def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return entries of one consume queue (321), at most 1,000 per request."""
        header = QueryConsumeQueueRequestHeader.from_ext(request.ext_fields)
        topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
        store = self._store
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        if low < 0:
            remark = f"{queue_id}@{topic} is not exist!"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        start, count = header.index, min(max(0, header.count), MAX_ENTRIES)
        subscription = self._consumers.subscription(group, topic) if group else None
        entries = []
        for index in range(max(start, low), min(start + count, high)):
            entry = store.queue_entry(topic, queue_id, index)
            if entry is not None:
                entries.append(_entry(entry, subscription))
        return ok(
            request,
            QueryConsumeQueueResponseBody(
                subscription_data=subscription,
                queue_data=entries,
                max_queue_index=high,
                min_queue_index=low,
            ),
        )

    def clean_expired(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete consume queue files of deleted messages (306)."""
        self._store.clean_expired_consume_queues()
        return ok(request)

    def clean_unused(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete the queues of topics that do not exist on this broker (316)."""
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


def _entry(entry: tuple[int, int, int], subscription: SubscriptionData | None) -> ConsumeQueueData:
    phy_offset, size_bytes, tags_code = entry
    return ConsumeQueueData(
        physic_offset=phy_offset,
        physic_size=size_bytes,
        tags_code=tags_code,
        eval=subscription is not None and subscription.matches_tags_code(tags_code),
    )
