"""Requests that other clients answer: over a topic there, straight to the asker back.

The asker sends an ordinary message with an id and its own client id. Whoever consumes it sends the
answer to the reply topic of the cluster, and the broker passes it on to the asker's connection.

Source: DefaultMQProducerImpl.request, RequestFutureHolder, MessageUtil.createReplyMessage,
ClientRemotingProcessor.receiveReplyMessage (5.4.0).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from rocketpy.client.callbacks.handlers import Answer
from rocketpy.client.cluster.pending_replies import PendingRequests
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.sending.backoff import LAST_TRY_MS, wait_to_look_again_ms
from rocketpy.errors import (
    IllegalMessageError,
    RequestTimeoutError,
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TTL,
    REPLY_MESSAGE_TYPE,
)
from rocketpy.proto.topic_names import reply_topic
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

_BRIDGED_MS: Final = 100


class RequestContext(Protocol):
    """Shared part of the client, as requests need it."""

    clock: Clock
    requests: PendingRequests

    async def make_known(self, topic: str) -> None:
        """See to it that the topic's brokers pass answers on to this client."""
        ...

    async def introduce(self) -> None:
        """Have brokers know this client that may have forgotten it."""
        ...


async def ask(
    instance: RequestContext,
    topic: str,
    send: Callable[[dict[str, str], float], Awaitable[None]],
    timeout_s: float,
    serializer: Serializer,
) -> ReceivedMessage:
    """Send a request and wait for its answer, within one time.

    Args:
        instance: the client's shared part.
        topic: where the request goes.
        send: sends it, given its properties and the seconds left.
        timeout_s: for everything.
        serializer: reads the answer.

    Raises:
        RequestTimeoutError: the brokers, or the responder, took too long.
    """
    clock = instance.clock
    deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)

    def left_s() -> float:
        return max(0, deadline_ms - clock.monotonic_ms()) / 1000

    properties, future = instance.requests.open(int(timeout_s * 1000))
    try:
        async with asyncio.timeout(timeout_s):
            await _make_known(instance, topic, left_s)
        began_ms = clock.monotonic_ms()
        await send(properties, left_s())
        if clock.monotonic_ms() - began_ms >= _BRIDGED_MS:
            # The broker may have restarted meanwhile: it needs a heartbeat to route the reply.
            with contextlib.suppress(RocketPyError):
                async with asyncio.timeout(left_s()):
                    await instance.introduce()
        return await answer_of(future, left_s(), topic, serializer)
    except TimeoutError as error:
        if isinstance(error, RequestTimeoutError):
            raise
        raise RequestTimeoutError(f"the brokers of {topic} did not answer in time") from None
    finally:
        future.cancel()


async def _make_known(instance: RequestContext, topic: str, left_s: Callable[[], float]) -> None:
    """Do so over a broker's restart: what a send waits for, a request waits for, too.

    Raises:
        RocketPyError: that does not pass, or the last one when the time is almost over.
    """
    pauses = 0
    while True:
        try:
            await instance.make_known(topic)
        except RocketPyError as error:
            left_ms = int(left_s() * 1000)
            if not error.retriable or left_ms <= LAST_TRY_MS:
                raise
            pauses += 1
            await asyncio.sleep(wait_to_look_again_ms(pauses, error, left_ms) / 1000)
        else:
            return


async def answer_of(
    future: asyncio.Future[MessageExt],
    timeout_s: float,
    topic: str,
    serializer: Serializer,
) -> ReceivedMessage:
    """Wait for the answer to a request that was sent.

    Raises:
        RequestTimeoutError: none came in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            answer = await future
    except TimeoutError:
        raise RequestTimeoutError(
            f"the request to {topic} was stored, but no answer came within {timeout_s:.3g} s"
        ) from None
    queue = MessageQueue(answer.topic, "", answer.queue_id)
    return ReceivedMessage(answer, queue, serializer=serializer)


def reply_queue(queues: Sequence[MessageQueue], request: ReceivedMessage) -> MessageQueue:
    """Return a queue of the broker of a request: the requester is connected there."""
    same = [queue for queue in queues if queue.broker_name == request.queue.broker_name]
    return (same or list(queues))[0]


def reply_place(request: ReceivedMessage) -> tuple[str, dict[str, str]]:
    """Return where the answer to a request goes, and its properties.

    Raises:
        IllegalMessageError: the message asks for no answer.
    """
    properties = request.properties
    cluster = properties.get(PROPERTY_CLUSTER)
    asker = properties.get(PROPERTY_REPLY_TO_CLIENT)
    correlation_id = properties.get(PROPERTY_CORRELATION_ID)
    if not cluster or not asker or not correlation_id:
        raise IllegalMessageError(f"message {request.id} asks for no answer")
    answer = {
        PROPERTY_MSG_TYPE: REPLY_MESSAGE_TYPE,
        PROPERTY_CORRELATION_ID: correlation_id,
        PROPERTY_REPLY_TO_CLIENT: asker,
    }
    ttl = properties.get(PROPERTY_TTL)
    if ttl:
        answer[PROPERTY_TTL] = ttl
    return reply_topic(cluster), answer


Reply = Callable[[ReceivedMessage, Any], Awaitable[object]]


def answering(reply: Reply) -> Answer:
    """Return what sends the answers of a responder's handler.

    A reply that cannot be sent is logged: the requester may be gone, and can repeat its request.

    Args:
        reply: sends an answer.
    """

    async def answer(message: ReceivedMessage, body: object) -> None:
        try:
            await reply(message, body)
        except RocketPyError as error:
            logger.warning(
                "the answer to request %(msg_id)s was not taken: %(error)r",
                {"msg_id": message.id, "error": error},
            )

    return answer
