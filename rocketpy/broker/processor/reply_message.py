"""Adapter of SEND_REPLY_MESSAGE (324, 325): a reply is forwarded to the requester, and stored.

The requester is identified by the id in REPLY_TO_CLIENT and connected as a producer. Its response
to the forwarded reply (326) becomes the response to the replier, even when the reply is stored as
well.

Source: ReplyMessageProcessor.java (5.4.0).
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from rocketpy.broker.clients.client_registry import ClientChannel
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocketpy.proto.record.message import bytes_to_host
from rocketpy.proto.record.message_id import offset_id_from_bytes
from rocketpy.proto.record.properties import (
    PROPERTY_PUSH_REPLY_TIME,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TRACE_SWITCH,
    parse_properties,
    properties_text,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

PUSH_TIMEOUT_MS: Final = 10_000
_ONEWAY: Final = 2


class ReplyMessageProcessor:
    """Processes replies of the request-reply pattern.

    Args:
        admit: checks whether a reply may be sent to its topic.
        store: stores a reply.
        when_settled: calls back once a stored reply is on disk, or cannot be.
        find_client: returns the connection of a client by its id.
        store_host: returns this broker's address in the format of records; known after listening.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        admit: Callable[[SendRequest], object],
        store: Callable[[SendRequest], Sent | Refusal],
        when_settled: Callable[[Sent, Callable[[object], None]], None],
        find_client: Callable[[str], ClientChannel | None],
        *,
        store_host: Callable[[], bytes],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._admit = admit
        self._store = store
        self._when_settled = when_settled
        self._find_client = find_client
        self._store_host = store_host
        self._config = config
        self._clock = clock

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return dict.fromkeys(
            (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2), self.reply
        )

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    async def reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Process a reply (324, 325); waits for the requester on the connection's loop.

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        is_v2 = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
        header = (SendMessageRequestHeaderV2 if is_v2 else SendMessageRequestHeader).from_ext(
            request.ext_fields
        )
        sent = SendRequest(
            header.topic,
            header.queue_id,
            request.body,
            (header.properties or "").encode(),
            channel.remote_host_bytes,
            channel.remote_address,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            header.reconsume_times or 0,
            template=header.default_topic,
            template_queue_nums=header.default_topic_queue_nums,
        )
        refused = self._admit(sent)
        if not isinstance(refused, Refusal):
            refused = await self._push(header, sent)
        stored = self._store(sent) if self._stores(refused) else None
        if isinstance(stored, Sent) and (stored.durable_at or stored.new_topic):
            await self._settled(stored)
        if request.flag & _ONEWAY:
            return None
        return self._response(request, header, refused, stored)

    async def _settled(self, stored: Sent) -> None:
        """Wait until a stored reply and its topic are on disk, or cannot be."""
        loop = asyncio.get_running_loop()
        settled: asyncio.Future[None] = loop.create_future()

        def on_loop() -> None:
            if not settled.done():
                settled.set_result(None)

        def on_any_thread(_: object) -> None:
            loop.call_soon_threadsafe(on_loop)

        self._when_settled(stored, on_any_thread)
        await settled

    def _stores(self, refused: Refusal | None) -> bool:
        is_admitted = refused is None or refused.code == ResponseCode.SYSTEM_ERROR
        return is_admitted and self._config.store_reply_message_enable

    async def _push(self, header: SendMessageRequestHeader, sent: SendRequest) -> Refusal | None:
        """Forward a reply to the requester; None on success."""
        properties = parse_properties(sent.properties)
        asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
        if not asker:
            remark = f"reply message properties[{PROPERTY_REPLY_TO_CLIENT}] is null"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        client = self._find_client(asker)
        if client is None:
            remark = f"push reply message fail, channel of <{asker}> not found."
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        now_ms = self._clock.time_ms()
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        push_header = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            born_host=sent.producer,
            store_host=bytes_to_host(self._store_host()),
            store_timestamp=now_ms,
            properties=properties_text(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
        )
        push = make_request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push_header.to_ext(), sent.body
        )
        try:
            answer = await client.channel.invoke(push, PUSH_TIMEOUT_MS)
        except (RequestTimeoutError, ConnectionLostError) as error:
            _log.info("reply not forwarded", client=asker, error=str(error))
        else:
            if answer.code == ResponseCode.SUCCESS:
                return None
            _log.info("reply rejected", client=asker, remark=answer.remark)
        return Refusal(ResponseCode.SYSTEM_ERROR, f"push reply message to {asker} fail.")

    def _response(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        refused: Refusal | None,
        stored: Sent | Refusal | None,
    ) -> RemotingCommand:
        place = SendMessageResponseHeader(
            msg_id="0",
            queue_id=max(header.queue_id, 0),
            queue_offset=0,
            region_id=self._config.region_id,
        )
        if isinstance(stored, Sent):
            place = SendMessageResponseHeader(
                msg_id=offset_id_from_bytes(self._store_host(), stored.phy_offset),
                queue_id=stored.queue_id,
                queue_offset=stored.queue_offset,
                region_id=self._config.region_id,
            )
        ext_fields = place.to_ext()
        ext_fields[PROPERTY_TRACE_SWITCH] = "true" if self._config.trace_on else "false"
        if refused is None:
            return make_response(request, ext_fields=ext_fields)
        return make_response(request, refused.code, refused.remark, ext_fields)
