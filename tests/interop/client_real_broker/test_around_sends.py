"""Sends that linger, middlewares, traces in properties and answers, with Apache's broker."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import rocketpy
from rocketpy.otel import Telemetry

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


async def test_sends_that_linger_have_the_places_that_the_broker_gave_them(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        plain = client.producer(timeout=30)
        first = await plain.send("lingers", b"first")
        producer = client.producer(timeout=30, linger=0.02, linger_messages=50)
        results = await asyncio.gather(
            *[
                producer.send_nowait("lingers", b"%d" % n, tag="a", keys=[f"k{n}"])
                for n in range(400)
            ],
            producer.send_nowait("lingers", b"later", delay_level=1),
            producer.send_nowait("lingers", b"ordered", order_key="o"),
        )
        await producer.send("lingers", b"last")
        places = {(each.queue, each.offset) for each in [first, *results[:400], results[401]]}
        assert len(places) == 402, "each has a place of its own"
        wanted = {each.msg_id: b"%d" % n for n, each in enumerate(results[:400])}
        found: dict[str, rocketpy.ReceivedMessage] = {}
        bodies: Counter[bytes] = Counter()
        async with client.consumer("lingers", group="lingers", start="earliest") as consumer:
            async for message in consumer:
                bodies[message.body] += 1
                found[message.id] = message
                if len(bodies) == 404:
                    break
        assert set(bodies.values()) == {1}
        assert {found[each].body for each in wanted} == set(wanted.values())
        for n, result in enumerate(results[:400]):
            message = found[result.msg_id]
            assert message.body == b"%d" % n
            assert (message.queue, message.offset) == (result.queue, result.offset)
            assert (message.tag, message.keys) == ("a", [f"k{n}"])


async def test_trace_goes_through_the_broker(namesrv: str) -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=tracers, propagator=TraceContextTextMapPropagator())
    handled: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        handled.put_nowait(dict(message.headers))

    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30, middlewares=[telemetry.sending])
        await producer.send("spanned", b"x", headers={"own": "1"})
        async with client.consumer(
            "spanned", group="spanned", start="earliest", handler=handle,
            middlewares=[telemetry.handling("spanned")],
        ):  # fmt: skip
            headers = await asyncio.wait_for(handled.get(), 60)
    assert headers["own"] == "1"
    spans = {each.name.split()[0]: each for each in exporter.get_finished_spans()}
    assert len(spans) == 2, list(spans)
    sent, processed = spans["send"], spans["process"]
    assert sent.context is not None
    assert f"{sent.context.trace_id:032x}" in headers["traceparent"]
    assert processed.parent is not None
    assert processed.parent.span_id == sent.context.span_id


async def test_answers_have_what_middlewares_give_them(namesrv: str) -> None:
    async def stamped(sending: rocketpy.Sending, proceed: rocketpy.Proceed) -> Any:
        sending.add_headers({"kind": sending.kind})
        return await proceed(sending)

    def quote(body: dict[str, int], message: rocketpy.ReceivedMessage) -> dict[str, int]:
        assert message.headers["kind"] == "request"
        return {"price": body["sku"] * 2}

    async with rocketpy.connect(namesrv) as asked, rocketpy.connect(namesrv) as asking:
        producer = asking.producer(timeout=30, serializer=rocketpy.json, middlewares=[stamped])
        await producer.send("quotes", {"sku": 0})
        async with asked.responder(
            "quotes", group="pricing", handler=quote, serializer=rocketpy.json,
            reply_middlewares=[stamped],
        ):  # fmt: skip
            reply = await producer.request("quotes", {"sku": 3}, timeout=60)
    assert reply.decode() == {"price": 6}
    assert reply.headers["kind"] == "reply"


async def test_cache_of_pulled_queues_is_bounded(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        for _ in range(4):
            await producer.send_batch("limits", [b"x" * 100] * 100)
        async with client.pull_consumer(
            group="limits", start="earliest", pull_batch=16,
            max_cached_messages=32, max_cached_messages_all=64,
        ) as consumer:  # fmt: skip
            await consumer.assign(await consumer.queues("limits"))
            got = 0
            while got < 400:
                found = await consumer.poll(max_messages=10, timeout=30)
                assert found, f"{got} of 400"
                got += len(found)
                cached = [each.cached for each in consumer.health().queues.values()]
                assert max(cached) < 32 + 16
                assert sum(cached) < 64 + 16 * len(cached)
        assert got == 400
