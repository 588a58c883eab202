"""QUERY_ASSIGNMENT (400) and how messages are requested (401, 402).

A client that lets the broker balance asks which queues are its own. The response without a list
means "keep what you have": nobody knows the topic, the group has no members, or the strategy is
unknown. An empty list takes everything away.

Source: QueryAssignmentProcessor.java (5.4.0).
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import structlog

from rocketpy.broker.config_holder import ConfigHolder
from rocketpy.broker.registry import ConsumerTable
from rocketpy.broker.request_modes import MessageRequestModes
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topic_queues import TopicQueues
from rocketpy.broker.topics import TopicTable
from rocketpy.proto.allocation import (
    allocate_average,
    allocate_circle,
    java_sorted,
    sorted_queues,
)
from rocketpy.proto.bodies.group import MODE_POP, MODE_PULL, SetMessageRequestModeRequestBody
from rocketpy.proto.bodies.heartbeat import MODEL_BROADCASTING, MODEL_CLUSTERING
from rocketpy.proto.bodies.lock import (
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor

_log = structlog.get_logger(__name__)

MAX_REQUEST_BYTES: Final = 64 * 1024
_STRATEGIES: Final = MappingProxyType({"AVG": allocate_average, "AVG_BY_CIRCLE": allocate_circle})


class QueryAssignmentProcessor:
    """Answers which queues a client reads."""

    def __init__(
        self,
        queues: TopicQueues,
        modes: MessageRequestModes,
        *,
        configs: ConfigHolder,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
    ) -> None:
        self._queues = queues
        self._modes = modes
        self._configs = configs
        self._topics = topics
        self._groups = groups
        self._consumers = consumers

    @property
    def processors(self) -> Mapping[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    async def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """400: the queues of a client.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        asked = QueryAssignmentRequestBody.decode(request.body)
        queues = await self._assigned(asked)
        assignments = None
        if queues is not None:
            assignments = [MessageQueueAssignment(queue, MODE_PULL) for queue in queues]
        return make_response(request, body=QueryAssignmentResponseBody(assignments).encode())

    async def _assigned(self, asked: QueryAssignmentRequestBody) -> Sequence[MessageQueue] | None:
        queues = await self._queues.of(asked.topic)
        if queues is None or asked.message_model == MODEL_BROADCASTING:
            return queues
        if asked.message_model != MODEL_CLUSTERING:
            return None
        if not self._configs.broker.server_load_balancer_enable:
            return queues
        group = self._consumers.group(asked.consumer_group)
        allocate = _STRATEGIES.get(asked.strategy_name or "")
        if group is None or allocate is None:
            return None
        return allocate(asked.client_id, sorted_queues(queues), java_sorted(group.client_ids()))

    def set_mode(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """401: how a group gets the messages of a topic; only PULL can be set.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        wanted = SetMessageRequestModeRequestBody.decode(request.body)
        topic, group = wanted.topic, wanted.consumer_group
        if topic.startswith(RETRY_PREFIX):
            remark = "retry topic is not allowed to set mode"
            return make_response(request, ResponseCode.NO_PERMISSION, remark)
        if self._topics.get(topic) is None:
            remark = f"topic[{topic[:255]}] not exist"
            return make_response(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._groups.get(group) is None:
            remark = f"subscription group[{group[:255]}] not exist"
            return make_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if wanted.mode == MODE_POP:
            remark = "POP is not supported by this broker; PULL is"
            return make_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        if wanted.mode != MODE_PULL:
            remark = f"the mode is PULL or POP, not {wanted.mode[:32]!r}"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        if not self._modes.put(wanted):
            remark = "the broker keeps no more request modes: too many topics and groups"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        _log.info("request mode set", topic=topic, group=group, peer=channel.remote_address)
        return make_response(request)

    def modes(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """402: every mode that was set."""
        return make_response(request, body=self._modes.snapshot().encode())
