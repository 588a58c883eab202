"""Retries in virtual time: order of brokers and pauses."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.sending.result import SendResult, SendStatus
from rocketpy.errors import (
    BrokerError,
    ConnectError,
    IllegalMessageError,
    NoNameServerError,
    NoRouteError,
    NotSentError,
    RequestTimeoutError,
    SystemFaultError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import make_response
from rocketpy.remoting.config import RemotingClientConfig
from tests.unit.client.pair import Pair
from tests.unit.client.sends import SEND, Sends, first_on, freeze, stored_with, warm
from tests.unit.client.sim import BROKER_A, BROKER_B, Cluster, pass_time, run_sim

ROUTE = 105
QUEUE_A = MessageQueue("t", "broker-a", 0)


# ---- one of two brokers is bad


def test_frozen_broker_costs_its_share_then_the_other_is_tried() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            freeze(cluster, 0)
            sends = Sends(cluster)
            result = await producer.send("t", b"x")
            assert result.queue.broker_name == "broker-b"
            assert sends.tried == [(0, "broker-a"), (10, "broker-b")]
            cluster.world.network.heal()

    run_sim(main, brokers=2)


def test_slow_broker_s_response_counts_after_its_share() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            freeze(cluster, 0, 1)  # both are slow
            sends = Sends(cluster)
            future = producer.send_nowait("t", b"x")
            await pass_time(1.4)
            assert sends.tried == [(0, "broker-a"), (10, "broker-b")]
            cluster.world.network.heal()
            await future
            assert sends.took_ms < 1500
            assert producer.in_flight == 0

    run_sim(main, brokers=2)


def test_only_broker_has_all_the_time_and_gets_the_message_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            freeze(cluster, 0)
            future = producer.send_nowait("t", b"x")
            await pass_time(2.9)
            cluster.world.network.heal()
            await future
        assert len(cluster.of_code(SEND)) == 1
        assert cluster.world.message_count("t") == 9

    run_sim(main)


@pytest.mark.parametrize(("thaws", "took_ms"), [(True, 2000), (False, 3000)])
def test_last_attempt_s_error_waits_for_earlier_ones(thaws: bool, took_ms: int) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=1)
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            freeze(cluster, 0)
            cluster.script[SEND] = [None, 1]
            sends = Sends(cluster)
            future = producer.send_nowait("t", b"x")
            await pass_time(2)
            assert not future.done()
            if thaws:
                cluster.world.network.heal()
                assert (await future).queue.broker_name == "broker-a"
            else:
                with pytest.raises(SystemFaultError) as caught:
                    await future
                assert "attempt 1 on broker-a" in caught.value.__notes__[0]
                cluster.world.network.heal()
            assert sends.took_ms == pytest.approx(took_ms, abs=20)
            assert sends.tried_brokers == ["broker-a", "broker-b"]
            assert producer.in_flight == 0

    run_sim(main, brokers=2)


def test_send_cancelled_while_it_listens_leaves_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=1, timeout=60, attempt_timeout=1)
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            freeze(cluster, 0)
            cluster.script[SEND] = [None, 1]
            future = producer.send_nowait("t", b"x")
            await pass_time(2)
            future.cancel()
            await pass_time(0)
            assert producer.in_flight == 0
            cluster.world.network.heal()

    run_sim(main, brokers=2)


def test_refused_connection_costs_no_attempt_and_no_time() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(BROKER_A)
        async with cluster.client() as client:
            producer = client.producer(retries=0)
            for _ in range(8):
                sends = Sends(cluster)
                assert (await producer.send("t", b"x")).queue.broker_name == "broker-b"
                assert sends.took_ms < 50

    run_sim(main, brokers=2)


def test_retries_skip_failed_brokers() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=4)
            await warm(producer, cluster)
            cluster.script[SEND] = [14, 14, 14, 14]
            sends = Sends(cluster)
            await producer.send("t", b"x")
        first, second, third, fourth, fifth = sends.tried_brokers
        assert {first, second, third} == {"broker-a", "broker-b", "broker-c"}
        assert fourth != third, "when all have failed, any but the last one"
        assert fifth != fourth

    run_sim(main, brokers=3)


# ---- no broker can be reached


@pytest.mark.parametrize("retries", [0, 2])
def test_restart_of_two_seconds_is_bridged(retries: int) -> None:
    async def main(cluster: Cluster) -> list[SendResult]:
        async with cluster.client() as client:
            producer = client.producer(retries=retries)
            await warm(producer, cluster)
            cluster.world.brokers[0].kill()
            await pass_time(0.05)  # a request that is under way when it dies is an attempt
            futures = []
            for _ in range(40):
                futures.append(producer.send_nowait("t", b"x"))
                await pass_time(0.05)
            await cluster.world.brokers[0].start()
            return list(await asyncio.gather(*futures))

    for _ in range(3):
        assert len(run_sim(main)) == 40


def test_broker_that_stays_away_is_an_error_when_the_time_is_over() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.down.add(BROKER_A)
            sends = Sends(cluster)
            with pytest.raises(ConnectError) as caught:
                await producer.send("t", b"x")
            assert sends.took_ms == 3000
            # Short pauses for a second, then longer ones.
            often, later = [0, 0, 0, *range(1, 11)], [12, 14, 18, 25, 29]
            assert [at for at, _ in sends.tried] == often + later
            assert len(caught.value.__notes__) == 8
            assert producer.in_flight == 0

    run_sim(main)


def test_notes_of_a_long_wait_are_bounded() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.down.add(BROKER_A)
            with pytest.raises(ConnectError) as caught:
                await producer.send("t", b"x", timeout=600)
            assert len(caught.value.__notes__) == 8

    run_sim(main)


def test_first_of_two_brokers_to_come_back_gets_the_message() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            for broker in cluster.world.brokers:
                broker.kill()
            future = producer.send_nowait("t", b"x")
            await pass_time(1)
            await cluster.world.brokers[1].start()
            assert (await future).queue.broker_name == "broker-b"
            await cluster.world.brokers[0].start()

    run_sim(main, brokers=2)


def test_connections_lost_in_the_middle_count_as_attempts() -> None:
    """A broker that takes a request and dies may have stored it: `retries=0` means once."""

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=0)
            await warm(producer, cluster)
            freeze(cluster, 0)
            future = producer.send_nowait("t", b"x")
            await pass_time(0.2)
            cluster.world.brokers[0].kill()
            cluster.world.network.heal()
            with pytest.raises(Exception, match="closed"):
                await future
            await cluster.world.brokers[0].start()
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


def test_send_cancelled_without_brokers_leaves_the_window_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.down.add(BROKER_A)
            future = producer.send_nowait("t", b"x")
            await pass_time(0.5)
            tried = len(cluster.of_code(SEND))
            future.cancel()
            await pass_time(0)
            assert producer.in_flight == 0
            await pass_time(5)
            assert len(cluster.of_code(SEND)) == tried

    run_sim(main)


def test_chosen_queue_is_waited_for_unless_later_messages_could_overtake() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.down.add(BROKER_A)
            with pytest.raises(ConnectError):
                await producer.send_nowait("t", b"x", queue=QUEUE_A)
            assert len(cluster.of_code(SEND)) == 1
            sending = asyncio.create_task(producer.send("t", b"x", queue=QUEUE_A))
            await pass_time(1)
            cluster.down.clear()
            assert (await sending).queue == QUEUE_A
            sent = cluster.of_code(SEND)
            assert {request.ext_fields["n"] for request in sent} == {"broker-a"}

    run_sim(main, brokers=2)


def test_chosen_queue_gets_one_attempt() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await warm(producer, cluster)
            cluster.script[SEND] = ["lost"]
            sends = Sends(cluster)
            with pytest.raises(RequestTimeoutError):
                await producer.send("t", b"x", queue=QUEUE_A)
            assert sends.took_ms == pytest.approx(3000, abs=2)
            assert len(sends.tried) == 1

    run_sim(main, brokers=2)


# ---- routes


def test_time_covers_the_look_up_of_the_route() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[ROUTE] = ["lost"] * 9
        async with cluster.client(api_timeout=10) as client:
            sends = Sends(cluster)
            producer = client.producer()
            with pytest.raises(NotSentError, match="t ran out of time: no name server"):
                await producer.send("t", b"x")
            assert sends.took_ms == 3000
            assert producer.in_flight == 0
        assert not cluster.of_code(SEND)

    run_sim(main)


@pytest.mark.parametrize("failure", [17, ConnectError("down"), 1])
def test_route_that_comes_later_is_waited_for(failure: Any) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[ROUTE] = [failure] * 4
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main)


@pytest.mark.parametrize(
    ("failure", "error"), [(17, NoRouteError), (ConnectError("down"), NoNameServerError)]
)
def test_route_that_never_comes_says_why(failure: Any, error: type[Exception]) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[ROUTE] = [failure] * 100
        async with cluster.client() as client:
            sends = Sends(cluster)
            producer = client.producer()
            futures = [producer.send_nowait("t", b"x") for _ in range(3)]
            for future in futures:
                with pytest.raises(error):
                    await future
            assert sends.took_ms == pytest.approx(3000, abs=20)
            assert producer.in_flight == 0

    run_sim(main)


def test_waiting_in_line_does_not_count_as_time() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(max_in_flight=1)
            await warm(producer, cluster)
            freeze(cluster, 0)
            first = producer.send_nowait("t", b"x", timeout=2)
            sends = Sends(cluster)
            with pytest.raises(RequestTimeoutError):
                await producer.send("t", b"y")
            assert sends.took_ms == pytest.approx(2000 + 3000, abs=60)
            with pytest.raises(RequestTimeoutError):
                await first
            cluster.world.network.heal()

    run_sim(main)


# ---- what must not be repeated


@pytest.mark.parametrize("answer", ["lost", 1, 2, 14])
def test_without_retries_nothing_is_repeated_that_may_have_arrived(answer: Any) -> None:
    """Options of half messages: only a refused connection is retried."""

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retries=0)
            await warm(producer, cluster)
            cluster.down |= {BROKER_A, BROKER_B}
            sending = asyncio.create_task(producer.send("t", b"x"))
            await pass_time(1)
            refused = len(cluster.of_code(SEND))
            assert refused > 2
            cluster.down.clear()
            cluster.script[SEND] = [answer]
            with pytest.raises((RequestTimeoutError, BrokerError)):
                await sending
            assert len(cluster.of_code(SEND)) == refused + 1

    run_sim(main, brokers=2)


def test_request_larger_than_a_frame_is_no_reason_to_try_again() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(remoting=RemotingClientConfig(max_frame_bytes=10_000)) as client:
            producer = client.producer(compress_over_bytes=0)
            await warm(producer, cluster)
            for send in (producer.send, producer.send_nowait):
                cluster.requests.clear()
                with pytest.raises(IllegalMessageError, match="exceeds the limit of a frame"):
                    await send("t", bytes(20_000))
                assert len(cluster.requests) == 1, "it is tried once, and no route is asked for"
            with pytest.raises(IllegalMessageError):
                await producer.send_batch("t", [bytes(6_000)] * 2)
            producer.send_oneway("t", bytes(20_000))
            await producer.flush()
            assert producer.lost_oneway == 1
            assert (await producer.send("t", bytes(9_000))).queue.topic == "t"

    run_sim(main, brokers=2)


def test_message_that_is_not_confirmed_goes_to_another_broker_if_wanted() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retry_when_not_ok=True)
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            cluster.script[SEND] = [stored_with(12)]
            result = await producer.send("t", b"x")
            assert result.status is SendStatus.SEND_OK
            assert result.queue.broker_name == "broker-b"
            assert producer.stats.retried == 1

    run_sim(main, brokers=2)


@pytest.mark.parametrize("other", [2, 12, 13, ConnectError("down")])
def test_unconfirmed_result_is_returned_when_no_other_broker_does_better(other: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retry_when_not_ok=True, flow_control_retry="none")
            await warm(producer, cluster)
            cluster.script[SEND] = [
                stored_with(12),
                *[stored_with(12) if other == 12 else other] * 99,
            ]
            result = await producer.send("t", b"x")
            assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            assert result.offset == 7
            assert producer.stats.failed == 0

    run_sim(main, brokers=2)


def test_unconfirmed_message_of_one_broker_or_one_queue_is_not_repeated() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(retry_when_not_ok=True)
            await warm(producer, cluster)
            for options in ({}, {"order_key": "k"}):
                cluster.script[SEND] = [stored_with(12)]
                result = await producer.send("t", b"x", **options)  # type: ignore[arg-type]
                assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
            assert len(cluster.of_code(SEND)) == 2

    run_sim(main)


def test_send_without_a_master_says_so_and_waits_for_it() -> None:
    async def main(cluster: Cluster) -> None:
        pair = Pair(cluster)
        pair.lose_master()
        async with cluster.client() as client:
            producer = client.producer(timeout=2)
            with pytest.raises(
                NoRouteError, match="no master of broker-a is registered now"
            ) as caught:
                await producer.send("t", b"x")
            assert caught.value.retriable
            sending = asyncio.create_task(producer.send("t", b"x", timeout=20))
            await pass_time(5)
            pair.bring_master_back()
            assert (await sending).queue.broker_name == "broker-a"

    run_sim(main, brokers=2)


def test_paused_send_is_tried_at_once_when_its_route_changes() -> None:
    async def main(cluster: Cluster) -> None:
        pair, loop = Pair(cluster), asyncio.get_running_loop()
        async with cluster.client(route_refresh_interval=600) as client:
            producer = client.producer(timeout=60)
            await producer.send("t", b"x")
            pair.lose_master()
            sending = asyncio.create_task(producer.send("t", b"x"))
            await pass_time(10)  # by now the pauses take a second
            pair.bring_master_back()
            assert client._instance is not None
            await client._instance.routes.refresh("t")
            began_s = loop.time()
            assert (await sending).queue.broker_name == "broker-a"
            assert loop.time() - began_s < 0.05

    run_sim(main, brokers=2)


def test_cancelled_send_is_no_longer_paused() -> None:
    async def main(cluster: Cluster) -> None:
        Pair(cluster).lose_master()
        async with cluster.client() as client:
            producer = client.producer(timeout=60)
            sending = asyncio.create_task(producer.send("t", b"x"))
            await pass_time(10)
            sending.cancel()
            await pass_time(1)
            assert client._instance is not None
            assert len(client._instance.routes.on_change) == 1

    run_sim(main, brokers=2)


def test_send_to_a_broker_that_became_a_slave_looks_the_route_up() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(route_refresh_interval=600) as client:
            producer = client.producer(timeout=30)
            await warm(producer, cluster)
            first_on(producer, "broker-a")
            refused = "[REJECTREQUEST]system busy, start flow control for a while"
            cluster.script[SEND] = [lambda _, request: make_response(request, 2, refused)]
            before = len(cluster.of_code(ROUTE))
            assert (await producer.send("t", b"x")).queue.broker_name == "broker-b"
            await pass_time(1)
            assert len(cluster.of_code(ROUTE)) > before

    run_sim(main, brokers=2)
