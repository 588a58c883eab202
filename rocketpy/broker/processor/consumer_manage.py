"""Progress and members of consumer groups: 14, 15 and 38.

Source: ConsumerManageProcessor.java (5.4.0).
"""

from rocketpy.broker.operation.consumer_progress import ConsumerProgress
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.registry import ConsumerTable
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


class ConsumerManageProcessor:
    """Answers what a consumer group asks about itself."""

    def __init__(self, progress: ConsumerProgress, consumers: ConsumerTable) -> None:
        self._progress = progress
        self._consumers = consumers

    @property
    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
        }

    def query_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """14: the committed offset."""
        header = QueryConsumerOffsetRequestHeader.from_ext(request.ext_fields)
        offset = self._progress.query(
            header.consumer_group,
            header.topic,
            header.queue_id,
            may_be_zero=header.set_zero_if_not_found is not False,
        )
        if isinstance(offset, Refusal):
            return make_response(request, *offset)
        return make_response(request, ext_fields=OffsetResponseHeader(offset=offset).to_ext())

    def update_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """15: commit an offset; nothing is committed while a reset waits to be delivered."""
        header = UpdateConsumerOffsetRequestHeader.from_ext(request.ext_fields)
        outcome = self._progress.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset
        )
        if isinstance(outcome, Refusal):
            return make_response(request, *outcome)
        return make_response(request, remark=outcome)

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
