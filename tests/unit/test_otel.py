"""Spans and measurements of sends and handlers, and traces that go with messages."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rocketpy import Message, ReceivedMessage
from rocketpy.errors import ServiceNotAvailableError
from rocketpy.otel import Telemetry
from tests.unit.client.sim import Cluster, run_sim
from tests.unit.client.steps import until

SEND = 310


class Kit:
    """A telemetry whose spans and measurements stay in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.telemetry = Telemetry(
            tracer_provider=self.tracers,
            meter_provider=MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False),
            propagator=TraceContextTextMapPropagator(),
        )

    def span(self, name: str) -> ReadableSpan:
        (found,) = [each for each in self.exporter.get_finished_spans() if each.name == name]
        return found

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.mark.parametrize("as_function", [False, True])
def test_trace_continues_from_send_to_handler(*, as_function: bool) -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit()
        tracer = kit.tracers.get_tracer("test")
        done: list[bool] = []

        def work() -> None:
            with tracer.start_as_current_span("work"):
                done.append(True)

        async def handle(_: ReceivedMessage) -> None:
            work()

        def handle_in_a_thread(_: ReceivedMessage) -> None:
            work()

        async with cluster.client() as client:
            producer = client.producer(middlewares=[kit.telemetry.sending])
            async with client.consumer(
                "t",
                group="c",
                handler=handle_in_a_thread if as_function else handle,
                middlewares=[kit.telemetry.handling("c")],
            ):
                with tracer.start_as_current_span("order"):
                    result = await producer.send("t", b"four", headers={"own": "1"})
                await until(lambda: kit.points("messaging.process.duration"))
        order, sent = kit.span("order"), kit.span("send t")
        processed, worked = kit.span("process t"), kit.span("work")
        assert len({each.context.trace_id for each in (order, sent, processed, worked)}) == 1
        assert sent.parent == order.context
        assert processed.parent is not None
        assert processed.parent.span_id == sent.context.span_id
        assert worked.parent is not None
        assert worked.parent.span_id == processed.context.span_id
        assert sent.kind is trace.SpanKind.PRODUCER
        assert processed.kind is trace.SpanKind.CONSUMER
        assert sent.attributes is not None
        assert sent.attributes["messaging.message.id"] == result.msg_id
        assert dict(processed.attributes or {}) == {
            "messaging.system": "rocketmq",
            "messaging.destination.name": "t",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": "c",
            "messaging.message.id": result.msg_id,
            "messaging.message.body.size": 4,
        }

    run_sim(main, queues=1)


def test_batch_is_one_span_and_its_messages_lead_to_it() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit()
        calls: list[int] = []

        async def handle(messages: list[ReceivedMessage]) -> None:
            calls.append(len(messages))

        async with cluster.client() as client:
            producer = client.producer(middlewares=[kit.telemetry.sending])
            await producer.send_batch("t", [b"a", Message(topic="t", body=b"b", tag="x")])
            async with client.consumer(
                "t",
                group="c",
                start="earliest",
                batch=8,
                handler=handle,
                middlewares=[kit.telemetry.handling("c")],
            ):
                await until(lambda: kit.points("messaging.process.duration"))
        assert calls == [2]
        batch, processed = kit.span("batch t"), kit.span("process t")
        assert processed.parent is None
        assert [link.context.span_id for link in processed.links] == [batch.context.span_id] * 2
        assert (batch.attributes or {})["messaging.batch.message_count"] == 2
        (sent,) = kit.points("messaging.client.sent.messages")
        (consumed,) = kit.points("messaging.client.consumed.messages")
        assert (sent.value, consumed.value) == (2, 2)

    run_sim(main, queues=1)


def test_failures_and_retries_are_counted_with_their_reason() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit()
        cluster.script[SEND] = [14, 14]
        async with cluster.client() as client:
            producer = client.producer(
                middlewares=[kit.telemetry.sending], on_retry=kit.telemetry.retried, retries=1
            )
            with pytest.raises(ServiceNotAvailableError):
                await producer.send("t", b"x")
        sent = kit.span("send t")
        assert sent.status.status_code is trace.StatusCode.ERROR
        assert (sent.attributes or {})["error.type"] == "ServiceNotAvailableError"
        (retried,) = kit.points("rocketpy.client.send.retries")
        assert retried.value == 1
        assert retried.attributes["error.type"] == "ServiceNotAvailableError"
        (took,) = kit.points("messaging.client.operation.duration")
        assert took.count == 1
        assert took.attributes["error.type"] == "ServiceNotAvailableError"

    run_sim(main)


def test_processing_block_of_a_loop_makes_a_span() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit()
        cluster.put("t", b"x")
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest") as consumer:
                message = await consumer.getone(timeout=20)
                assert message is not None

                async def work() -> None:
                    with kit.telemetry.processing([message], "c"):
                        raise KeyError("x")

                with pytest.raises(KeyError):
                    await work()
        span = kit.span("process t")
        assert span.parent is None, "nobody sent a context along"
        assert (span.attributes or {})["error.type"] == "KeyError"

    run_sim(main, queues=1)


def test_opentelemetry_is_imported_by_otel_only() -> None:
    code = "import rocketpy, sys; rocketpy.Client; assert 'opentelemetry' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
