"""Adapter of QUERY_ASSIGNMENT (400) and of message request modes (401, 402).

A client that leaves balancing to the broker asks for its queues. A response without a list means
that it keeps its queues: the topic is unknown, the group has no members, or the strategy is
unknown. An empty list takes all queues away.

Source: QueryAssignmentProcessor.java (5.4.0).
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import structlog

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.cluster.topic_queues import TopicQueues
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.message_request_modes import MessageRequestModes
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
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
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor

_log = structlog.get_logger(__name__)

MAX_REQUEST_BYTES: Final = 64 * 1024
Allocate: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
_STRATEGIES: Final = MappingProxyType({"AVG": allocate_average, "AVG_BY_CIRCLE": allocate_circle})


class QueryAssignmentProcessor:
    """Processes queries for the queues of a client."""

    def __init__(
        self,
        queues: TopicQueues,
        modes: MessageRequestModes,
        *,
        configs: LiveBrokerConfig,
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
        """Processors by request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    async def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process QUERY_ASSIGNMENT (400): return the queues of a client.

        Raises:
            BadBodyError: the body is invalid.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        asked = QueryAssignmentRequestBody.decode(request.body)
        mode = self._mode_of(asked.topic, asked.consumer_group)
        queues = await self._assigned(asked, mode)
        assignments = None
        if queues is not None:
            # A queue that several members share is listed once, as in Java's set.
            assignments = [
                MessageQueueAssignment(queue, mode.mode) for queue in dict.fromkeys(queues)
            ]
        return make_response(request, body=QueryAssignmentResponseBody(assignments).encode())

    def _mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        found = self._modes.get(topic, group)
        if found is not None:
            return found
        config = self._configs.broker
        # Official clients return failed messages through a retry topic that is always pulled.
        is_pop = config.default_message_request_mode == MODE_POP
        if topic.startswith(RETRY_PREFIX) or not is_pop:
            return SetMessageRequestModeRequestBody(topic, group)
        return SetMessageRequestModeRequestBody(
            topic, group, MODE_POP, config.default_pop_share_queue_num
        )

    async def _assigned(
        self, asked: QueryAssignmentRequestBody, mode: SetMessageRequestModeRequestBody
    ) -> Sequence[MessageQueue] | None:
        queues = await self._queues.of(asked.topic)
        if queues is None or asked.message_model == MODEL_BROADCASTING:
            return queues
        if asked.message_model != MODEL_CLUSTERING:
            return None
        if not self._configs.broker.server_load_balancer_enable:
            return queues
        members = java_sorted(self._consumers.member_ids(asked.consumer_group))
        allocate = _STRATEGIES.get(asked.strategy_name or "")
        if not members or allocate is None:
            return None
        if mode.mode == MODE_POP:
            shared = mode.pop_share_queue_num
            return _allocate_for_pop(
                allocate, asked.client_id, sorted_queues(queues), members, shared
            )
        return allocate(asked.client_id, sorted_queues(queues), members)

    def set_mode(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process SET_MESSAGE_REQUEST_MODE (401): set PULL or POP for a group and a topic.

        A missing group is created under the same conditions as for a pull.

        Raises:
            BadBodyError: the body is invalid.
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
        if self._groups.get_or_create(group) is None:
            remark = f"subscription group[{group[:255]}] not exist"
            return make_response(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if wanted.mode not in {MODE_PULL, MODE_POP}:
            remark = f"the mode is PULL or POP, not {wanted.mode[:32]!r}"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        if not self._modes.put(wanted):
            remark = "the broker keeps no more request modes: too many topics and groups"
            return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
        _log.info("request mode set", topic=topic, group=group, peer=channel.remote_address)
        return make_response(request)

    def modes(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process GET_ALL_MESSAGE_REQUEST_MODE (402): return all modes that were set."""
        return make_response(request, body=self._modes.snapshot().encode())


def _allocate_for_pop(
    allocate: Allocate,
    client_id: str,
    queues: Sequence[MessageQueue],
    members: Sequence[str],
    shared: int,
) -> list[MessageQueue]:
    """Return the queues of a member that pops.

    Args:
        allocate: the strategy for queues that are not shared.
        client_id: the member.
        queues: all queues, sorted.
        members: all members, sorted.
        shared: number of following members that share a member's queues; below 1: all.
    """
    if shared <= 0 or shared >= len(members) - 1:
        # All members pop all queues: one entry per broker, which chooses the queues itself.
        return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues]
    if client_id not in members:
        return []
    index = members.index(client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]
    found: list[MessageQueue] = []
    for step in range(shared + 1):
        found += allocate(members[(index + step) % len(members)], queues, members)
    return found
