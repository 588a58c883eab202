"""Lingering sends share a batch, and each caller gets the result of its message."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.delivery_time import delivery_time_of
from rocketpy.client.producer.batch_accumulator import can_be_batched
from rocketpy.client.sending.outgoing_message import SEND_REPLY, Outgoing
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import (
    ClosedError,
    ConfigError,
    FlowControlError,
    MessageIllegalError,
    RequestTimeoutError,
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.sys_flag import COMPRESSED, TRANSACTION_PREPARED
from tests.unit.client.sim import Cluster, pass_time, run_sim

SEND, BATCH = 310, 320
LINGER: dict[str, Any] = {"linger": 0.05}


def counts(cluster: Cluster) -> tuple[int, int]:
    """Sends and batches that brokers were asked to store."""
    return len(cluster.of_code(SEND)), len(cluster.of_code(BATCH))


def is_stored(cluster: Cluster, result: SendResult, body: bytes) -> bool:
    return body in cluster.record(result.queue.topic, result.queue.queue_id, result.offset)


def test_sends_of_one_moment_are_one_request_and_each_hears_where_its_message_is() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            began_ms = cluster.elapsed_ms
            results = await asyncio.gather(
                *(producer.send("t", b"body %d" % number, tag=f"t{number}") for number in range(9))
            )
            assert cluster.elapsed_ms - began_ms >= 50
            assert producer.in_flight == 0
        assert counts(cluster) == (0, 1)
        assert len({result.msg_id for result in results}) == 9
        assert len({result.offset_msg_id for result in results}) == 9
        first = results[0].offset
        assert [result.offset for result in results] == list(range(first, first + 9))
        for number, result in enumerate(results):
            assert is_stored(cluster, result, b"body %d" % number)
            assert is_stored(cluster, result, result.msg_id.encode())
            assert is_stored(cluster, result, b"t%d" % number)

    run_sim(main)


def test_without_linger_each_send_goes_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await asyncio.gather(*(producer.send("t", b"x") for _ in range(3)))
        assert counts(cluster) == (3, 0)

    run_sim(main)


def test_one_that_stays_alone_is_no_batch() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            await client.producer(**LINGER).send("t", b"x")
        assert counts(cluster) == (1, 0)

    run_sim(main)


def test_full_batch_does_not_wait() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(linger=0.5, linger_messages=3)
            began_ms = cluster.elapsed_ms
            await asyncio.gather(*(producer.send("t", b"x") for _ in range(6)))
            assert cluster.elapsed_ms - began_ms < 500
            assert counts(cluster) == (0, 2)
            wide = client.producer(linger=0.5, linger_bytes=4_000)
            began_ms = cluster.elapsed_ms
            futures = [wide.send_nowait("t", b"x" * 1_500) for _ in range(4)]
            await asyncio.gather(*futures[:2])
            assert cluster.elapsed_ms - began_ms < 500
            assert counts(cluster) == (0, 3)
            await asyncio.gather(*futures)
        assert counts(cluster) == (0, 4)

    run_sim(main)


def test_topics_do_not_mix() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            results = await asyncio.gather(
                *(producer.send(topic, b"x") for topic in ("t", "u", "t", "u"))
            )
        assert [result.queue.topic for result in results] == ["t", "u", "t", "u"]
        assert counts(cluster) == (0, 2)

    run_sim(main, topics=("t", "u"))


ALONE: list[dict[str, Any]] = [
    {"order_key": "k"},
    {"selector": lambda queues: queues[0]},
    {"delay": 1},
    {"delay_level": 1},
    {"timeout": 2},
    {"retries": 1},
    {"properties": {"DELAY": "1"}},
]


def test_those_of_a_queue_wait_for_each_other_and_keep_their_order() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            await producer.send("t", b"warm", timeout=3)
            cluster.requests.clear()
            queues = [MessageQueue("t", "broker-a", number) for number in (1, 2)]
            futures = [
                producer.send_nowait("t", b"body %d" % number, queue=queues[number % 2])
                for number in range(8)
            ]
            futures += [producer.send_nowait("t", b"any") for _ in range(2)]
            results = await asyncio.gather(*futures)
        assert counts(cluster) == (0, 3)
        assert [each.queue for each in results[:8]] == queues * 4
        for mine in (results[:8:2], results[1:8:2]):
            assert [each.offset - mine[0].offset for each in mine] == [0, 1, 2, 3]
        for number, result in enumerate(results[:8]):
            assert is_stored(cluster, result, b"body %d" % number)

    run_sim(main)


def test_linger_send_to_a_wrong_queue_fails_alone() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            good = MessageQueue("t", "broker-a", 1)
            outcomes = await asyncio.gather(
                producer.send("t", b"1", queue=good),
                producer.send("t", b"2", queue=good),
                producer.send("u", b"x", queue=good),
                producer.send("t", b"x", queue=MessageQueue("t", "absent", 1)),
                return_exceptions=True,
            )
            assert producer.in_flight == 0
        assert [type(each) for each in outcomes[:2]] == [SendResult, SendResult]
        assert all(isinstance(each, Exception) for each in outcomes[2:])
        assert counts(cluster) == (0, 1)

    run_sim(main, topics=("t", "u"))


def test_batch_of_one_queue_is_not_repeated_elsewhere() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[BATCH] = [14]
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            queue = MessageQueue("t", "broker-a", 1)
            sends = (producer.send("t", b"x", queue=queue) for _ in range(2))
            errors = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(error, RocketPyError) for error in errors)
        assert counts(cluster) == (0, 1)

    run_sim(main)


@pytest.mark.parametrize("options", ALONE, ids=lambda options: next(iter(options)))
def test_message_that_cannot_be_batched_is_sent_alone_at_once(options: dict[str, Any]) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(linger=0.5)
            await producer.send("t", b"warm", timeout=3)
            cluster.requests.clear()
            began_ms = cluster.elapsed_ms
            await asyncio.gather(*(producer.send("t", b"x", **options) for _ in range(2)))
            assert cluster.elapsed_ms - began_ms < 500
        assert counts(cluster) == (2, 0)

    run_sim(main)


def test_compressed_bodies_and_transactions_go_alone() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(group="shop") as client:
            producer = client.producer(**LINGER, tx_checker=lambda _: rocketpy.TxState.ROLLBACK)
            await asyncio.gather(*(producer.send("t", b"x" * 5_000) for _ in range(2)))
            assert counts(cluster) == (2, 0)
            async with producer.transaction("t", b"half"):
                pass
        assert counts(cluster) == (3, 0)

    run_sim(main)


def test_batches_and_a_send_at_once_store_the_bodies_of_each_caller() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            one, two, single = await asyncio.gather(
                producer.send_batch("t", [b"x"]),
                producer.send_batch("t", [b"y1", b"y2"]),
                producer.send("t", b"z"),
            )
            stored = {message.id: message.body async for message in client.read("t")}
        sent = zip([*one, *two, single], [b"x", b"y1", b"y2", b"z"], strict=True)
        assert stored == {result.msg_id: body for result, body in sent}
        assert counts(cluster) == (1, 2)

    run_sim(main)


@pytest.mark.parametrize(
    "changes",
    [
        {"code": BATCH},
        {"code": SEND_REPLY},
        {"sys_flag": TRANSACTION_PREPARED},
        {"sys_flag": COMPRESSED},
        {"retries": (1, 16)},
        {"moment": delivery_time_of(1, None, 0)},
    ],
    ids=["batch", "reply", "half", "compressed", "redelivery", "delayed"],
)
def test_can_be_batched_with_a_message_of_another_kind_returns_false(
    changes: dict[str, Any],
) -> None:
    plain = Outgoing(b"x", "", 0, 7, "ID")
    assert can_be_batched("t", plain, {})
    assert not can_be_batched("t", plain._replace(**changes), {})


def test_send_alone_to_a_queue_does_not_overtake_the_lingering_ones() -> None:
    big = b"big" * 2_000  # compressed, so it is sent alone

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            await producer.send("t", b"warm", timeout=3)
            queue = MessageQueue("t", "broker-a", 1)
            sends = [
                producer.send_nowait("t", b"1", queue=queue),
                producer.send_nowait("t", b"2", queue=queue),
                producer.send_nowait("t", big, queue=queue),
                producer.send_nowait("t", b"4", queue=queue),
                producer.send_nowait("t", b"5", queue=queue, timeout=3),
                producer.send_nowait("t", b"6", queue=queue),
            ]
            await producer.send_batch("t", [b"7", b"8"], queue=queue)
            await asyncio.gather(*sends)
            found = [
                m.body async for m in client.read("t") if m.queue == queue and m.body != b"warm"
            ]
        assert found == [b"1", b"2", big, b"4", b"5", b"6", b"7", b"8"]

    run_sim(main)


def test_in_a_namespace_too() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(namespace="n") as client:
            producer = client.producer(**LINGER)
            results = await asyncio.gather(*(producer.send("t", b"x") for _ in range(3)))
        assert {result.queue.topic for result in results} == {"n%t"}
        assert counts(cluster) == (0, 1)

    run_sim(main, topics=("n%t",))


def test_each_caller_of_a_batch_gets_a_copy_of_the_error() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[BATCH] = [215, 215]
        async with cluster.client() as client:
            producer = client.producer(**LINGER, retries=0)
            sends = (producer.send("t", b"x") for _ in range(3))
            errors = await asyncio.gather(*sends, return_exceptions=True)
            assert producer.in_flight == 0
        assert [type(error) for error in errors] == [FlowControlError] * 3
        assert len({id(error) for error in errors}) == 3
        for error in errors:
            assert isinstance(error, FlowControlError)
            assert error.retry_after > 0
            assert error.code == 215

    run_sim(main)


def test_batch_is_tried_again_as_any_send_and_notes_say_so() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[BATCH] = [14, 14, None, 14, 14, 14]
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            await asyncio.gather(*(producer.send("t", b"x") for _ in range(2)))
            assert counts(cluster) == (0, 3)
            sends = (producer.send("t", b"x") for _ in range(2))
            errors = await asyncio.gather(*sends, return_exceptions=True)
        for error in errors:
            assert isinstance(error, RocketPyError)
            assert len(error.__notes__) == 2

    run_sim(main)


def test_message_that_the_broker_does_not_take_costs_the_others_nothing() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[BATCH] = [13]
        cluster.script[SEND] = [None, 13]
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            sends = (producer.send("t", b"body %d" % number) for number in range(3))
            good, bad, other = await asyncio.gather(*sends, return_exceptions=True)
            assert producer.in_flight == 0
        assert isinstance(bad, MessageIllegalError)
        for body, result in ((b"body 0", good), (b"body 2", other)):
            assert isinstance(result, SendResult)
            assert is_stored(cluster, result, body)
        assert counts(cluster) == (3, 1)

    run_sim(main)


def test_flush_and_close_do_not_wait_for_the_time() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(linger=25, timeout=100)
            await producer.send("t", b"warm", timeout=3)
            began_ms = cluster.elapsed_ms
            futures = [producer.send_nowait("t", b"x") for _ in range(3)]
            await producer.flush()
            assert all(future.done() for future in futures)
            futures = [producer.send_nowait("t", b"x") for _ in range(3)]
            await producer.close()
            assert all(future.done() for future in futures)
            assert cluster.elapsed_ms - began_ms < 1_000
            with pytest.raises(ClosedError):
                await producer.send("t", b"x")
        assert counts(cluster) == (1, 2)

    run_sim(main)


def test_cancelled_lingering_message_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**LINGER)
            left, kept = (producer.send_nowait("t", body) for body in (b"left", b"kept"))
            left.cancel()
            result = await kept
            assert is_stored(cluster, result, b"kept")
            assert producer.in_flight == 0
            gone = producer.send_nowait("t", b"gone")
            gone.cancel()
            await producer.flush()
            assert producer.in_flight == 0
        assert counts(cluster) == (1, 0)

    run_sim(main)


def test_cancelled_message_of_a_sent_batch_leaves_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(linger=0.05)
            futures = [producer.send_nowait("t", b"body %d" % number) for number in range(3)]
            await pass_time(0)
            producer._accumulator.send_all()  # type: ignore[union-attr]
            futures[1].cancel()
            first, _, last = await asyncio.gather(*futures, return_exceptions=True)
            assert isinstance(first, SendResult)
            assert isinstance(last, SendResult)
            assert last.offset == first.offset + 2
            assert producer.in_flight == 0

    run_sim(main)


def test_lingering_messages_count_in_flight_and_the_window_advances() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(linger=0.05, max_in_flight=4)
            sends = [asyncio.create_task(producer.send("t", b"x")) for _ in range(10)]
            await pass_time(0)
            assert producer.in_flight == 4
            results = await asyncio.gather(*sends)
            assert len({(result.queue, result.offset) for result in results}) == 10
        assert counts(cluster) == (0, 3)

    run_sim(main)


def test_batch_has_its_whole_time_although_one_waited_for_room() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = ["lost"]
        cluster.script[BATCH] = ["lost"]
        async with cluster.client() as client:
            producer = client.producer(linger=0.05, max_in_flight=2, timeout=3, retries=0)
            began_ms = cluster.elapsed_ms
            first = [producer.send_nowait("t", b"x") for _ in range(2)]
            late = asyncio.create_task(producer.send("t", b"late"))
            outcomes = await asyncio.gather(*first, late, return_exceptions=True)
            assert 6_000 <= cluster.elapsed_ms - began_ms <= 6_200
        assert isinstance(outcomes[0], RequestTimeoutError)
        assert isinstance(outcomes[2], RequestTimeoutError)

    run_sim(main)


def test_closing_client_waits_for_what_lingers() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            futures = [client.producer(linger=0.5).send_nowait("t", b"x") for _ in range(2)]
        results = await asyncio.gather(*futures)
        assert all(is_stored(cluster, result, b"x") for result in results)

    run_sim(main)


@pytest.mark.parametrize("linger", [-1, 0.8, timedelta(seconds=1), "soon"])
def test_time_that_cannot_be_is_refused(linger: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="linger"):
                client.producer(linger=linger)

    run_sim(main)
