"""Redelivery of messages whose handler failed: through a broker, or locally if none takes them.

The committed offset never passes a message that is neither handled nor stored again. States of a
message:

    from        event                                          to
    delivered   its handler fails, or the user nacks it        leaving
    delivered   its handler exceeds the consume time-out       leaving; the handler continues
    leaving     stored again by a broker                       finished
    leaving     not stored, no handler has it                  waiting
    leaving     not stored, its handler still has it (sweep)   delivered
    waiting     `local_retry_ms` later, no handler has it      delivered again

Source: DefaultMQPushConsumerImpl.sendMessageBack, ConsumeMessageConcurrentlyService,
ProcessQueue.cleanExpiredMsg (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ProducerConfig
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.messages.delivery_time import LEVELS_MS
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Backoff, Rejection
from rocketpy.client.options.durations import to_ms
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing
from rocketpy.client.sending.pending_send import PendingSend
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
    with_dead_letter_cause,
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


def level_of(rejection: Rejection) -> int:
    """Return the delay level of a send-back: a delay is rounded up to the next one."""
    if rejection.is_dead_letter or rejection.delay_s is None:
        return rejection.delay_level
    delay_ms = to_ms(rejection.delay_s)
    fitting = (level for level, level_ms in enumerate(LEVELS_MS, 1) if level_ms >= delay_ms)
    return next(fitting, len(LEVELS_MS))


class Redelivery:
    """Redelivery of messages through brokers, after a delay, to any member of the group.

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

    async def request(self, message: ReceivedMessage, rejection: Rejection) -> None:
        """Send a message back to its broker, or if that fails, a copy to the retry topic.

        Args:
            message: to be redelivered.
            rejection: how, and for what reason; a delay becomes the next level.

        Raises:
            RocketPyError: both failed; the message is not known to be stored again.
        """
        # The send-back comes first, because it has no body: the broker copies the stored message.
        try:
            await self._give_back(message.ext, message.queue.broker_name, rejection)
        except RocketPyError as error:
            logger.info(
                "send-back failed, message sent to the retry topic: message=%(message)r "
                "error=%(error)r",
                {"message": message, "error": error},
            )
            await self.send_copy(message, rejection)

    async def _give_back(self, stored: MessageExt, broker_name: str, rejection: Rejection) -> None:
        address = self._instance.routes.master_address(broker_name)
        if address is None:
            raise NoRouteError(f"broker {broker_name} has no master")
        header = ConsumerSendMsgBackRequestHeader(
            offset=stored.phy_offset,
            group=self._group,
            delay_level=level_of(rejection),
            origin_msg_id=stored.msg_id,
            origin_topic=stored.topic,
            max_reconsume_times=self._limit,
            bname=broker_name,
        )
        # These fields are RocketPy's: other send-backs stay as Apache's clients make them.
        if rejection.is_dead_letter or stored.reconsume_times >= self._limit:
            header = replace(
                header,
                dlq_exception=rejection.exception or None,
                dlq_reason=rejection.reason or None,
                dlq_time=self._instance.clock.time_ms(),
                dlq_member=self._instance.client_id,
            )
        await self._instance.api.send_back(address, header)

    async def send_copy(self, message: ReceivedMessage, rejection: Rejection) -> None:
        """Send a copy to the retry topic; the broker stores a dead letter after the limit.

        Raises:
            RocketPyError: the copy is not known to be stored.
        """
        if self._transport is None:
            self._transport = SendTransport(self._instance, _PRODUCER_GROUP, self._sending)
        operation = PendingSend(
            self._window,
            self._transport,
            retry_topic(self._group),
            self._copy(message, rejection),
            timeout_ms=to_ms(self._sending.timeout),
            attempts=1 + self._sending.retries,
            choose=None,
        )
        operation.start()
        await operation.future

    def _copy(self, message: ReceivedMessage, rejection: Rejection) -> Outgoing:
        stored = message.ext
        tries, limit = stored.reconsume_times + 1, self._limit
        # A copy, because the handler may still read the properties of its message.
        properties = dict(stored.properties)
        # A message of the retry topic has these already: they name the first topic and id.
        properties.setdefault(PROPERTY_RETRY_TOPIC, stored.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, stored.offset_msg_id)
        # A broker would store a message with this property as a half message, unseen by consumers.
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        # The original is finished by the response, which must mean that the copy is stored.
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "true"
        if rejection.is_dead_letter or tries > limit:
            # With a level the broker would delay the dead letter first.
            properties.pop(PROPERTY_DELAY_TIME_LEVEL, None)
            limit = min(limit, tries - 1)  # brokers store a dead letter if `tries` exceeds `limit`
            clock, member = self._instance.clock, self._instance.client_id
            cause = (rejection.exception, rejection.reason, clock.time_ms(), member)
            properties = with_dead_letter_cause(properties, *cause)
        else:
            level = level_of(rejection) or FIRST_RETRY_LEVEL + stored.reconsume_times
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        # A body that could not be inflated is still compressed: keep its flags.
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


