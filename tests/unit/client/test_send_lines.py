"""Thousands of calls at once: they wait in line, in their order, and their time does not pass."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import (
    ConnectError,
    ConnectionLostError,
    NotSentError,
    RequestTimeoutError,
    TooManyInFlightError,
)
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sends import SEND, Sends, first_on, freeze, warm
from tests.unit.client.sim import BROKER_A, BROKER_B, Cluster, pass_time, run_sim

ROUTE, HEARTBEAT = 105, 34
QUEUE = MessageQueue("t", "broker-a", 0)


def test_gathered_sends_to_a_new_topic_are_all_stored() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.latency_ms = 50
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=20, timeout=1)
            sends = Sends(cluster)
            results = await asyncio.gather(
                *(producer.send("fresh", b"%d" % number) for number in range(1_000))
            )
            assert len({(each.queue, each.offset) for each in results}) == 1_000
            assert sends.took_ms > 2_000, "far longer than the time of one send"
            assert producer.stats.failed == 0
        assert len(cluster.of_code(ROUTE)) <= 4, "one look-up for all"

    run_sim(main)


@pytest.mark.parametrize("linger", [0, 0.01])
def test_gathered_sends_to_one_queue_keep_their_order(linger: float) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=7, linger=linger)
            results = await asyncio.gather(
                *(producer.send("t", b"x", queue=QUEUE) for _ in range(100))
            )
            assert [each.offset for each in results] == list(range(100))

    run_sim(main)


@pytest.mark.parametrize(
    "options", [{"order_key": "a"}, {"delay": 1}, {"delay_level": 1}, {"timeout": 0.5}]
)
def test_gathered_sends_with_options_are_all_stored(options: Any) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.latency_ms = 50
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=10, timeout=0.5)
            results = await asyncio.gather(
                *(producer.send("t", b"x", **options) for _ in range(200))
            )
            assert len(results) == 200

    run_sim(main, properties={"timerWheelEnable": "true"})


def test_gathered_batches_and_transactions_are_all_stored() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.latency_ms = 50
        async with cluster.client() as client:
            producer = client.producer(group="tx", max_in_flight=5, timeout=0.5)
            batches = await asyncio.gather(
                *(producer.send_batch("t", [b"a", b"b"]) for _ in range(100))
            )
            assert all(len(each) == 2 for each in batches)

            async def transact() -> bool:
                async with producer.transaction("t", b"x") as tx:
                    pass
                return tx.is_confirmed

            assert all(await asyncio.gather(*(transact() for _ in range(100))))

    run_sim(main)


def test_gathered_requests_are_all_answered() -> None:
    async def main(cluster: Cluster) -> None:
        async def double(message: ReceivedMessage) -> bytes:
            await pass_time(0.05)
            return message.body * 2

        async with cluster.client() as client, cluster.client() as other:
            async with other.responder("t", group="doubles", handler=double, concurrency=10):
                producer = client.producer(max_in_flight=20, timeout=1)
                answers = await asyncio.gather(
                    *(producer.request("t", b"%d" % number) for number in range(500))
                )
            assert [each.body for each in answers] == [b"%d" % n * 2 for n in range(500)]
        asking = {address for address, each in cluster.requests if each.code == HEARTBEAT}
        assert len(cluster.of_code(HEARTBEAT)) <= 4 * len(asking), "one heartbeat for all"

    run_sim(main)


def test_gathered_large_bodies_stay_within_the_bytes_in_flight() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight_bytes=100_000, compress_over_bytes=0)
            most = 0

            async def send(number: int) -> None:
                nonlocal most
                await producer.send("t", b"x" * (40_000 if number % 2 else 10))
                most = max(most, producer.stats.in_flight_bytes)

            await asyncio.gather(*(send(number) for number in range(200)))
            assert most <= 140_000, "the last send to enter may exceed the limit"

    run_sim(main)


def test_gathered_sends_through_middlewares_are_all_stored() -> None:
    async def main(cluster: Cluster) -> None:
        async def around(sending: Any, proceed: Any) -> Any:
            return await proceed(sending)

        cluster.latency_ms = 50
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=10, timeout=0.5, middlewares=[around])
            await asyncio.gather(*(producer.send("t", b"x") for _ in range(300)))
            futures = []
            for _ in range(300):
                await producer.ready()
                futures.append(producer.send_nowait("t", b"y"))
            await asyncio.gather(*futures)
            assert producer.stats.begun == 600

    run_sim(main)


def test_cancelled_call_leaves_the_line_and_is_never_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=1)
            await warm(producer, cluster)
            cluster.latency_ms = 100
            tasks = [asyncio.create_task(producer.send("t", body)) for body in (b"a", b"no", b"b")]
            await pass_time(0.01)
            tasks[1].cancel()
            await asyncio.wait(tasks)
            assert [each.body for each in cluster.of_code(SEND)] == [b"a", b"b"]
            assert producer.in_flight == 0

    run_sim(main)


@pytest.mark.parametrize("has_middleware", [False, True])
def test_closing_producer_fails_the_calls_in_line_as_not_sent(has_middleware: bool) -> None:
    async def main(cluster: Cluster) -> None:
        async def around(sending: Any, proceed: Any) -> Any:
            return await proceed(sending)

        async with cluster.client() as client:
            middlewares = [around] if has_middleware else []
            producer = client.producer(max_in_flight=2, middlewares=middlewares)
            await warm(producer, cluster)
            cluster.latency_ms = 100
            tasks = [asyncio.create_task(producer.send("t", b"x")) for _ in range(5)]
            await pass_time(0.01)
            await producer.close()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert [isinstance(each, NotSentError) for each in outcomes] == [False] * 2 + [True] * 3
            assert len(cluster.of_code(SEND)) == 2

    run_sim(main)


def test_calls_in_line_fail_as_not_sent_when_brokers_stay_frozen() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=1, timeout=3)
            await warm(producer, cluster)
            freeze(cluster, 0)
            sends = Sends(cluster)
            outcomes = await asyncio.gather(
                *(producer.send("t", b"x") for _ in range(100)), return_exceptions=True
            )
            assert all(isinstance(each, RequestTimeoutError | NotSentError) for each in outcomes)
            assert isinstance(outcomes[-1], NotSentError)
            assert sends.took_ms <= 70_000, "a minute without progress, and not five"
            cluster.world.network.heal()

    run_sim(main)


def test_calls_in_line_wait_for_a_broker_as_long_as_sends_in_flight() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=1, timeout=300)
            await warm(producer, cluster)
            cluster.down.add(BROKER_A)
            asyncio.get_running_loop().call_later(200, cluster.down.clear)
            results = await asyncio.gather(*(producer.send("t", b"x") for _ in range(5)))
            assert len(results) == 5

    run_sim(main)


def test_send_nowait_beyond_the_limit_says_what_to_do() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=3)
            for _ in range(3):
                producer.send_nowait("t", b"x")
            for call in (producer.send_nowait, producer.send_oneway):
                with pytest.raises(TooManyInFlightError) as caught:
                    call("t", b"one too many")
                assert "3 sends" in str(caught.value)
                assert "max_in_flight=3" in str(caught.value)
                assert "await producer.ready()" in str(caught.value)
                assert isinstance(caught.value, NotSentError)

    run_sim(main)


# ---- what was never sent, and what may be stored


def test_broker_that_takes_no_connection_in_time_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(timeout=1)
            await client._running().routes.publish_queues("t")
            freeze(cluster, 0, 1)
            with pytest.raises(NotSentError) as caught:
                await producer.send("t", b"x")
            assert not isinstance(caught.value, TimeoutError)
            cluster.world.network.heal()

    run_sim(main, brokers=2)


def test_attempt_without_an_answer_outweighs_a_later_refusal() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            freeze(cluster, 0)
            cluster.down.add(BROKER_B)
            first_on(producer, "broker-a")
            # The silent connection may be closed first. Both errors say that it may be stored.
            with pytest.raises((RequestTimeoutError, ConnectionLostError)) as caught:
                await producer.send("t", b"x")
            assert any(BROKER_B in note for note in caught.value.__notes__)
            cluster.world.network.heal()

    run_sim(main, brokers=2)


def test_brokers_that_refuse_connections_are_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(timeout=0.5)
            await warm(producer, cluster)
            cluster.down |= {BROKER_A, BROKER_B}
            with pytest.raises(NotSentError) as caught:
                await producer.send("t", b"x")
            assert isinstance(caught.value, ConnectError)

    run_sim(main, brokers=2)


def test_delayed_send_whose_broker_never_says_its_version_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[30] = ["lost"] * 9
        async with cluster.client() as client:
            with pytest.raises(NotSentError):
                await client.producer(timeout=0.5).send("t", b"x", delay=5)
        assert not cluster.of_code(SEND)

    run_sim(main)


def test_request_whose_brokers_do_not_know_the_client_is_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[HEARTBEAT] = ["lost"] * 9
        async with cluster.client() as client:
            with pytest.raises(NotSentError, match="was not sent"):
                await client.producer().request("t", b"?", timeout=0.5)
        assert not cluster.of_code(SEND)

    run_sim(main)


def test_batch_parts_that_were_not_tried_are_not_sent() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[320] = [None, 13]
        async with cluster.client() as client:
            producer = client.producer(max_message_bytes=2_000)
            with pytest.raises(Exception, match="1 of 3") as caught:
                await producer.send_batch("t", [b"x" * 1_200] * 3)
            outcomes: list[object] = caught.value.outcomes  # type: ignore[attr-defined]
            assert isinstance(outcomes[2], NotSentError)

    run_sim(main)
