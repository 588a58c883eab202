"""Base class of `Producer`: in-flight limits, time-outs, and the start of a send."""

import asyncio

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ProducerConfig
from rocketpy.client.lifecycle import AsyncClosable, require_loop, running_loop
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.options.durations import to_s
from rocketpy.client.options.validation import checked_group
from rocketpy.client.producer.batch_accumulator import BatchAccumulator, can_be_batched
from rocketpy.client.producer.oneway import OnewaySends
from rocketpy.client.producer.pipeline import PreparedSend, SendPipeline
from rocketpy.client.producer.request_reply import RequestWindow
from rocketpy.client.producer.transaction import (
    CheckBackResponder,
    EndTransactionClient,
    check_transactional,
)
from rocketpy.client.producer.unfinished_sends import UNFINISHED_SENDS
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import (
    build_outgoing,
    check_send_topic,
    queue_chooser,
    unpacked,
)
from rocketpy.client.sending.pending_send import PendingSend
from rocketpy.client.sending.result import SendResult
from rocketpy.client.sending.transport import SendTransport
from rocketpy.client.tracing import Tracer
from rocketpy.errors import ClosedError, RocketPyError, TooManyInFlightError
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.record.properties import PROPERTY_INSTANCE_ID


class ProducerBase(AsyncClosable):
    """Shared part of all send methods of `Producer`.

    Args:
        instance: the client's connections.
        group: the producer group.
        config: limits and retry rules.
    """

    def __init__(self, instance: Instance, group: str, config: ProducerConfig) -> None:
        self.group: str = checked_group(group)
        self.config = config
        self._instance = instance
        self._namespace = instance.config.namespace
        timeout_s = to_s(config.timeout)
        self._window = InFlightWindow(
            config.max_in_flight, config.max_in_flight_bytes, timeout_s=timeout_s
        )
        self._asked = RequestWindow(config.max_in_flight, timeout_s, instance.clock)
        self._started: SendTransport | None = None
        self._tracer: Tracer | None = None
        self._timeout_s = timeout_s
        self._accumulator: BatchAccumulator | None = None
        self._oneway = OnewaySends(instance, self._window, self.group, self._timeout_s)
        self._closed = False
        self._ends = EndTransactionClient(instance.api, instance.routes, self.group)
        if config.tx_checker is not None:
            check_transactional(self._namespace, self.group)
        self._checks = (
            CheckBackResponder(
                config.tx_checker, self._ends, config.serializer, instance.clock, self._namespace
            )
            if config.tx_checker is not None
            else None
        )

    def __repr__(self) -> str:
        """Show the group and the number of sends in flight."""
        return f"<Producer of group {self.group}, {self._window.messages} in flight>"

    @property
    def in_flight(self) -> int:
        """Sends that wait for their result, and one-way sends that are not written yet."""
        return self._window.messages

    def _time_of(self, options: SendOptions) -> float:
        timeout = options.get("timeout")
        return self._timeout_s if timeout is None else to_s(timeout)

    def _check_space(self) -> None:
        if not self._window.has_space:
            raise TooManyInFlightError(
                f"{self._window.messages} sends with {self._window.bytes} bytes are in flight "
                f"(limits: max_in_flight={self.config.max_in_flight}, "
                f"max_in_flight_bytes={self.config.max_in_flight_bytes}), this one was not sent; "
                "await producer.ready() before each send_nowait or send_oneway"
            )

    def _transport(self) -> SendTransport:
        transport = self._started
        if transport is None:
            require_loop()
            self._check_loop()
            self._check_open()
            UNFINISHED_SENDS.watch(self, asyncio.get_running_loop())
            transport = SendTransport(self._instance, self.group, self.config)
            self._started = transport
            if to_s(self.config.linger):
                next_msg_id = self._instance.next_msg_id
                self._accumulator = BatchAccumulator(
                    self._window, transport, self.config, next_msg_id
                )
            if self.config.trace:
                where = self.config.trace_topic
                self._tracer = Tracer(self._instance, self.group, "PRODUCE", where)
                self._ends.on_end = self._tracer.transaction_ended
        elif running_loop() is not transport.loop:
            require_loop()
            self._check_loop()
        return transport

    def _check_open(self) -> None:
        if self._closed or not self._instance.is_running:
            raise ClosedError("the producer's client is not started, or closed")

    def _pipeline(self) -> SendPipeline:
        """Return the steps of a send for callers on other threads."""
        return SendPipeline(
            check_open=self._check_open,
            next_msg_id=self._instance.other_msg_ids().next,
            prepare=self._prepare,
            start=lambda prepared: self._start(self._transport(), prepared, is_pipelined=True),
            start_oneway=self._start_oneway,
            window=self._window,
        )

    def _prepare(
        self, topic: str | Message, body: object, options: SendOptions, msg_id: str
    ) -> PreparedSend:
        """Check and build a message; on any thread, with an id of that thread's generator.

        Raises:
            IllegalMessageError: it breaks a limit.
            TypeError: an option that does not exist, or is of another type.
        """
        if not isinstance(topic, str):
            topic, body, options = unpacked(topic, body, options)
        if self._namespace:
            topic, options = self._named(topic, options)
        check_send_topic(topic)
        return PreparedSend(topic, build_outgoing(body, options, self.config, msg_id), options)

    def _start(
        self,
        transport: SendTransport,
        prepared: PreparedSend,
        *,
        is_pipelined: bool = False,
    ) -> asyncio.Future[SendResult]:
        """Send a message, alone or in a batch of those that linger.

        The time of the send begins here: the wait for room in the window does not count.

        Args:
            transport: of `_transport`.
            prepared: of `_prepare`.
            is_pipelined: whether the caller sends more before it has the result.
        """
        topic, message, options = prepared
        accumulator = self._accumulator
        if accumulator is not None and can_be_batched(topic, message, options):
            future = accumulator.add(
                topic, message, options.get("queue"), is_pipelined=is_pipelined
            )
        else:
            if accumulator is not None and (queue := options.get("queue")) is not None:
                accumulator.send_queue(queue)
            choose = queue_chooser(options) if options else None
            time_s = self._time_of(options) if options else self._timeout_s
            retries = options.get("retries", self.config.retries)
            operation = PendingSend(
                self._window,
                transport,
                topic,
                message,
                timeout_ms=int(time_s * 1000),
                attempts=1 if choose is not None else 1 + retries,
                choose=choose,
                # In a chosen queue, messages sent meanwhile would overtake one that waits.
                waits_for_broker=choose is None or not is_pipelined,
            )
            operation.start()
            future = operation.future
        if self._tracer is not None:
            self._tracer.watch_send(topic, message, future)
        return future

    def _start_oneway(self, prepared: PreparedSend) -> None:
        """Start a one-way send; count it as lost when it cannot start."""
        try:
            self._oneway.start(self._transport(), *prepared)
        except RocketPyError as error:
            self._oneway.losses.add(prepared.topic, error)

    def _named(self, topic: str, options: SendOptions) -> tuple[str, SendOptions]:
        """Put a message into the namespace."""
        properties = {**options.get("properties", {}), PROPERTY_INSTANCE_ID: self._namespace}
        return wrap_namespace(self._namespace, topic), {**options, "properties": properties}