TIMED_OUT: Final = Rejection(3, reason="the handler took longer than consume_timeout")
# Most redeliveries per queue and sweep: each is a request, and a sweep must not take minutes.
_OVERDUE_AT_ONCE: Final = 16


class FailedMessages:
    """Failed and overdue messages of one consumer.

    Args:
        redelivery: redelivers through brokers; None when broadcasting, which drops the messages.
        clock: measures the time of handlers.
        deliver: called with messages to handle locally again.
        local_retry_ms: pause before `deliver` is called.
        consume_timeout_ms: time-out of a handler.
        backoff: returns delays of retries; None for the broker's.
    """

    def __init__(
        self,
        redelivery: Redelivery | None,
        *,
        clock: Clock,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        local_retry_ms: int,
        consume_timeout_ms: int,
        backoff: Backoff | None = None,
    ) -> None:
        self._redelivery = redelivery
        self._backoff = backoff
        self._clock = clock
        self._deliver = deliver
        self._local_retry_s = local_retry_ms / 1000
        self._consume_timeout_ms = consume_timeout_ms

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> None:
        """Redeliver a message through a broker, or locally if no broker stores it.

        Does nothing if the message is finished or already being redelivered, or if its queue was
        dropped. Implements `GiveBack`.
        """
        if not queue.leave(message):
            return
        rejection = rejection.backed_off(self._backoff, message.retries + 1)
        if not await self._request(queue, message, rejection):
            # A broker counts the retry in what it stores; here nothing was stored.
            message.retries += 1
            message.ext.reconsume_times += 1
            self._deliver_later(queue, message)

    async def give_back_overdue(self, queues: Iterable[ProcessQueue]) -> None:
        """Redeliver messages whose handlers exceeded the time-out; their outcomes are ignored."""
        since_ms = self._clock.monotonic_ms() - self._consume_timeout_ms
        for queue in queues:
            for message in queue.overdue(since_ms, _OVERDUE_AT_ONCE):
                # The redelivery of another message was awaited: this one may be finished by now.
                if not queue.leave(message):
                    continue
                logger.warning(
                    "consume time-out exceeded, message redelivered: message=%(message)r",
                    {"message": message},
                )
                if await self._request(queue, message, TIMED_OUT):
                    continue
                if queue.started_ms(message) is None:
                    self._deliver_later(queue, message)
                else:  # a second handler must not run beside the first
                    queue.stay(message)

    async def _request(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> bool:
        """Request a redelivery; return whether the message is finished here."""
        try:
            if self._redelivery is None:
                logger.warning(
                    "broadcast message dropped after its failure: message=%(message)r",
                    {"message": message},
                )
            else:
                await self._redelivery.request(message, rejection)
        except RocketPyError as error:
            logger.info(
                "redelivery failed, message retried here: message=%(message)r error=%(error)r",
                {"message": message, "error": error},
            )
            return False
        except BaseException:
            # A message that stayed reserved would hold the offset of its queue back for ever.
            queue.stay(message)
            raise
        # Only now, because the committed offset may pass the message from here on.
        queue.remove(message)
        return True

    def _deliver_later(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._local_retry_s, self._deliver_again, queue, message)

    def _deliver_again(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        if not queue.holds(message):
            return
        if queue.started_ms(message) is not None:  # the handler that failed it still runs
            self._deliver_later(queue, message)
            return
        # Before the delivery: messages that are reserved for a redelivery are not handed out.
        queue.stay(message)
        self._deliver(queue, [message])
