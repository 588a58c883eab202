"""Having a message delivered again: the broker is asked to, or it is sent to the retry topic.

Source: DefaultMQPushConsumerImpl.sendMessageBack (5.4.0).
"""

import logging
from typing import Final

from rocketpy.client.config import ProducerConfig
from rocketpy.client.durations import to_ms
from rocketpy.client.instance import Instance
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.outgoing import Outgoing
from rocketpy.client.send_operation import SendOperation
from rocketpy.client.send_transport import SendTransport
from rocketpy.client.send_window import SendWindow
from rocketpy.errors import NoRouteError, RocketPyError
from rocketpy.proto.compression import deflate
from rocketpy.proto.headers.send import ConsumerSendMsgBackRequestHeader
from rocketpy.proto.message import MessageExt
from rocketpy.proto.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
    properties_text,
)
from rocketpy.proto.sys_flag import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    CompressionType,
    with_compression,
)
from rocketpy.proto.topic_names import retry_topic

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_MAX_RETRIES: Final = 16
FIRST_RETRY_LEVEL: Final = 3
"""The delay level of a first retry; each further one is a level higher."""
_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"


class Redelivery:
    """Has messages of one group delivered again, after a delay, to some member of the group.

    Args:
        instance: connections and routes.
        group: the group.
        max_retries: deliveries after the first one; below 0 means 16.
    """

    def __init__(self, instance: Instance, group: str, max_retries: int) -> None:
        self._instance = instance
        self._group = group
        self._limit = DEFAULT_MAX_RETRIES if max_retries < 0 else max_retries
        self._sending = ProducerConfig()
        self._window = SendWindow(self._sending.max_in_flight, self._sending.max_in_flight_bytes)
        self._transport: SendTransport | None = None

    async def request(self, message: ReceivedMessage, delay_level: int) -> None:
        """Ask the message's broker; if it cannot, send a copy to the retry topic on any broker.

        Args:
            message: to be delivered again.
            delay_level: 1..18 of the broker's levels; 0: longer with each delivery; -1: not
                again, to the dead letters.

        Raises:
            RocketPyError: neither worked; nothing of it is stored, as far as is known.
        """
        try:
            await self._give_back(message.ext, message.queue.broker_name, delay_level)
        except RocketPyError as error:
            logger.info(
                "giving %(message)r back failed, sending it to the retry topic: %(error)r",
                {"message": message, "error": error},
            )
            await self.send_copy(message, delay_level)

    async def _give_back(self, stored: MessageExt, broker_name: str, delay_level: int) -> None:
        address = self._instance.routes.master_address(broker_name)
        if address is None:
            raise NoRouteError(f"broker {broker_name} has no master")
        header = ConsumerSendMsgBackRequestHeader(
            offset=stored.phy_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=stored.msg_id,
            origin_topic=stored.topic,
            max_reconsume_times=self._limit,
            bname=broker_name,
        )
        await self._instance.api.send_back(address, header)

    async def send_copy(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send a copy to the retry topic, which a broker turns into a dead letter after the limit.

        Raises:
            RocketPyError: it was not stored, as far as is known.
        """
        if self._transport is None:
            self._transport = SendTransport(self._instance, _PRODUCER_GROUP, self._sending)
        operation = SendOperation(
            self._window,
            self._transport,
            retry_topic(self._group),
            self._copy(message, delay_level),
            timeout_ms=to_ms(self._sending.timeout),
            attempts=1 + self._sending.retries,
            choose=None,
        )
        operation.start()
        await operation.future

    def _copy(self, message: ReceivedMessage, delay_level: int) -> Outgoing:
        stored = message.ext
        tries, limit = stored.reconsume_times + 1, self._limit
        properties = dict(stored.properties)
        properties.setdefault(PROPERTY_RETRY_TOPIC, stored.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, stored.offset_msg_id)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "true"
        if delay_level < 0 or tries > limit:
            properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
            limit = min(limit, tries - 1)  # the broker sees one try more than there may be
        else:
            level = delay_level or FIRST_RETRY_LEVEL + stored.reconsume_times
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        # A body that could not be inflated is still as it was stored.
        body, sys_flag = stored.body, stored.sys_flag & (COMPRESSED | COMPRESSION_TYPE_MASK)
        if not sys_flag & COMPRESSED:
            sys_flag = 0
            if len(body) >= self._sending.compress_over_bytes:
                body = deflate(body, CompressionType.ZLIB, self._sending.compression_level)
                sys_flag = with_compression(0, CompressionType.ZLIB)
        return Outgoing(
            body,
            properties_text(properties),
            sys_flag,
            stored.flag,
            stored.msg_id,
            retries=(tries, limit),
        )
