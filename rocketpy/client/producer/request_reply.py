"""Requests and their answers, from the side of the requester and from that of the responder.

The requester sends an ordinary message with an id and its own client id. Its consumer sends the
answer to the reply topic of the cluster, and the broker passes it on to the requester's connection.

A reply with the property `PROPERTY_REMOTE_ERROR` is the error of a handler: the property has the
class, the body the text. Only requests with `PROPERTY_TAKES_ERRORS` get it. Both are ours.

Source: DefaultMQProducerImpl.request, RequestFutureHolder, MessageUtil.createReplyMessage,
ClientRemotingProcessor.receiveReplyMessage (5.4.0).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from rocketpy.client.cluster.pending_replies import PendingRequests
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.sending.backoff import LAST_TRY_MS, retry_pause_ms
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.errors import (
    MOST_REMARK_CHARACTERS,
    ConnectionLostError,
    IllegalMessageError,
    NotSentError,
    RemoteError,
    RequestTimeoutError,
    RocketPyError,
    UnreadableBodyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_CORRELATION_ID,
    PROPERTY_MSG_TYPE,
    PROPERTY_REMOTE_ERROR,
    PROPERTY_REPLY_TO_CLIENT,
    PROPERTY_TAKES_ERRORS,
    PROPERTY_TTL,
    REPLY_MESSAGE_TYPE,
)
from rocketpy.proto.topic_names import reply_topic
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

V = TypeVar("V")

FIRST_REQUESTS: Final = 128
"""Requests that may wait for their answer at first."""
_EARLY_MS: Final = 250
"""An answer within a quarter of the time, so many milliseconds for each second, is early."""
_UNBOUNDED: Final = 1 << 62
_BRIDGED_MS: Final = 100
_TTL_DIGITS: Final = 18
_LOG_PAUSE_MS: Final = 1000


class RequestWindow:
    """Requests of one producer that wait for their answer, and the line of those beyond the limit.

    Requests count here instead of in the window of sends: a handler that must send before it can
    answer would otherwise wait for the requesters.

    How many a responder answers in time is not known before. So the limit begins low. It grows
    while answers come early, and a time-out halves it.

    Args:
        max_requests: the highest limit.
        timeout_s: usual time of a request.
        clock: measures how long answers take.
    """

    def __init__(self, max_requests: int, timeout_s: float, clock: Clock) -> None:
        self._max_requests = max_requests
        self._clock = clock
        first = min(max_requests, FIRST_REQUESTS)
        self._window = InFlightWindow(first, _UNBOUNDED, timeout_s=timeout_s)

    async def run(
        self, ask_once: Callable[[], Awaitable[ReceivedMessage]], timeout_s: float
    ) -> ReceivedMessage:
        """Make a request when its turn comes.

        Args:
            ask_once: makes the request.
            timeout_s: its time.
        """
        window = self._window
        await window.wait_for_space()
        window.enter(0)
        began_ms = self._clock.monotonic_ms()
        try:
            answer = await ask_once()
        except BaseException as error:
            window.failed += 1
            if isinstance(error, RequestTimeoutError):
                window.max_messages = max(window.max_messages // 2, min(self._max_requests, 32))
            raise
        else:
            if self._clock.monotonic_ms() - began_ms < timeout_s * _EARLY_MS:
                window.max_messages = min(window.max_messages + 1, self._max_requests)
            return answer
        finally:
            window.leave(0)

    def refuse_waiting(self) -> None:
        """Fail the requests in line, because the producer closes."""
        self._window.refuse_waiting()


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
    *,
    wait_for_space: Callable[[], Awaitable[None]],
) -> ReceivedMessage:
    """Send a request and wait for its answer, within one time.

    Args:
        instance: the client's shared part.
        topic: where the request goes.
        send: sends it, given its properties and the seconds left.
        timeout_s: for everything but the wait for room.
        serializer: reads the answer.
        wait_for_space: waits until the producer may send.

    Raises:
        NotSentError: the brokers do not know this client yet, and did not answer in time.
        RequestTimeoutError: the broker, or the responder, took too long.
        RemoteError: the responder failed.
    """
    clock = instance.clock
    deadline_ms = clock.monotonic_ms() + int(timeout_s * 1000)

    def left_s() -> float:
        return max(0, deadline_ms - clock.monotonic_ms()) / 1000

    properties, future = instance.requests.open(int(timeout_s * 1000))
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await _make_known(instance, topic, left_s)
        except (TimeoutError, ConnectionLostError) as error:
            words = f"the brokers of {topic} did not answer within {timeout_s:.3g} s"
            raise NotSentError(f"{words}; the request was not sent") from error
        began_ms = clock.monotonic_ms()
        await wait_for_space()
        sent_ms = clock.monotonic_ms()
        deadline_ms += sent_ms - began_ms
        await send(properties, left_s())
        if clock.monotonic_ms() - sent_ms >= _BRIDGED_MS:
            # The broker may have restarted meanwhile: it needs a heartbeat to route the reply.
            with contextlib.suppress(RocketPyError, TimeoutError):
                async with asyncio.timeout(left_s()):
                    await instance.introduce()
        return await answer_of(future, left_s(), topic, serializer)
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
            await asyncio.sleep(retry_pause_ms(pauses, error, left_ms) / 1000)
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
        RemoteError: the answer is an error of the responder.
    """
    try:
        async with asyncio.timeout(timeout_s):
            answer = await future
    except TimeoutError:
        raise RequestTimeoutError(
            f"the request to {topic} was stored, but no answer came within {timeout_s:.3g} s"
        ) from None
    kind = answer.properties.get(PROPERTY_REMOTE_ERROR)
    if kind is not None:
        # The answer is of another program: what it claims is only ever shown.
        detail = answer.body[:MOST_REMARK_CHARACTERS].decode(errors="replace")
        raise RemoteError(kind[:MOST_REMARK_CHARACTERS], detail)
    queue = MessageQueue(answer.topic, "", answer.queue_id)
    return ReceivedMessage(answer, queue, serializer=serializer)


