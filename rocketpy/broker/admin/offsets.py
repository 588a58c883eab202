"""Consumer offsets: reset, clone, compare, dump.

Source: `AdminBrokerProcessor` (resetOffset, resetOffsetInner, queryCorrectionOffset,
cloneGroupOffset, getAllConsumerOffset, getAllDelayOffset) and `Broker2Client.resetOffset` (5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.bodies.offset import QueryCorrectionOffsetBody, ResetOffsetBody
from rocketpy.proto.headers.offset import (
    CloneGroupOffsetRequestHeader,
    GetAllConsumerOffsetRequestHeader,
    GetAllConsumerOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.validators import check_group
from rocketpy.proto.wire.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.proto.wire.fastjson import dumps
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.store.message_store import MessageStore

_log = structlog.get_logger(__name__)

_LONG_MAX: Final = (1 << 63) - 1


class OffsetAdmin:
    """Admin requests about committed offsets."""

    def __init__(
        self,
        *,
        configs: LiveBrokerConfig,
        consumers: ConsumerTable,
        groups: SubscriptionGroupTable,
        identity: BrokerIdentity,
        offsets: ConsumerOffsets,
        store: MessageStore,
        topics: TopicTable,
    ) -> None:
        self._configs = configs
        self._consumers = consumers
        self._groups = groups
        self._identity = identity
        self._offsets = offsets
        self._store = store
        self._topics = topics

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.QUERY_CORRECTION_OFFSET: self.correction,
            RequestCode.CLONE_GROUP_OFFSET: self.clone,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.dump,
        }

    def reset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Move a group to a time or an offset (222)."""
        header = ResetOffsetRequestHeader.from_ext(request.ext_fields)
        if self._configs.broker.use_server_side_reset_offset:
            return self._reset_here(request, header)
        return self._reset_by_clients(request, header)

    def correction(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the smallest offset of all groups by queue, compared to one group (308)."""
        offsets = self._offsets
        header = QueryCorrectionOffsetHeader.from_ext(request.ext_fields)
        topic = header.topic
        compared = offsets.query_all(header.compare_group, topic)
        left_out = {name for name in (header.filter_groups or "").split(",") if name}
        lowest: dict[int, int] = {}
        for group in sorted(offsets.groups_of_topic(topic) - left_out):
            for queue_id, offset in offsets.query_all(group, topic).items():
                lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        for queue_id, offset in compared.items():
            if queue_id in lowest and lowest[queue_id] > offset:
                lowest[queue_id] = _LONG_MAX
        return ok(request, QueryCorrectionOffsetBody(lowest))

    def clone(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Copy the offsets of a group to another group (314)."""
        header = CloneGroupOffsetRequestHeader.from_ext(request.ext_fields)
        source, target, topic = header.src_group, header.dest_group, header.topic
        reason = check_group(target)
        if reason is not None:
            return refuse(request, ResponseCode.INVALID_PARAMETER, reason)
        topics = {topic} if topic else self._offsets.topics_of_group(source)
        entry = self._consumers.group(source)
        for name in sorted(topics):
            if self._topics.get(name) is None:
                continue
            online = not header.offline and entry is not None
            if online and entry is not None and name not in entry.subscriptions:
                continue
            self._offsets.clone(source, target, name)
        _log.info("offsets cloned", source=source, target=target, topics=len(topics))
        return ok(request)

    def dump(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the content of consumerOffset.json, or what was committed since a mark (43)."""
        since = GetAllConsumerOffsetRequestHeader.from_ext(request.ext_fields).since
        mark = None if since is None else self._offsets.mark()
        response = ok(request, dumps(self._offsets.to_json(since or "")))
        response.ext_fields.update(GetAllConsumerOffsetResponseHeader(mark=mark).to_ext())
        return response

    def _reset_here(
        self, request: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        """Store the new offsets; the response to the next pull of each queue contains its own."""
        group, topic, timestamp_ms = header.group, header.topic, header.timestamp
        found = self._topics.get(topic)
        if found is None:
            remark = f"Topic {topic} does not exist"
            return refuse(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._groups.get(group) is None:
            remark = f"Group {group} does not exist"
            return refuse(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        queue_id = header.queue_id
        wished = -1 if header.offset is None else header.offset
        if queue_id >= found.read_queue_nums:
            remark = f"Queue {queue_id} of topic {topic} does not exist"
            return refuse(request, ResponseCode.INVALID_PARAMETER, remark)
        targets: dict[int, int] = {}
        if queue_id >= 0 and wished != -1:
            low, high = (
                self._store.min_offset(topic, queue_id),
                self._store.max_offset(topic, queue_id),
            )
            if not max(0, low) <= wished <= high + 1:
                remark = f"Target offset {wished} not in consume queue range [{low}-{high}]"
                return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
            targets[queue_id] = wished
        else:
            queues = range(found.read_queue_nums) if queue_id < 0 else [queue_id]
            targets = {one: self._offset_at(topic, one, timestamp_ms) for one in queues}
        for one, offset in targets.items():
            self._offsets.assign_reset(group, topic, one, offset)
        _log.info("offsets reset", group=group, topic=topic, timestamp_ms=timestamp_ms)
        return ok(request, ResetOffsetBody(self._by_queue(topic, targets)))

    def _reset_by_clients(
        self, request: RemotingCommand, header: ResetOffsetRequestHeader
    ) -> RemotingCommand:
        """Send the new offsets to all members of the group (220), as brokers did before 5.2."""
        group, topic, timestamp_ms = header.group, header.topic, header.timestamp
        found = self._topics.get(topic)
        if found is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        targets: dict[int, int] = {}
        for queue_id in range(found.write_queue_nums):
            done = self._offsets.query(group, topic, queue_id)
            if done == NO_OFFSET:
                remark = f"THe consumer group <{group}> not exist"
                return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
            wished = self._offset_at(topic, queue_id, timestamp_ms)
            forced = header.is_force or wished < done
            targets[queue_id] = wished if forced else done
        entry = self._consumers.group(group)
        if entry is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {group} Topic: {topic} Timestamp: {timestamp_ms}"
            )
            return refuse(request, ResponseCode.CONSUMER_NOT_ONLINE, remark)
        notice = ResetOffsetRequestHeader(
            topic=topic, group=group, timestamp=timestamp_ms, is_force=False
        )
        body = ResetOffsetBody(self._by_queue(topic, targets))
        data = body.encode_list() if request.language == LanguageCode.CPP else body.encode()
        for client in entry.clients():
            code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
            client.channel.invoke_oneway(make_request(code, notice.to_ext(), data))
        return ok(request, body)

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        store = self._store
        if timestamp_ms < 0:
            return max(0, store.max_offset(topic, queue_id))
        return max(0, store.offset_by_time(topic, queue_id, timestamp_ms))

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        name = self._identity.broker_name
        return {MessageQueue(topic, name, queue_id): at for queue_id, at in offsets.items()}
