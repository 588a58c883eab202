"""OpenTelemetry: spans and metrics of sends and handlers; messages carry the trace context.

Needs `pip install 'rocketpy-mq[otel]'`; nothing else of RocketPy imports it. The context of a trace
travels in a message's properties (`traceparent`, ...), where consumers in other languages find it.
Names are those of the semantic conventions for messaging.

Example:
    ::

        telemetry = Telemetry()
        producer = client.producer(middlewares=[telemetry.sending], on_retry=telemetry.retried)
        consumer = client.consumer(
            "orders", group="billing", handler=bill, middlewares=[telemetry.handling("billing")]
        )
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.propagators.textmap import TextMapPropagator
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "rocketpy.otel needs OpenTelemetry: pip install 'rocketpy-mq[otel]'"
    ) from _error

from rocketpy import __version__
from rocketpy.client.callbacks.hooks import SendRetry
from rocketpy.client.callbacks.middleware import Handle, HandleMiddleware, Proceed, Sending
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.sending.result import SendResult

Attributes = dict[str, str | int]

_SYSTEM: Final = ("messaging.system", "rocketmq")
_TOPIC: Final = "messaging.destination.name"
_NAME: Final = "messaging.operation.name"
_TYPE: Final = "messaging.operation.type"
_ERROR: Final = "error.type"
_COUNT: Final = "messaging.batch.message_count"


class Telemetry:
    """Middlewares that make spans and metrics; one object serves any number of clients.

    Args:
        tracer_provider: makes the spans; None for the global one.
        meter_provider: takes the metrics; None for the global one.
        propagator: writes the context into properties and reads it; None for the global one, which
            by default is that of W3C.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._propagator = propagator or propagate.get_global_textmap()
        self._tracer = trace.get_tracer("rocketpy", __version__, tracer_provider)
        meter = metrics.get_meter("rocketpy", __version__, meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}")
        self._send_time = meter.create_histogram("messaging.client.operation.duration", "s")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}")
        self._handle_time = meter.create_histogram("messaging.process.duration", "s")
        self._retries = meter.create_counter("rocketpy.client.send.retries", "{attempt}")

    async def sending(self, sending: Sending, proceed: Proceed) -> Any:  # noqa: ANN401
        """Make a span of a send, and send its context along; a middleware of producers."""
        attributes = _attributes(sending.topic, sending.kind, "send")
        count = 1
        if sending.kind == "batch":
            attributes[_COUNT] = count = len(sending.body)
        began = time.perf_counter()
        name = f"{sending.kind} {sending.topic}"
        with self._tracer.start_as_current_span(
            name, kind=trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            sending.add_headers({key: value for key, value in carrier.items() if value})
            measured = _attributes(sending.topic, sending.kind, "send")
            try:
                result = await proceed(sending)
            except BaseException as error:
                measured[_ERROR] = type(error).__name__
                span.set_attribute(_ERROR, type(error).__name__)
                raise
            finally:
                self._send_time.record(time.perf_counter() - began, measured)
                self._sent.add(count, measured)
            if isinstance(result, SendResult):
                span.set_attribute("messaging.message.id", result.msg_id)
                span.set_attribute("messaging.destination.partition.id", _partition(result))
        return result

    def retried(self, retry: SendRetry) -> None:
        """Count an attempt that is followed by another one; `on_retry` of producers."""
        attributes: Attributes = dict([_SYSTEM, (_TOPIC, retry.topic)])
        if retry.error is not None:
            attributes[_ERROR] = type(retry.error).__name__
        self._retries.add(1, attributes)

    def handling(self, group: str) -> HandleMiddleware:
        """Return a middleware of consumers that makes a span of each call of the handler.

        Args:
            group: of the consumer, for the spans.
        """

        async def around(messages: Sequence[ReceivedMessage], handle: Handle) -> Any:  # noqa: ANN401
            with self.processing(messages, group):
                return await handle(messages)

        return around

    @contextmanager
    def processing(self, messages: Sequence[ReceivedMessage], group: str) -> Iterator[trace.Span]:
        """Make a span of the processing of messages in a `with` block, for loops over a consumer.

        The span of one message continues the trace of its sender; that of several has links.

        Args:
            messages: one or more.
            group: of the consumer.
        """
        topic = messages[0].topic
        attributes = {
            **_attributes(topic, "process", "process"),
            "messaging.consumer.group.name": group,
        }
        measured = dict(attributes)
        contexts = [self._propagator.extract(each.headers) for each in messages]
        links: list[trace.Link] = []
        if len(messages) == 1:
            attributes["messaging.message.id"] = messages[0].id
            attributes["messaging.message.body.size"] = len(messages[0].body)
        else:
            attributes[_COUNT] = len(messages)
            senders = [trace.get_current_span(each).get_span_context() for each in contexts]
            links = [trace.Link(each) for each in senders if each.is_valid]
        began = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"process {topic}",
            context=contexts[0] if len(messages) == 1 else None,
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        ) as span:
            try:
                yield span
            except BaseException as error:
                measured[_ERROR] = type(error).__name__
                span.set_attribute(_ERROR, type(error).__name__)
                raise
            finally:
                self._handle_time.record(time.perf_counter() - began, measured)
                self._consumed.add(len(messages), measured)


def _attributes(topic: str, name: str, kind: str) -> Attributes:
    return dict([_SYSTEM, (_TOPIC, topic), (_NAME, name), (_TYPE, kind)])


def _partition(result: SendResult) -> str:
    return f"{result.queue.broker_name}:{result.queue.queue_id}"
