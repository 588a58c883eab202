"""What brokers ask of a client: rebalance, reset offsets, report, consume one message now.

Source: ClientRemotingProcessor (5.4.0). 39 (transaction check) and 326 (reply) are not here yet.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from rocketpy.client.members import GroupMember
from rocketpy.errors import BadBodyError, CorruptRecordError
from rocketpy.proto import fastjson
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.message import decode_message
from rocketpy.proto.message_queue import MessageQueue

if TYPE_CHECKING:
    from rocketpy.client.seams import Remoting

logger = logging.getLogger(__name__)


def read_offset_table(body: bytes) -> dict[MessageQueue, int]:
    """Read the offsets of a reset, in the form for Java or the one for C++ clients.

    Raises:
        BadBodyError: neither.
    """
    try:
        loaded = fastjson.loads(body)
        table = loaded["offsetTable"]
        if isinstance(table, list):
            return {_queue_of(entry): int(entry["offset"]) for entry in table}
        return {_queue_of(key): int(offset) for key, offset in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadBodyError(f"offset table cannot be read: {error!r}") from error


def _queue_of(key: Any) -> MessageQueue:  # noqa: ANN401 - decoded JSON
    if isinstance(key, MessageQueue):
        return key
    if isinstance(key, str):
        key = orjson.loads(key)
    return MessageQueue(key["topic"], key["brokerName"], int(key["queueId"]))


class ServerRequests:
    """Answers brokers' requests on behalf of the consumers.

    Args:
        find: the consumer of a group, or None.
    """

    def __init__(self, find: Callable[[str], GroupMember | None]) -> None:
        self._find = find

    def register(self, remoting: "Remoting") -> None:
        """Take over the codes this class answers."""
        remoting.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self.members_changed)
        remoting.register(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self.reset_offsets)
        remoting.register(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self.consumer_status)
        remoting.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self.running_info)
        remoting.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)

    def members_changed(self, channel: object, request: RemotingCommand) -> None:  # noqa: ARG002
        """40: someone joined or left a group."""
        member = self._find(request.ext_fields.get("consumerGroup", ""))
        if member is not None:
            member.wake_rebalance()

    async def reset_offsets(self, channel: object, request: RemotingCommand) -> None:  # noqa: ARG002
        """220: go on from other offsets."""
        member = self._find(request.ext_fields.get("group", ""))
        if member is not None:
            await member.reset_offsets(read_offset_table(request.body))

    def consumer_status(self, channel: object, request: RemotingCommand) -> RemotingCommand:  # noqa: ARG002
        """221: what has been consumed."""
        member = self._find(request.ext_fields.get("group", ""))
        if member is None:
            return _no_such_group(request)
        table = member.consumer_status(request.ext_fields.get("topic", ""))
        body = fastjson.dumps({"consumerTable": {}, "messageQueueTable": table})
        return make_response(request, body=body)

    def running_info(self, channel: object, request: RemotingCommand) -> RemotingCommand:  # noqa: ARG002
        """307: what the consumer is doing."""
        member = self._find(request.ext_fields.get("consumerGroup", ""))
        if member is None:
            return _no_such_group(request)
        return make_response(request, body=member.running_info())

    async def consume_directly(
        self,
        channel: object,  # noqa: ARG002
        request: RemotingCommand,
    ) -> RemotingCommand:
        """309: handle this message now and say how it went."""
        member = self._find(request.ext_fields.get("consumerGroup", ""))
        if member is None:
            return _no_such_group(request)
        try:
            message = decode_message(request.body)
        except CorruptRecordError as error:
            return make_response(request, ResponseCode.SYSTEM_ERROR, str(error))
        report = await member.consume_directly(message, request.ext_fields.get("brokerName", ""))
        return make_response(request, body=orjson.dumps(report))


def _no_such_group(request: RemotingCommand) -> RemotingCommand:
    group = request.ext_fields.get("consumerGroup") or request.ext_fields.get("group", "")
    remark = f"The Consumer Group <{group}> not exist in this consumer"
    return make_response(request, ResponseCode.SYSTEM_ERROR, remark)
