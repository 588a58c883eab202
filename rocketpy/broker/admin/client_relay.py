"""Requests that the broker relays to a connected consumer.

Source: `AdminBrokerProcessor` (getConsumerRunningInfo, consumeMessageDirectly, getConsumerStatus,
callConsumer) and `Broker2Client` (5.4.0).
"""

from dataclasses import replace
from typing import Final

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import BadBodyError, ConnectionLostError, RequestTimeoutError
from rocketpy.proto.bodies.offset import GetConsumerStatusBody
from rocketpy.proto.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.store.message_store import MessageStore

CALL_TIMEOUT_MS: Final = 10_000
STATUS_TIMEOUT_MS: Final = 5_000


class ClientRelayAdmin:
    """Admin requests that are relayed to a connected consumer.

    The processors are coroutines: they wait on the selector's loop and block no business thread.
    """

    def __init__(
        self,
        *,
        consumers: ConsumerTable,
        groups: SubscriptionGroupTable,
        identity: BrokerIdentity,
        store: MessageStore,
        topics: TopicTable,
    ) -> None:
        self._consumers = consumers
        self._groups = groups
        self._identity = identity
        self._store = store
        self._topics = topics

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.consumer_status,
        }

    async def running_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the state of a consumer (307)."""
        header = GetConsumerRunningInfoRequestHeader.from_ext(request.ext_fields)
        call = make_request(RequestCode.GET_CONSUMER_RUNNING_INFO, dict(request.ext_fields))
        return await self._call(request, call, header.consumer_group, header.client_id)

    async def consume_directly(
        self, _channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        """Make a consumer process one stored message (309)."""
        header = ConsumeMessageDirectlyResultRequestHeader.from_ext(request.ext_fields)
        message_id = header.msg_id or ""
        record = self._record(message_id)
        if record is None:
            remark = f"can not find message by the offset id, {message_id}"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        topic = self._topics.get(header.topic or "")
        group = self._groups.get(header.consumer_group)
        forwarded = replace(
            header,
            broker_name=self._identity.broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.topic_sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.group_sys_flag,
        )
        ext_fields = {**request.ext_fields, **forwarded.to_ext()}
        call = make_request(RequestCode.CONSUME_MESSAGE_DIRECTLY, ext_fields, record)
        return await self._call(request, call, header.consumer_group, header.client_id or "")

    async def consumer_status(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the offsets that consumers have in memory (223)."""
        header = GetConsumerStatusRequestHeader.from_ext(request.ext_fields)
        topic, group = header.topic, header.group
        wanted = (header.client_addr or "").strip()
        entry = self._consumers.group(group)
        if entry is None:
            remark = f"No Any Consumer online in the consumer group: [{group}]"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        wanted_status = GetConsumerStatusRequestHeader(topic=topic, group=group)
        table: dict[str, dict[MessageQueue, int]] = {}
        for client in entry.clients():
            if wanted and client.client_id != wanted:
                continue
            code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            call = make_request(code, wanted_status.to_ext())
            try:
                response = await client.channel.invoke(call, STATUS_TIMEOUT_MS)
                table[client.client_id] = _queue_table(response)
            except (RequestTimeoutError, ConnectionLostError, BadBodyError):
                # A silent member is missing from the table and does not hide the others.
                continue
        return ok(request, GetConsumerStatusBody(consumer_table=table))

    async def _call(
        self, request: RemotingCommand, call: RemotingCommand, group: str, client_id: str
    ) -> RemotingCommand:
        entry = self._consumers.group(group)
        client = None if entry is None else entry.find_client(client_id)
        who = f"<{group}> <{client_id}>"
        if client is None:
            remark = f"The Consumer {who} not online"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        try:
            response = await client.channel.invoke(call, CALL_TIMEOUT_MS)
        except RequestTimeoutError as error:
            remark = f"consumer {who} Timeout: {error}"
            return refuse(request, ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except ConnectionLostError as error:
            remark = f"invoke consumer {who} Exception: {error}"
            return refuse(request, ResponseCode.SYSTEM_ERROR, remark)
        return make_response(
            request, response.code, response.remark, response.ext_fields, response.body
        )

    def _record(self, message_id: str) -> bytes | None:
        try:
            phy_offset = decode_message_id(message_id).phy_offset
        except ValueError:
            return None
        view = self._store.look_message(phy_offset)
        return None if view is None else bytes(view)


def _queue_table(response: RemotingCommand) -> dict[MessageQueue, int]:
    if not response.body:
        return {}
    return GetConsumerStatusBody.decode_request(response.body).message_queue_table
