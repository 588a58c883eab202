"""Progress and lag of consumer groups.

Source: `AdminBrokerProcessor` (getConsumeStats, fetchAllConsumeStatsInBroker, queryConsumeTimeSpan)
and `ConsumeStats` (5.4.0).
"""

import time

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.proto.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from rocketpy.proto.headers.admin import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
)
from rocketpy.proto.headers.topic import QueryConsumeTimeSpanRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.clock import Clock
from rocketpy.store.message_store import MessageStore

_OffsetTable = dict[MessageQueue, OffsetWrapper]


class ConsumeStatsAdmin:
    """Admin requests about the progress of groups."""

    def __init__(
        self,
        *,
        clock: Clock,
        consumers: ConsumerTable,
        groups: SubscriptionGroupTable,
        identity: BrokerIdentity,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        store: MessageStore,
        topics: TopicTable,
    ) -> None:
        self._clock = clock
        self._consumers = consumers
        self._groups = groups
        self._identity = identity
        self._offsets = offsets
        self._stats = stats
        self._store = store
        self._topics = topics

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.GET_CONSUME_STATS: self.of_group,
            RequestCode.GET_BROKER_CONSUME_STATS: self.of_broker,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.time_span,
        }

    def of_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the broker and consumer offsets of one group (208)."""
        header = GetConsumeStatsRequestHeader.from_ext(request.ext_fields)
        group = header.consumer_group
        listed = [name for name in (header.topic_list or "").split(";") if name]
        topic = (header.topic or "").strip()
        if listed:
            topics = set(listed)
        elif topic:
            topics = {topic}
        else:
            topics = self._offsets.topics_of_group(group)
        table: _OffsetTable = {}
        tps = 0.0
        for name in sorted(topics):
            found = self._topics.get(name)
            if found is None or self._left_behind(group, name):
                continue
            table.update(self._offsets_of(group, name, found.read_queue_nums))
            tps += self._stats.group_get_tps(group, name)
        return ok(request, ConsumeStats(table, tps))

    def of_broker(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the broker and consumer offsets of all groups (317)."""
        only_ordered = GetConsumeStatsInBrokerHeader.from_ext(request.ext_fields).is_order
        listed: list[dict[str, list[ConsumeStats]]] = []
        total_diff = total_in_flight = 0
        for group in self._groups.all():
            of_group = []
            for name in sorted(self._offsets.topics_of_group(group)):
                topic = self._topics.get(name)
                if topic is None or (only_ordered and not topic.order):
                    continue
                if self._left_behind(group, name):
                    continue
                table = self._offsets_of(group, name, topic.write_queue_nums)
                tps = self._stats.group_get_tps(group, name)
                of_group.append(ConsumeStats(table, tps))
                for one in table.values():
                    total_diff += max(0, one.broker_offset - one.consumer_offset)
                    total_in_flight += one.pull_offset - one.consumer_offset
            listed.append({group: of_group})
        return ok(
            request,
            ConsumeStatsList(listed, self._identity.address, total_diff, total_in_flight),
        )

    def time_span(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the time span of a topic's messages, and the position of a group in it (303)."""
        store = self._store
        header = QueryConsumeTimeSpanRequestHeader.from_ext(request.ext_fields)
        topic, group = header.topic, header.group
        found = self._topics.get(topic)
        if found is None:
            return refuse(request, ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        spans = []
        for queue_id in range(found.write_queue_nums):
            high = max(0, store.max_offset(topic, queue_id))
            first_ms = store.earliest_store_time_ms(topic, queue_id) if high else 0
            last_ms = store.store_time_ms(topic, queue_id, high - 1) if high else 0
            done = max(0, self._offsets.query(group, topic, queue_id))
            done_ms = store.store_time_ms(topic, queue_id, done - 1) if done else first_ms
            delay_ms = 0
            if done < high:
                next_ms = store.store_time_ms(topic, queue_id, done)
                delay_ms = self._clock.time_ms() - next_ms if next_ms > 0 else 0
            queue = MessageQueue(topic, self._identity.broker_name, queue_id)
            spans.append(_span(queue, first_ms, last_ms, done_ms, delay_ms))
        return ok(request, QueryConsumeTimeSpanBody(spans))

    def _offsets_of(self, group: str, topic: str, queue_nums: int) -> _OffsetTable:
        """Return one entry per queue; a queue without a committed offset counts from offset 0."""
        table: _OffsetTable = {}
        for queue_id in range(queue_nums):
            done = max(0, self._offsets.query(group, topic, queue_id))
            last_ms = self._store.store_time_ms(topic, queue_id, done - 1) if done > 0 else 0
            table[MessageQueue(topic, self._identity.broker_name, queue_id)] = OffsetWrapper(
                broker_offset=max(0, self._store.max_offset(topic, queue_id)),
                consumer_offset=done,
                pull_offset=max(done, self._offsets.query_pull(group, topic, queue_id)),
                last_timestamp=max(0, last_ms),
            )
        return table

    def _left_behind(self, group: str, topic: str) -> bool:
        """Return whether the group is online and no longer subscribes to the topic."""
        entry = self._consumers.group(group)
        return entry is not None and bool(entry.subscriptions) and topic not in entry.subscriptions


def _span(
    queue: MessageQueue, first_ms: int, last_ms: int, done_ms: int, delay_ms: int
) -> QueueTimeSpan:
    return QueueTimeSpan(
        message_queue=queue,
        min_time_stamp=first_ms,
        max_time_stamp=last_ms,
        consume_time_stamp=done_ms,
        delay_time=delay_ms,
        min_time_stamp_str=_readable(first_ms),
        max_time_stamp_str=_readable(last_ms),
        consume_time_stamp_str=_readable(done_ms),
    )


def _readable(time_ms: int) -> str:
    local = time.localtime(max(0, time_ms) // 1000)
    return time.strftime("%Y-%m-%d#%H:%M:%S", local) + f":{max(0, time_ms) % 1000:03d}"
