"""A trace says what happened, and never stands in the way of it."""

from typing import Any

import pytest

from rocketpy.client import tracing as module
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry
from rocketpy.client.tracing import Tracer
from rocketpy.proto.trace import (
    TRACE_TOPIC,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    TransactionTrace,
    decode_traces,
)
from rocketpy.proto.wire.command import RemotingCommand
from tests.unit.client.sim import Cluster, run_sim
from tests.unit.client.steps import until

SEND = 310


def sent_traces(cluster: Cluster) -> list[tuple[dict[str, str], list[TraceRecord]]]:
    """The trace messages that were sent: their fields and their records."""
    return [
        (request.ext_fields, decode_traces(request.body.decode()))
        for request in cluster.of_code(SEND)
        if request.ext_fields["b"] == TRACE_TOPIC
    ]


def records(cluster: Cluster) -> list[TraceRecord]:
    return [record for _, found in sent_traces(cluster) for record in found]


def test_sends_are_recorded_ten_a_message() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(trace=True)
            results = [
                await producer.send("t", b"%d" % number, tag="A", keys=["k1", f"k{number}"])
                for number in range(10)
            ]
            await until(lambda: len(records(cluster)) == 10)
            ((fields, found),) = sent_traces(cluster)
            first = found[0]
            assert isinstance(first, SendTrace)
            assert [first.topic, first.msg_id, first.tag, first.keys, first.group] == [
                "t", results[0].msg_id, "A", "k1 k0", "g",
            ]  # fmt: skip
            assert (first.broker, first.body_bytes) == (cluster.world.brokers[0].address, 1)
            assert (first.offset_msg_id, first.success) == (results[0].offset_msg_id, True)
            assert fields["a"].startswith("_INNER_TRACE_PRODUCER-g-PRODUCE-")
            keys = set(fields["i"].split("KEYS\x01")[1].split("\x02")[0].split())
            assert {results[3].msg_id, "k1", "k9"} <= keys

    run_sim(main)


def test_few_records_wait_five_seconds_or_for_the_end() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(trace=True)
            await producer.send("t", b"1", delay_level=1)
            began = cluster.clock.monotonic_ms()
            await until(lambda: len(records(cluster)) == 1)
            assert cluster.clock.monotonic_ms() - began >= 4_900
            await producer.send("t", b"2")
            assert len(records(cluster)) == 1
        kinds = [
            record.message_type for record in records(cluster) if isinstance(record, SendTrace)
        ]
        assert kinds == [3, 0]

    run_sim(main)


@pytest.mark.parametrize(("outcome", "code"), [(None, 0), (Retry(), 4), (ValueError("x"), 2)])
def test_handler_is_recorded_with_its_outcome(outcome: Exception | None, code: int) -> None:
    async def main(cluster: Cluster) -> None:
        async def handler(_: ReceivedMessage) -> None:
            if outcome is not None:
                raise outcome

        async with cluster.client() as client:
            sent = await client.producer().send("t", b"x", keys="k")
            options: Any = {"group": "c", "start": "earliest", "trace": True}
            async with client.consumer("t", handler=handler, **options):
                await until(lambda: len(records(cluster)) >= 2)
        begin, end = records(cluster)[:2]
        assert isinstance(begin, ConsumeBeginTrace)
        assert isinstance(end, ConsumeEndTrace)
        assert (begin.msg_id, begin.group, begin.region) == (sent.msg_id, "c", "DefaultRegion")
        assert (end.request_id, end.msg_id, end.keys) == (begin.request_id, sent.msg_id, "k")
        assert (end.success, end.outcome) == (outcome is None, code)

    run_sim(main)


def test_trace_that_cannot_be_sent_is_dropped_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers that never answer for the trace topic cost the sends nothing."""
    monkeypatch.setattr(module, "MAX_WAITING", 50)

    async def main(cluster: Cluster) -> None:
        def lost(_: str, request: RemotingCommand) -> str | None:
            return "lost" if request.ext_fields["b"] == TRACE_TOPIC else None

        cluster.script[SEND] = [lost] * 5_000
        async with cluster.client() as client:
            producer = client.producer(trace=True)
            await producer.send("t", b"x")
            began = cluster.clock.monotonic_ms()
            for number in range(1_000):
                await producer.send("t", b"%d" % number)
            assert cluster.clock.monotonic_ms() - began < 4_000, "none waited for its trace"
            tracer = producer._tracer
            assert isinstance(tracer, Tracer)
            assert len(tracer._waiting) == 50
            assert tracer.dropped == 1_001 - 50 - 10 * module._MAX_IN_FLIGHT
        assert not tracer._waiting, "the end waits for five seconds, not for ever"
        assert tracer.dropped >= 951

    run_sim(main)


def test_trace_topic_itself_is_not_traced() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer(trace=True).send(TRACE_TOPIC, b"x")
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


def test_topics_excluded_by_brokers_are_not_traced() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("t", 1)
        cluster.put("t", b"x", properties={"TRACE_ON": "false"})
        options: Any = {"group": "c", "start": "earliest", "trace": True}
        async with (
            cluster.client() as client,
            client.consumer("t", **options) as consumer,
        ):
            async for _ in consumer:
                break
        assert records(cluster) == []

    run_sim(main)


def test_transaction_is_recorded_with_its_end() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, client.producer(trace=True) as producer:
            async with producer.transaction("t", b"x") as tx:
                pass
        half, end = records(cluster)
        assert isinstance(half, SendTrace)
        assert isinstance(end, TransactionTrace)
        assert (half.message_type, half.msg_id) == (1, end.msg_id)
        assert (end.transaction_id, end.state, end.topic) == (tx.id, "COMMIT_MESSAGE", "t")
        assert not end.from_check

    run_sim(main)
