"""Producer: sends messages, batches, transactions and requests, and recalls delayed messages.

Source: DefaultMQProducer, DefaultMQProducerImpl (5.4.0).
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, TypeVar, Unpack, overload

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.messages.delivery_time import DELAYS
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import cause_of
from rocketpy.client.messages.send_options import SendOptions, check_options
from rocketpy.client.messages.serializers import PLAIN
from rocketpy.client.messages.typed_serializer import typed_reader
from rocketpy.client.options.durations import Duration
from rocketpy.client.options.validation import checked_topic
from rocketpy.client.producer.batch import listed, partly_sent, split_batches
from rocketpy.client.producer.pipeline import PreparedSend
from rocketpy.client.producer.producer_base import ProducerBase
from rocketpy.client.producer.request_reply import ask, read_answer, reply_place, reply_queue
from rocketpy.client.producer.transaction import Transaction, check_transactional, half_properties
from rocketpy.client.producer.unfinished_sends import UNFINISHED_SENDS
from rocketpy.client.sending.outgoing_message import (
    SEND_REPLY,
    Outgoing,
    build_alike,
    build_outgoing,
    check_send_topic,
    unpacked,
)
from rocketpy.client.sending.result import SendResult, SendStats
from rocketpy.errors import (
    MOST_REMARK_CHARACTERS,
    BadBodyError,
    IllegalMessageError,
    NoRouteError,
    RocketPyError,
    TopicNotWritableError,
)
from rocketpy.proto.headers.send import RecallMessageRequestHeader
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.recall_handle import decode_recall_handle
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import PROPERTY_REMOTE_ERROR, property_line
from rocketpy.proto.record.sys_flag import TRANSACTION_PREPARED

V = TypeVar("V")


async def recall_message(instance: Instance, group: str, topic: str, handle: str) -> str:
    """Ask the broker that has a delayed message to drop it; see `Producer.recall`."""
    if handle and not isinstance(handle, str):
        raise TypeError(f"handle: {handle!r} is not a text"[:200])
    if not handle:
        raise IllegalMessageError(
            "there is no recall handle: only a message sent with delay= or deliver_at= has one"
        )
    try:
        wanted = decode_recall_handle(handle)
    except BadBodyError as error:
        raise IllegalMessageError(str(error)) from None
    if wanted.topic != topic:
        raise IllegalMessageError(f"the handle is of topic {wanted.topic}, not {topic}")
    with contextlib.suppress(TopicNotWritableError):  # what a topic has may be taken back
        await instance.routes.publish_queues(topic)
    address = instance.routes.master_address(wanted.broker_name)
    if address is None:
        raise NoRouteError(f"broker {wanted.broker_name} has no master")
    header = RecallMessageRequestHeader(
        producer_group=group, topic=topic, recall_handle=handle, bname=wanted.broker_name
    )
    return await instance.api.recall(address, header)


class Producer(ProducerBase):
    """Sends messages; made by `Client.producer`.

    A send that fails for a reason that may pass is tried again, `retries` times within one
    `timeout`; while no broker can be reached, until the time is over. A retry after a lost
    response can store a message twice: consumers must tolerate repeats (`message.id` stays the
    same). What exactly a send promises: docs/sending.md.

    Args:
        instance: the client's connections.
        group: the producer group.
        config: limits and retry rules.

    Example:
        ::

            async with rocketpy.connect("127.0.0.1:9876", group="shop") as client:
                producer = client.producer(serializer=rocketpy.json)
                result = await producer.send("orders", {"id": "o1"}, tag="paid", keys=["o1"])
                print(result.msg_id, result.queue, result.offset)
    """

    @property
    def stats(self) -> SendStats:
        """Counts of what was sent so far."""
        window, transport = self._window, self._started
        return SendStats(
            begun=window.entered,
            in_flight=self.in_flight,
            in_flight_bytes=window.bytes,
            failed=window.failed,
            retried=0 if transport is None else transport.retries.count,
            lost_oneway=self.lost_oneway,
        )

    @property
    def lost_oneway(self) -> int:
        """Number of one-way sends known to be lost."""
        return self._oneway.losses.count

    async def send(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401 - any value of the serializer
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Beyond `max_in_flight`, calls wait in line, in their order; the time of a send begins when
        its turn comes. So any number of calls may be gathered. A call that is cancelled leaves the
        line, and nothing was sent.

        Args:
            topic: where to, or a whole `Message`.
            body: anything the serializer takes; not with a `Message`.
            **options: see `SendOptions`.

        Returns:
            Where it was stored. A status other than SEND_OK means: stored, less safely.

        Raises:
            IllegalMessageError: it breaks a limit; nothing was sent.
            NotSentError: nothing was sent, so a repeat cannot store it twice.
            RequestTimeoutError: no broker has answered in time; it may be stored.
            FlowControlError: the brokers are over their capacity; `retry_after` says how long.
            RocketPyError: the last attempt's error; earlier ones are its notes.
        """
        transport = self._transport()
        if not self._window.is_free:
            check_options(options)
            await self._window.wait_for_space()
        prepared = self._prepare(topic, body, options, self._instance.next_msg_id())
        return await self._start(transport, prepared)

    def send_nowait(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendResult]:
        """Start a send and return a future of its result; it never waits.

        At most `max_in_flight` sends (1024) may be in flight: await `ready` before each.

        Raises:
            TooManyInFlightError: the limit of sends or bytes in flight is reached.
            IllegalMessageError: it breaks a limit; nothing was sent.

        Example:
            ::

                futures = []
                for order in orders:
                    await producer.ready()
                    futures.append(producer.send_nowait("orders", order))
                results = await asyncio.gather(*futures)
        """
        transport = self._transport()
        self._check_space()
        prepared = self._prepare(topic, body, options, self._instance.next_msg_id())
        return self._start(transport, prepared, is_pipelined=True)

    async def ready(self) -> None:
        """Wait until one more `send_nowait` or `send_oneway` fits into the limits.

        Raises:
            NotSentError: the producer was closed, or no send was stored for a minute.
        """
        self._transport()
        await self._window.wait_for_space()

    async def flush(self) -> None:
        """Wait until every send in flight has its result; what `linger` gathers goes at once."""
        self._check_loop()
        if self._accumulator is not None:
            self._accumulator.send_all()
        await self._window.flush()

    def send_oneway(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> None:
        """Send without waiting for anything: one attempt, whose failure is only counted and logged.

        Counts as in flight until it is written to the connection: await `ready` between sends, as
        for `send_nowait`. `flush` and `close` wait for it.

        Raises:
            TooManyInFlightError: the limit of sends or bytes in flight is reached; not sent.
            IllegalMessageError: it breaks a limit; nothing was sent.
        """
        transport = self._transport()
        self._check_space()
        prepared = self._prepare(topic, body, options, self._instance.next_msg_id())
        self._oneway.start(transport, *prepared)

    async def send_batch(
        self,
        topic: str,
        bodies: Iterable[Any],
        **options: Unpack[SendOptions],
    ) -> list[SendResult]:
        """Send many messages of one topic in as few requests as their size allows.

        Each request is stored as a whole in one queue; if one fails, those before it are stored.
        Bodies are not compressed, and delays are not possible.

        Args:
            topic: where to.
            bodies: bodies, or `Message` objects with tags and keys of their own.
            **options: for all of them.

        Returns:
            One result per message, in order.

        Raises:
            IllegalMessageError: one of them breaks a limit; nothing was sent.
            TypeError: `bodies` is one text, bytes or a dict.
            PartlySentError: a request failed after others were stored; `outcomes` has a result or
                an error for each message. The failed request's own error is its cause.
            RocketPyError: as `send`; no message is known to be stored.
        """
        transport = self._transport()
        check_options(options)
        if any(options.get(name) for name in DELAYS):
            raise IllegalMessageError("messages of a batch cannot be delayed")
        own_topic = topic
        if self._namespace:
            topic, options = self._named(topic, options)
        check_send_topic(topic)
        messages = self._built(listed(bodies), own_topic, options)
        results: list[SendResult] = []
        for part in split_batches(messages, topic, self.config.max_message_bytes):
            try:
                await self._window.wait_for_space()
                batch = part.outgoing(self._instance.next_msg_id())
                stored = await self._start(transport, PreparedSend(topic, batch, options))
            except RocketPyError as error:
                if not results:
                    raise
                raise partly_sent(results, len(part.messages), len(messages), error) from error
            results += part.results(stored)
        return results

    def _built(self, items: list[Any], topic: str, options: SendOptions) -> list[Outgoing]:
        """Build the messages of a batch; the options of a `Message` count for it alone."""
        ids = self._instance.next_msg_ids(len(items))
        if not any(issubclass(kind, Message) for kind in set(map(type, items))):
            return build_alike(items, options, self.config, ids)
        messages = []
        for item, msg_id in zip(items, ids, strict=True):
            of_item, data = options, item
            if isinstance(item, Message):
                item_topic, data, of_item = unpacked(item, None, options)
                if item_topic != topic:
                    reason = f"a batch has one topic, not {topic} and {item_topic}"
                    raise IllegalMessageError(reason)
            messages.append(build_outgoing(data, of_item, self.config, msg_id, compress=False))
        return messages

    async def recall(self, topic: str, handle: str) -> str:
        """Call a message back that was sent with `delay` or `deliver_at` and is not due yet.

        Messages with a `delay_level` have no handle, nor has a transactional one.
        The broker allows it with `recallMessageEnable=true` only. A recall that comes a moment
        before the message is due may be too late.

        Args:
            topic: where the message was sent to.
            handle: `SendResult.recall_handle`.

        Returns:
            The message's id.

        Raises:
            TypeError: the topic or the handle is no text.
            IllegalMessageError: the handle is none, or one of another topic.
            NoRouteError: the broker that has the message is not known.
            BrokerError: the broker refused: recalls are off, or the message is due.
        """
        self._transport()
        topic = wrap_namespace(self._namespace, checked_topic(topic))
        return await recall_message(self._instance, self.group, topic, handle)

    def transaction(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        check_after: Duration | None = None,
        **options: Unpack[SendOptions],
    ) -> Transaction:
        """Return a transaction: a message that consumers get if the block of code goes well.

        The half message is sent when the block is entered, once. `Transaction` says how it ends:
        with a commit, after an exception with a rollback, or when the broker has asked.

        Args:
            topic: where to, or a whole `Message`.
            body: anything the serializer takes; not with a `Message`.
            check_after: how long brokers do not ask how it ended, and take its end.
            **options: see `SendOptions`; a delay is not possible.

        Raises:
            ConfigError: the producer is in the default group.
            TypeError: an option that does not exist, or is of another type.
            IllegalMessageError: it breaks a limit; raised when the block is entered.
            HalfNotStoredError: the half message is not known to be stored; the block does not run.
        """
        check_transactional(self._namespace, self.group)
        check_options(options)

        async def send_half() -> SendResult:
            return await self._send_half(topic, body, options, check_after)

        return Transaction(send_half, self._ends, has_checker=self._checks is not None)

    async def _send_half(
        self, topic: str | Message, body: object, options: SendOptions, check_after: Duration | None
    ) -> SendResult:
        transport = self._transport()
        topic, body, options = unpacked(topic, body, options)
        if any(options.get(name) for name in DELAYS):
            raise IllegalMessageError("a transactional message cannot be delayed")
        properties = half_properties(self.group, check_after)
        # One attempt: what may have reached a broker is not sent again.
        options = {**options, "retries": 0}
        options["properties"] = {**options.get("properties", {}), **properties}
        prepared = self._prepare(topic, body, options, self._instance.next_msg_id())
        message = prepared.message
        message = message._replace(sys_flag=message.sys_flag | TRANSACTION_PREPARED)
        await self._window.wait_for_space()
        return await self._start(transport, prepared._replace(message=message))

    @overload
    async def request(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        type: None = None,
        **options: Unpack[SendOptions],
    ) -> ReceivedMessage: ...
    @overload
    async def request(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        type: type[V],
        **options: Unpack[SendOptions],
    ) -> V: ...
    @overload
    async def request(
        self,
        topic: str | Message,
        body: Any = None,  # noqa: ANN401
        *,
        type: object,
        **options: Unpack[SendOptions],
    ) -> Any: ...  # noqa: ANN401
    async def request(
        self,
        topic: str | Message,
        body: Any = None,
        *,
        type: Any = None,  # noqa: A002 - an annotation
        **options: Unpack[SendOptions],
    ) -> Any:
        """Send a request message, and wait for the reply to it.

        At most 128 requests of a producer wait for their answer at first, and up to `max_in_flight`
        as long as answers come early. Further calls wait in line; the time of a request begins when
        its turn comes.

        Args:
            topic: where to, or a whole `Message`.
            body: anything the serializer takes; not with a `Message`.
            type: of the answer's body, `Price` or `list[Price]`; see `TypedSerializer`.
            **options: see `SendOptions`; `timeout` is for the answer too.

        Returns:
            With `type`, the answer's body as a value of it. Else the answer, whose `decode()` uses
            this producer's serializer.

        Raises:
            RequestTimeoutError: no answer in time.
            RemoteError: the responder's handler raised an exception.
            UnreadableBodyError: the answer's body is not a value of `type`; says where.
            TypeError: values of `type` cannot be read; nothing was sent.
            NotSentError: the request was not sent.
            RocketPyError: as `send`.
        """
        reader = None if type is None else typed_reader(self.config.serializer, type)
        answer = await self._request(topic, body, options)
        return answer if reader is None else read_answer(answer, reader, type)

    async def _request(
        self, topic: str | Message, body: object, options: SendOptions
    ) -> ReceivedMessage:
        transport = self._transport()
        topic, body, options = unpacked(topic, body, options)
        check_options(options)
        if self._namespace:
            topic, options = self._named(topic, options)
        check_send_topic(topic)

        async def send(properties: dict[str, str], timeout_s: float) -> None:
            merged = {**options.get("properties", {}), **properties}
            given: SendOptions = {**options, "properties": merged, "timeout": timeout_s}
            message = build_outgoing(body, given, self.config, self._instance.next_msg_id())
            await self._start(transport, PreparedSend(topic, message, given))

        time_s = self._time_of(options)

        async def ask_once() -> ReceivedMessage:
            return await ask(
                self._instance,
                topic,
                send,
                time_s,
                self.config.serializer,
                wait_for_space=self._window.wait_for_space,
            )

        return await self._asked.run(ask_once, time_s)

    async def reply(
        self,
        request: ReceivedMessage,
        body: Any,  # noqa: ANN401
        **options: Unpack[SendOptions],
    ) -> SendResult:
        """Answer a request that a consumer received; see `Client.responder` for the usual way.

        Args:
            request: a message that was sent with `request`.
            body: anything the serializer takes.
            **options: see `SendOptions`.

        Raises:
            IllegalMessageError: the message asks for no answer.
            SystemFaultError: the requester is gone, or did not take it.
            RocketPyError: as `send`.
        """
        transport = self._transport()
        topic, properties = reply_place(request)
        queues = await self._instance.routes.publish_queues(topic)
        await self._window.wait_for_space()
        options = {**options, "properties": {**options.get("properties", {}), **properties}}
        options["queue"] = reply_queue(queues, request)
        message = build_outgoing(body, options, self.config, self._instance.next_msg_id())
        message = message._replace(code=SEND_REPLY)
        return await self._start(transport, PreparedSend(topic, message, options))

    async def _reply_error(self, request: ReceivedMessage, error: BaseException) -> SendResult:
        """Answer a request with an error, which its `request` call raises as `RemoteError`.

        Args:
            request: a message that was sent with `request`.
            error: its class is sent, as one bounded line, and `MOST_REMARK_CHARACTERS` of its text.

        Raises:
            RocketPyError: as `reply`.
        """
        # No serializer and no middleware: they are made for values, and may have failed.
        kind, text = cause_of(error)
        text = text[:MOST_REMARK_CHARACTERS] or "no text"
        # An empty property would not be sent, and the answer would not be an error.
        kind = property_line(kind) or "Exception"
        properties = {PROPERTY_REMOTE_ERROR: kind}
        options: SendOptions = {"serializer": PLAIN, "properties": properties}
        body = text.encode(errors="replace")
        return await Producer.reply(self, request, body, **options)

    def check_transaction(
        self, asked: CheckTransactionStateRequestHeader, asker: str, message: MessageExt
    ) -> bool:
        """Answer a check-back of a broker in the background; see `ProducerMember`."""
        if self._checks is None:
            return False
        self._checks.ask(asked, asker, message)
        return True

    async def _close(self) -> None:
        """Take no more sends, refuse those in line, and wait for those in flight."""
        if self._closed:
            return
        self._closed = True
        self._asked.refuse_waiting()
        if self._accumulator is not None:
            self._accumulator.send_all()
        await self._window.close()
        UNFINISHED_SENDS.closed(self)
        self._oneway.losses.close()
        if self._checks is not None:
            await self._checks.close()
        if self._tracer is not None:
            await self._tracer.close()
        await self._instance.remove_producer(self)
