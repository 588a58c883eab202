"""Progress and members of consumer groups: 14, 15 and 38.

Source: ConsumerManageProcessor.java (5.4.0).
"""

from typing import Protocol

from rocketpy.broker.config_holder import ConfigHolder
from rocketpy.broker.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.registry import ConsumerTable
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import TopicTable
from rocketpy.proto.bodies.heartbeat import GetConsumerListByGroupResponseBody
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.headers.client import GetConsumerListByGroupRequestHeader
from rocketpy.proto.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor


class QueueStart(Protocol):
    """What these requests need of the store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        ...

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is recent enough to count as in memory."""
        ...


class ConsumerManageProcessor:
    """Answers what a consumer group asks about itself."""

    def __init__(
        self,
        store: QueueStart,
        *,
        configs: ConfigHolder,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        offsets: ConsumerOffsets,
    ) -> None:
        self._store = store
        self._configs = configs
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets

    @property
    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
        }

    def query_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """14: the committed offset.

        A group that never committed starts at 0 on a young queue (nothing deleted yet, its
        first message still in memory); otherwise the client decides, told by code 22.
        """
        header = QueryConsumerOffsetRequestHeader.from_ext(request.ext_fields)
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset == NO_OFFSET:
            may_be_zero = header.set_zero_if_not_found is not False
            if (
                not may_be_zero
                or self._store.min_offset(header.topic, header.queue_id) > 0
                or not self._store.is_in_memory(header.topic, header.queue_id, 0)
            ):
                return make_response(
                    request,
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        response = OffsetResponseHeader(offset=offset)
        return make_response(request, ext_fields=response.to_ext())

    def update_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """15: commit an offset; refused while a reset waits to be delivered."""
        header = UpdateConsumerOffsetRequestHeader.from_ext(request.ext_fields)
        group, topic = header.consumer_group, header.topic
        if self._groups.get(group) is None:
            return make_response(
                request,
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {group} not exist!",
            )
        if self._topics.get(topic) is None:
            return make_response(request, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if self._configs.broker.use_server_side_reset_offset and self._offsets.has_reset(
            group, topic, header.queue_id
        ):
            return make_response(request, remark="Offset has been previously reset")
        if not self._offsets.commit(group, topic, header.queue_id, header.commit_offset):
            remark = "the broker keeps no more offsets: too many queues, topics or groups"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        return make_response(request)

    def list_members(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """38: ids of the connected members."""
        header = GetConsumerListByGroupRequestHeader.from_ext(request.ext_fields)
        group = self._consumers.group(header.consumer_group)
        ids = [] if group is None else group.client_ids()
        if not ids:
            return make_response(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )
        return make_response(request, body=GetConsumerListByGroupResponseBody(ids).encode())
