"""Adapter of requests of consumer groups: offsets, members and queue locks.

Offsets and members are 14, 15 and 38; queue locks of ordered consumers are 41 and 42.

Source: ConsumerManageProcessor.java, AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ (5.4.0).
"""

from typing import Final

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.operation.consumer_progress import ConsumerProgress
from rocketpy.broker.operation.lock_queues import QueueLocking
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.bodies.heartbeat import GetConsumerListByGroupResponseBody
from rocketpy.proto.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rocketpy.proto.headers.client import GetConsumerListByGroupRequestHeader
from rocketpy.proto.headers.offset import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.proto.wire.fastjson import loads_plain
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor


class ConsumerManageProcessor:
    """Processes requests of a consumer group about its offsets and members."""

    def __init__(self, progress: ConsumerProgress, consumers: ConsumerTable) -> None:
        self._progress = progress
        self._consumers = consumers

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update_offset,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.list_members,
        }

    def query_offset(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process QUERY_CONSUMER_OFFSET (14): return the committed offset."""
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
        """Process UPDATE_CONSUMER_OFFSET (15): commit an offset, unless a reset is pending."""
        header = UpdateConsumerOffsetRequestHeader.from_ext(request.ext_fields)
        outcome = self._progress.commit(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
            only_forward=header.only_forward is True,
        )
        if isinstance(outcome, Refusal):
            return make_response(request, *outcome)
        return make_response(request, remark=outcome)

    def list_members(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process GET_CONSUMER_LIST_BY_GROUP (38): return the ids of the members."""
        header = GetConsumerListByGroupRequestHeader.from_ext(request.ext_fields)
        ids = self._consumers.member_ids(header.consumer_group)
        if not ids:
            return make_response(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {header.consumer_group}",
            )
        return make_response(request, body=GetConsumerListByGroupResponseBody(ids).encode())


MAX_REQUEST_BYTES: Final = 1 << 20
"""Longest body that is parsed; enough for some thousands of queues."""


class LockProcessor:
    """Processes requests for queue locks."""

    def __init__(self, locking: QueueLocking) -> None:
        self._locking = locking

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process LOCK_BATCH_MQ (41): acquire or renew locks; returns those that the client holds.

        Raises:
            BadBodyError: the body is invalid.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            return _too_long(request)
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        held = self._locking.lock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        return make_response(request, body=LockBatchResponseBody(set(held)).encode())

    def unlock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process UNLOCK_BATCH_MQ (42): release locks.

        Raises:
            BadBodyError: the body is invalid.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            return _too_long(request)
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        self._locking.unlock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        return make_response(request)


def _too_long(request: RemotingCommand) -> RemotingCommand:
    remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
    return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