def read_answer(answer: ReceivedMessage, reader: Serializer[V], kind: object) -> V:
    """Return the body of an answer as the value that its requester asked for.

    Args:
        answer: of the responder.
        reader: reads values of `kind`.
        kind: annotation, for the error.

    Raises:
        UnreadableBodyError: the body is not such a value.
    """
    try:
        return reader.loads(answer.body)
    except Exception as error:  # of any class that the user's serializer raises
        name = getattr(kind, "__name__", None) if isinstance(kind, type) else None
        raise UnreadableBodyError(
            f"the answer, {len(answer.body)} bytes, cannot be read as {name or kind}: {error}"
        ) from error


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


class Answers:
    """Sends the answers of a responder's handler, and refuses requests whose time is over.

    A reply that cannot be sent is logged: the requester may be gone, and can repeat its request.

    Args:
        reply: sends an answer.
        reply_error: sends an error as the answer.
        clock: the client's.
    """

    def __init__(
        self,
        reply: Callable[[ReceivedMessage, Any], Awaitable[object]],
        reply_error: Callable[[ReceivedMessage, BaseException], Awaitable[object]],
        clock: Clock,
    ) -> None:
        self._reply = reply
        self._reply_error = reply_error
        self._clock = clock
        self._dropped = 0  # since the last log line
        self._logged_ms = -_LOG_PAUSE_MS

    async def __call__(self, message: ReceivedMessage, body: object) -> None:
        """Send what the handler returned.

        Raises:
            IllegalMessageError: the answer breaks a limit; the requester is to get that error.
        """
        await self._send(message, self._reply(message, body))

    async def fail(self, message: ReceivedMessage, error: BaseException) -> bool:
        """Send the error of a handler; return False for a requester that does not take errors.

        Apache's requesters would take any reply as the answer, so they get none.
        """
        if PROPERTY_TAKES_ERRORS not in message.properties:
            return False
        await self._send(message, self._reply_error(message, error))
        return True

    def is_late(self, message: ReceivedMessage) -> bool:
        """Return whether the requester has given up, so that handling is in vain.

        The time of a request counts from its birth or from its storing, whichever is later, so
        that a requester whose clock is slow is served. A redelivery is stored anew: only its birth
        counts.
        """
        ttl = message.properties.get(PROPERTY_TTL, "")
        if not ttl.isdecimal() or len(ttl) > _TTL_DIGITS:
            return False
        ext = message.ext
        sent_ms = ext.born_timestamp_ms
        if not message.retries:
            sent_ms = max(sent_ms, ext.store_timestamp_ms)
        late_ms = self._clock.time_ms() - sent_ms - int(ttl)
        if late_ms <= 0:
            return False
        self._dropped += 1
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._logged_ms >= _LOG_PAUSE_MS:  # an overload drops thousands a second
            logger.warning(
                "requests dropped, their time is over: dropped=%(count)d msg_id=%(msg_id)s "
                "late_ms=%(late_ms)d ttl_ms=%(ttl_ms)s",
                {
                    "count": self._dropped,
                    "msg_id": message.id,
                    "late_ms": late_ms,
                    "ttl_ms": ttl,
                },
            )
            self._dropped, self._logged_ms = 0, now_ms
        return True

    async def _send(self, message: ReceivedMessage, sending: Awaitable[object]) -> None:
        try:
            await sending
        except IllegalMessageError:
            raise
        except RocketPyError as error:
            logger.warning(
                "answer not sent: msg_id=%(msg_id)s error=%(error)r",
                {"msg_id": message.id, "error": error},
            )
