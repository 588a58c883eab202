"""Sends go where they should, are tried again when that helps, and tell the truth about it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from rocketpy.client.messages.message import Message
from rocketpy.client.messages.serializers import json as json_serializer
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import (
    ClosedError,
    ConnectError,
    FlowControlError,
    IllegalMessageError,
    MessageIllegalError,
    NoNameServerError,
    NoRouteError,
    RequestTimeoutError,
    TooManyInFlightError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import inflate
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import BROKER_A, NAMESRV, Cluster, pass_time, run_sim

SEND = 310


def test_send_returns_queue_and_offset() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            result = await client.producer().send(
                "t", "text", tag="a", keys=["k1", "k2"], headers={"h": "1"}
            )
        (request,) = cluster.of_code(SEND)
        assert result.status is SendStatus.SEND_OK
        assert result.queue == MessageQueue("t", "broker-a", int(request.ext_fields["e"]))
        assert result.offset_msg_id == "0A00000B00002A9F0000000000000000"
        assert request.body == b"text"
        assert request.ext_fields["a"] == "g"
        assert request.ext_fields["n"] == "broker-a"
        properties = parse_properties(request.ext_fields["i"])
        assert properties == {
            "UNIQ_KEY": result.msg_id,
            "WAIT": "true",
            "TAGS": "a",
            "KEYS": "k1 k2",
            "h": "1",
        }

    run_sim(main)


def test_queues_are_taken_in_turn() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            queues = [(await producer.send("t", b"x")).queue.queue_id for _ in range(8)]
        assert sorted(queues[:4]) == [0, 1, 2, 3]
        assert queues[4:] == queues[:4]

    run_sim(main)


def test_retry_prefers_another_broker_and_keeps_the_first_failure_as_a_note() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [14, 14, 14]
        async with cluster.client() as client:
            with pytest.raises(Exception, match="14") as caught:
                await client.producer().send("t", b"x")
        brokers = [request.ext_fields["n"] for request in cluster.of_code(SEND)]
        assert len(brokers) == 3
        assert brokers[0] != brokers[1] != brokers[2]
        notes = caught.value.__notes__
        assert len(notes) == 2
        assert notes[0].startswith(f"attempt 1 on {brokers[0]}")

    run_sim(main, brokers=2)


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500, 215, 530])
def test_codes_that_may_pass_are_tried_again(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [code]
        async with cluster.client() as client:
            result = await client.producer().send("t", b"x")
        assert result.status is SendStatus.SEND_OK
        assert len(cluster.of_code(SEND)) == 2

    run_sim(main)


@pytest.mark.parametrize("code", [13, 29, 604])
def test_codes_that_do_not_pass_fail_at_once(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [code]
        async with cluster.client() as client:
            with pytest.raises(Exception, match="scripted"):
                await client.producer().send("t", b"x")
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_less_safe_statuses_are_results(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        def weaker(address: str, request: RemotingCommand) -> RemotingCommand:
            fields = {"msgId": "OFF0", "queueId": "0", "queueOffset": "0"}
            return make_response(request, code, ext_fields=fields)

        cluster.script[SEND] = [weaker]
        async with cluster.client() as client:
            result = await client.producer().send("t", b"x")
        assert result.status == code
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


def test_flow_control_backs_off_before_the_next_attempt() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [2, 530]
        async with cluster.client() as client:
            started_ms = cluster.clock.monotonic_ms()
            await client.producer(timeout=10).send("t", b"x")
            waited_ms = cluster.clock.monotonic_ms() - started_ms
        assert 800 + 1280 <= waited_ms <= 1200 + 1920 + 20

    run_sim(main)


def test_flow_control_never_waits_beyond_the_timeout() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [2]
        async with cluster.client() as client:
            with pytest.raises(FlowControlError):
                await client.producer(timeout=0.5).send("t", b"x")
            assert cluster.elapsed_ms < 100

    run_sim(main)


@pytest.mark.parametrize(("setting", "attempts"), [("immediate", 3), ("none", 1)])
def test_flow_control_settings(setting: str, attempts: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [2, 2, 2]
        async with cluster.client() as client:
            with pytest.raises(FlowControlError):
                await client.producer(flow_control_retry=setting).send("t", b"x")  # type: ignore[arg-type]
            assert cluster.elapsed_ms < 100
        assert len(cluster.of_code(SEND)) == attempts

    run_sim(main)


def test_all_attempts_share_one_timeout() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = ["lost", "lost", "lost"]
        async with cluster.client() as client:
            producer = client.producer()
            await client._running().routes.publish_queues("t")
            started_ms = cluster.clock.monotonic_ms()
            with pytest.raises(RequestTimeoutError):
                await producer.send("t", b"x")
            assert cluster.clock.monotonic_ms() - started_ms == pytest.approx(3000, abs=5)

    run_sim(main)


def test_same_key_same_queue_and_no_failover() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            # The official hash selector's answers for eight queues on two brokers.
            for key, index in [("order-1", 6), ("order-2", 5), ("a", 1), ("", 0), ("订单42", 1)]:
                queue = (await producer.send("t", b"x", order_key=key)).queue
                assert "ab".index(queue.broker_name[-1]) * 4 + queue.queue_id == index
            cluster.script[SEND] = [14]
            with pytest.raises(Exception, match="14"):
                await producer.send("t", b"x", order_key="a")
            assert len(cluster.of_code(SEND)) == 6

    run_sim(main, brokers=2)


def test_explicit_queue_and_selector() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            queue = MessageQueue("t", "broker-b", 3)
            assert (await producer.send("t", b"x", queue=queue)).queue == queue
            assert (await producer.send("t", b"x", selector=lambda qs: qs[2])).queue.queue_id == 2
            with pytest.raises(IndexError):
                await producer.send("t", b"x", selector=lambda qs: qs[99])
            assert producer.in_flight == 0

    run_sim(main, brokers=2)


def test_large_bodies_are_compressed() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer().send("t", b"z" * 4096)
            await client.producer().send("t", b"z" * 4095)
        compressed, plain = cluster.of_code(SEND)
        assert compressed.ext_fields["f"] == "769"
        assert inflate(compressed.body, 3) == b"z" * 4096
        assert plain.ext_fields["f"] == "0"

    run_sim(main)


def test_unknown_topic_is_sent_to_the_queues_it_will_get() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            ids = {(await producer.send("fresh", b"x")).queue.queue_id for _ in range(16)}
        assert ids == {0, 1, 2, 3}

    run_sim(main, queues=8)


def test_pipelined_sends_are_bounded() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=10)
            futures = [producer.send_nowait("t", b"%d" % n) for n in range(10)]
            with pytest.raises(TooManyInFlightError):
                producer.send_nowait("t", b"one too many")
            for n in range(10, 100):
                await producer.ready()
                futures.append(producer.send_nowait("t", b"%d" % n))
                assert producer.in_flight <= 10
            results = await asyncio.gather(*futures)
            assert len({(r.queue, r.offset) for r in results}) == 100
            assert producer.in_flight == 0

    run_sim(main)


def test_pipelined_bytes_are_bounded() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight_bytes=1000)
            producer.send_nowait("t", b"x" * 1000)
            with pytest.raises(TooManyInFlightError):
                producer.send_nowait("t", b"y")
            await producer.flush()
            await producer.send_nowait("t", b"y")

    run_sim(main)


def test_cancelling_a_send_frees_its_place() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            task = asyncio.create_task(producer.send("t", b"x"))
            await pass_time(0.0015)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.flush()
            assert producer.in_flight == 0

    run_sim(main)


def test_batch_is_split_by_size_and_has_a_result_a_message() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            bodies = [b"%03d" % n + b"x" * 10_000 for n in range(10)]
            results = await client.producer(max_message_bytes=42_000).send_batch("t", bodies)
        assert len(cluster.of_code(320)) == 3
        assert len({result.msg_id for result in results}) == 10
        for body, result in zip(bodies, results, strict=True):
            assert body in cluster.record("t", result.queue.queue_id, result.offset)

    run_sim(main)


def test_batches_cannot_be_delayed() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(IllegalMessageError):
                await client.producer().send_batch("t", [b"x"], delay_level=1)
        assert not cluster.of_code(320)

    run_sim(main)


def stored(_: str, request: RemotingCommand) -> RemotingCommand:
    fields = {"msgId": "OFF0", "queueId": "0", "queueOffset": "0"}
    return make_response(request, ext_fields=fields)


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"delay_level": 3}, "DELAY", "3"),
        ({"delay": timedelta(seconds=2)}, "TIMER_DELAY_MS", "2000"),
        ({"delay": 0.5}, "TIMER_DELAY_MS", "500"),
        ({"deliver_at": datetime(2026, 1, 1, tzinfo=UTC)}, "TIMER_DELIVER_MS", "1767225600000"),
        ({"order_key": "k"}, "__SHARDINGKEY", "k"),
    ],
)
def test_options_become_properties(options: dict[str, object], name: str, value: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            cluster.script[SEND] = [stored]
            await client.producer().send("t", b"x", **options)  # type: ignore[arg-type]
        (request,) = cluster.of_code(SEND)
        assert parse_properties(request.ext_fields["i"])[name] == value

    run_sim(main)


@pytest.mark.parametrize(
    ("topic", "body", "options"),
    [
        ("t", b"", {}),
        ("t", b"x" * (4 * 1024 * 1024 + 1), {}),
        ("t", {"no": "serializer"}, {}),
        ("bad topic", b"x", {}),
        ("SCHEDULE_TOPIC_XXXX", b"x", {}),
        ("t", b"x", {"headers": {"KEYS": "mine"}}),
        ("t", b"x", {"headers": {"a": "\x01"}}),
        ("t", b"x", {"headers": {"a": "v" * 40_000}}),
        ("t", b"x", {"keys": ["a b"]}),
        ("t", b"x", {"delay_level": 19}),
        ("t", b"x", {"delay_level": 1, "delay": 1.0}),
        ("t", b"x", {"delay": -1.0}),
    ],
)
def test_illegal_messages_are_never_sent(
    topic: str, body: object, options: dict[str, object]
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            with pytest.raises(IllegalMessageError):
                await producer.send(topic, body, **options)  # type: ignore[arg-type]
            assert producer.in_flight == 0
        assert not cluster.of_code(SEND)

    run_sim(main)


def test_serializers_and_message_objects() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(serializer=json_serializer)
            await producer.send(Message(topic="t", body={"a": 1}, tag="x", headers={"h": "v"}))
            with pytest.raises(IllegalMessageError):
                await producer.send("t", object())
        (request,) = cluster.of_code(SEND)
        assert request.body == b'{"a":1}'
        assert parse_properties(request.ext_fields["i"])["TAGS"] == "x"

    run_sim(main)


def test_broker_that_is_down_does_not_stop_sends_to_the_other() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(BROKER_A)
        async with cluster.client() as client:
            producer = client.producer()
            for _ in range(8):
                assert (await producer.send("t", b"x")).queue.broker_name == "broker-b"

    run_sim(main, brokers=2)


def test_latency_fault_avoids_the_bad_broker_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(BROKER_A)
        async with cluster.client() as client:
            producer = client.producer(latency_fault=True)
            for _ in range(20):
                await producer.send("t", b"x")
        tried = [request.ext_fields["n"] for request in cluster.of_code(SEND)]
        assert tried.count("broker-a") <= 1

    run_sim(main, brokers=2)


def test_one_way_sends_reach_the_broker_and_never_raise_for_the_network() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            producer.send_oneway("t", b"x")
            cluster.script[SEND] = [None, ConnectError("gone")]
            producer.send_oneway("t", b"y")
            await producer.close()
        assert all(request.is_oneway for request in cluster.of_code(SEND))
        assert len(cluster.of_code(SEND)) == 2

    run_sim(main)


def test_closed_and_unstarted_clients_say_so() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        with pytest.raises(ClosedError):
            client.producer()
        async with client:
            producer = client.producer()
            await producer.send("t", b"x")
            await producer.close()
            with pytest.raises(ClosedError):
                await producer.send("t", b"x")
        with pytest.raises(ClosedError):
            client.producer()

    run_sim(main)


def test_no_name_server_names_the_addresses_tried() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(NAMESRV)
        async with cluster.client() as client:
            with pytest.raises(NoNameServerError, match=NAMESRV):
                await client.producer().send("t", b"x")

    run_sim(main)


def test_no_route_says_which_topic() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[105] = [17] * 100
        async with cluster.client() as client:
            with pytest.raises(NoRouteError, match="fresh"):
                await client.producer().send("fresh", b"x")

    run_sim(main)


def test_refused_message_keeps_the_brokers_words() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [13]
        async with cluster.client() as client:
            with pytest.raises(MessageIllegalError) as caught:
                await client.producer().send("t", b"x")
        assert caught.value.remark == "scripted"

    run_sim(main)
