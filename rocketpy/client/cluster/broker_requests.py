"""Requests of brokers to a client: rebalance, reset offsets, report, consume directly, check back.

Source: ClientRemotingProcessor (5.4.0).

What the instance knows of the consumers and producers it serves.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from rocketpy.client.cluster.pending_replies import PendingRequests
from rocketpy.client.cluster.remoting import Remoting
from rocketpy.errors import BadBodyError, CorruptRecordError
from rocketpy.proto.bodies.heartbeat import ConsumerData
from rocketpy.proto.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rocketpy.proto.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.proto.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rocketpy.proto.headers.offset import ResetOffsetRequestHeader
from rocketpy.proto.headers.send import ReplyMessageRequestHeader
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import PROPERTY_PRODUCER_GROUP
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel


class GroupMember(Protocol):
    """A consumer that has joined its group."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    def heartbeat_data(self) -> ConsumerData:
        """Return its part of the heartbeat."""
        ...

    def wake_rebalance(self) -> None:
        """Rebalance the queues at once."""
        ...

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues it owns."""
        ...

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return what it has consumed of a topic, by queue."""
        ...

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on queues, rates and settings."""
        ...

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Handle one message at once and report how it went."""
        ...


class ProducerMember(Protocol):
    """A producer, which brokers may ask about its group's transactions."""

    def __hash__(self) -> int:
        """It is kept in sets."""
        ...

    def check_transaction(
        self, asked: CheckTransactionStateRequestHeader, asker: str, message: MessageExt
    ) -> bool:
        """Answer a broker's question soon; False when it has no checker.

        Args:
            asked: the question.
            asker: address of the broker.
            message: the half message, under the topic that it is meant for.
        """
        ...


logger: logging.Logger = logging.getLogger(__name__)

MAX_DIRECT: Final = 16
"""Messages that handlers have at the word of brokers; an operator's tool asks for one."""
MAX_DIRECT_BYTES: Final = 64 * 1024 * 1024
"""Their bodies; one is taken however large it is."""


class ServerRequests:
    """Answers brokers' requests on behalf of the consumers and producers.

    Args:
        find: the consumer of a group, or None.
        producers: the producers of a group.
        requests: takes answers to our requests.
    """

    def __init__(
        self,
        find: Callable[[str], GroupMember | None],
        producers: Callable[[str], Iterable[ProducerMember]],
        requests: PendingRequests,
    ) -> None:
        self._find = find
        self._requests = requests
        self._producers = producers
        self._direct_count = 0
        self._direct_bytes = 0

    def register(self, remoting: Remoting) -> None:
        """Take over the codes this class answers."""
        remoting.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.members_changed)
        remoting.register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self.reset_offsets)
        remoting.register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.consumer_status)
        remoting.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        remoting.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)
        remoting.register(RequestCode.CHECK_TRANSACTION_STATE, self.check_transaction)
        remoting.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self.take_reply)

    def members_changed(self, channel: object, request: RemotingCommand) -> None:  # noqa: ARG002
        """40: someone joined or left a group."""
        header = NotifyConsumerIdsChangedRequestHeader.from_ext(request.ext_fields)
        member = self._find(header.consumer_group)
        if member is not None:
            member.wake_rebalance()

    async def reset_offsets(self, channel: object, request: RemotingCommand) -> None:  # noqa: ARG002
        """220: continue at other offsets."""
        header = ResetOffsetRequestHeader.from_ext(request.ext_fields)
        member = self._find(header.group)
        if member is not None:
            await member.reset_offsets(ResetOffsetBody.decode(request.body).offset_table)

    def consumer_status(self, channel: object, request: RemotingCommand) -> RemotingCommand:  # noqa: ARG002
        """221: what has been consumed."""
        header = GetConsumerStatusRequestHeader.from_ext(request.ext_fields)
        member = self._find(header.group)
        if member is None:
            return _no_such_group(request, header.group)
        table = member.consumer_status(header.topic)
        return make_response(request, body=GetConsumerStatusBody(table).encode())

    def running_info(self, channel: object, request: RemotingCommand) -> RemotingCommand:  # noqa: ARG002
        """307: what the consumer is doing."""
        header = GetConsumerRunningInfoRequestHeader.from_ext(request.ext_fields)
        member = self._find(header.consumer_group)
        if member is None:
            return _no_such_group(request, header.consumer_group)
        return make_response(request, body=member.running_info().encode())

    async def consume_directly(
        self,
        channel: object,  # noqa: ARG002
        request: RemotingCommand,
    ) -> RemotingCommand:
        """309: handle this message now and say how it went."""
        header = ConsumeMessageDirectlyResultRequestHeader.from_ext(request.ext_fields)
        member = self._find(header.consumer_group)
        if member is None:
            return _no_such_group(request, header.consumer_group)
        count, size_bytes = self._direct_count, self._direct_bytes
        if count >= MAX_DIRECT or size_bytes >= MAX_DIRECT_BYTES:
            remark = f"{count} messages are consumed directly, more must wait"
            return make_response(request, ResponseCode.SYSTEM_BUSY, remark)
        try:
            message = decode_message(request.body)
        except CorruptRecordError as error:
            return make_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        body_bytes = len(message.body)
        self._direct_count += 1
        self._direct_bytes += body_bytes
        try:
            report = await member.consume_directly(message, header.broker_name or "")
        finally:
            self._direct_count -= 1
            self._direct_bytes -= body_bytes
        return make_response(request, body=report.encode())

    def check_transaction(self, channel: Channel, request: RemotingCommand) -> None:
        """39: check a transaction; the outcome is sent in a separate request."""
        asked = CheckTransactionStateRequestHeader.from_ext(request.ext_fields)
        try:
            message = decode_message(request.body)
        except CorruptRecordError as error:
            logger.warning(
                "transaction check discarded, its message cannot be read: error=%(error)s",
                {"error": error},
            )
            return
        group = message.properties.get(PROPERTY_PRODUCER_GROUP, "")
        for producer in self._producers(group):
            if producer.check_transaction(asked, channel.remote_address, message):
                return
        logger.warning(
            "transaction check discarded, no producer of the group has a tx_checker: "
            "group=%(group)s",
            {"group": group},
        )

    def take_reply(self, channel: object, request: RemotingCommand) -> RemotingCommand:  # noqa: ARG002
        """326: an answer to one of our requests."""
        header = ReplyMessageRequestHeader.from_ext(request.ext_fields)
        try:
            self._requests.answered(header, request.body)
        except BadBodyError as error:
            return make_response(request, ResponseCode.SYSTEM_ERROR, f"unreadable: {error}")
        return make_response(request)


def _no_such_group(request: RemotingCommand, group: str) -> RemotingCommand:
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
