"""Having a message delivered again: the broker is asked to, or it is sent to the retry topic.

Source: DefaultMQPushConsumerImpl.sendMessageBack (5.4.0).

What becomes of messages that were not consumed: back to a broker, else handled here again.

The offset never passes one that is neither handled nor stored again. A message's way:

    from       event                                          to
    in hand    its handler fails, the user's nack             leaving
    in hand    its handler takes longer than the timeout      leaving; the handler goes on
    leaving    stored again by a broker                       finished
    leaving    not stored, no handler has it                  waiting
    leaving    not stored, its handler still has it (sweep)   in hand
    waiting    `local_retry_ms` later, no handler has it      in hand, delivered again

Source: ConsumeMessageConcurrentlyService, ProcessQueue.cleanExpiredMsg (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ProducerConfig
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.options.durations import to_ms
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.send_operation import SendOperation
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import NoRouteError, RocketPyError
from rocketpy.proto.headers.send import ConsumerSendMsgBackRequestHeader
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
    properties_text,
)
from rocketpy.proto.record.sys_flag import (
    COMPRESSED,
    COMPRESSION_TYPE_MASK,
    CompressionType,
    with_compression,
)
from rocketpy.proto.topic_names import retry_topic
from rocketpy.runtime.clock import Clock

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
        self._window = InFlightWindow(
            self._sending.max_in_flight, self._sending.max_in_flight_bytes
        )
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


TIMEOUT_DELAY_LEVEL: Final = 3
_OVERDUE_AT_ONCE: Final = 16


class FailedMessages:
    """Gives back messages of one consumer.

    Args:
        redelivery: has messages delivered again; None when broadcasting: they are dropped then.
        clock: for how long a handler has had a message.
        deliver: takes messages that are to be handled here again.
        local_retry_ms: pause before that.
        consume_timeout_ms: a handler may have a message for as long.
    """

    def __init__(
        self,
        redelivery: Redelivery | None,
        *,
        clock: Clock,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        local_retry_ms: int,
        consume_timeout_ms: int,
    ) -> None:
        self._redelivery = redelivery
        self._clock = clock
        self._deliver = deliver
        self._local_retry_s = local_retry_ms / 1000
        self._consume_timeout_ms = consume_timeout_ms

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> None:
        """Have a message delivered again, here if no broker takes it; a `GiveBack`.

        Does nothing when it is finished, given back already, or of a queue that is not ours.
        """
        if not queue.leave(message):
            return
        if not await self._request(queue, message, delay_level):
            message.retries += 1
            message.ext.reconsume_times += 1
            self._deliver_later(queue, message)

    async def give_back_overdue(self, queues: Iterable[ProcessQueue]) -> None:
        """Give back what handlers have had for too long; what they do with it no longer counts."""
        since_ms = self._clock.monotonic_ms() - self._consume_timeout_ms
        for queue in queues:
            for message in queue.overdue(since_ms, _OVERDUE_AT_ONCE):
                if not queue.leave(message):
                    continue
                logger.warning(
                    "in hand for too long, giving back: %(message)r", {"message": message}
                )
                if await self._request(queue, message, TIMEOUT_DELAY_LEVEL):
                    continue
                if queue.started_ms(message) is None:
                    self._deliver_later(queue, message)
                else:  # never a second handler beside the first
                    queue.stay(message)

    async def _request(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> bool:
        """Return whether the message is finished here."""
        try:
            if self._redelivery is None:
                logger.warning(
                    "broadcast message is not delivered again: %(message)r", {"message": message}
                )
            else:
                await self._redelivery.request(message, delay_level)
        except RocketPyError as error:
            logger.info(
                "%(message)r stays here, giving it back failed: %(error)r",
                {"message": message, "error": error},
            )
            return False
        except BaseException:
            queue.stay(message)
            raise
        queue.remove(message)
        return True

    def _deliver_later(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._local_retry_s, self._deliver_again, queue, message)

    def _deliver_again(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        if not queue.holds(message):
            return
        if queue.started_ms(message) is not None:  # given back by a handler that still runs
            self._deliver_later(queue, message)
            return
        queue.stay(message)
        self._deliver(queue, [message])
