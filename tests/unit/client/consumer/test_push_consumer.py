"""Group consumer: every message is delivered, none is skipped, failures are visible."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ
from rocketpy.client.messages.serializers import json as json_serializer
from rocketpy.errors import ClientError, ClosedError, NoNameServerError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import make_request
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, moved_to, nothing, of_topic, until


def test_iterating_delivers_all_and_acks_when_the_next_is_asked_for() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 20)
        bodies = []
        async with (
            cluster.client() as client,
            client.consumer("t", group="c", start="earliest") as consumer,
        ):
            async for message in consumer:
                bodies.append(int(message.body))
                if len(bodies) == 20:
                    break
        assert sorted(bodies) == list(range(20))
        committed = {key[3]: offset for key, offset in cluster.offsets.items() if key[2] == "t"}
        assert sum(committed.values()) == 19  # the loop was left with the last one in hand

    run_sim(main)


def test_offset_never_passes_an_unfinished_message() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        release = asyncio.Event()
        handled = []

        async def handler(message: ReceivedMessage) -> None:
            if message.offset == 3:
                await release.wait()
            handled.append(message.offset)

        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            async with consumer:
                await until(lambda: len(handled) == 9)
                await consumer.commit()
                assert cluster.offsets["c", "broker-a", "t", 0] == 3
                release.set()
                await until(lambda: len(handled) == 10)
                await consumer.commit()
                assert cluster.offsets["c", "broker-a", "t", 0] == 10

    run_sim(main, queues=1)


def test_offsets_are_stored_every_five_seconds_one_way() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=nothing):
                await pass_time(5.5)
                stored = cluster.of_code(15)
                assert {request.ext_fields["commitOffset"] for request in stored} <= {"0", "4"}
                assert cluster.offsets["c", "broker-a", "t", 0] == 4
                assert all(request.is_oneway for request in stored)

    run_sim(main, queues=1)


def test_failed_messages_are_sent_back_and_the_offset_advances() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"0":
                raise Retry(5)
            if message.body == b"1":
                raise ToDLQ("hopeless")
            if message.body == b"2":
                raise ValueError("any other")

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await until(lambda: len(cluster.sent_back) == 3)
        levels = {back["originMsgId"]: back["delayLevel"] for back in cluster.sent_back}
        assert levels == {"U0-0": "5", "U1-0": "-1", "U2-0": "0"}
        assert cluster.sent_back[0]["originTopic"] == "t"
        assert cluster.sent_back[0]["maxReconsumeTimes"] == "16"
        assert cluster.offsets["c", "broker-a", "t", 0] == 4

    run_sim(main, queues=1)


def test_failed_send_back_is_retried_here_and_the_offset_stays() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.supports_send_back = False
        fill(cluster, 5)
        tries: list[tuple[int, int]] = []

        async def handler(message: ReceivedMessage) -> None:
            if message.offset == 1:
                tries.append((message.retries, cluster.clock.monotonic_ms()))
                if len(tries) < 3:
                    raise ValueError("not yet")

        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            async with consumer:
                await until(lambda: len(tries) == 2)
                await consumer.commit()
                assert cluster.offsets["c", "broker-a", "t", 0] == 1
                await until(lambda: len(tries) == 3)
        assert [retries for retries, _ in tries] == [0, 1, 2]
        assert tries[1][1] - tries[0][1] == pytest.approx(5000, abs=20)
        assert cluster.offsets["c", "broker-a", "t", 0] == 5

    run_sim(main, queues=1)


def test_nack_while_iterating() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with (
            cluster.client() as client,
            client.consumer("t", group="c", start="earliest") as consumer,
        ):
            async for message in consumer:
                if message.offset == 0:
                    await message.nack(delay_level=7)
                else:
                    await message.ack()
                    break
        assert [back["delayLevel"] for back in cluster.sent_back] == ["7"]
        assert cluster.offsets["c", "broker-a", "t", 0] == 2

    run_sim(main, queues=1)


@pytest.mark.parametrize("option", ["ordered", "order_by_key"])
def test_nack_in_an_ordered_handler_holds_its_queue(option: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3, properties={"__SHARDINGKEY": "k"})
        got: list[tuple[int, int]] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append((message.offset, message.retries))
            if message.offset == 0 and message.retries < 2:
                await message.nack()

        options: dict[str, Any] = {option: True, "start": "earliest"}
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler, **options):
                await until(lambda: len(got) == 5)
        assert got == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]
        assert cluster.sent_back == [], "it keeps its position"
        assert cluster.offsets["c", "broker-a", "t", 0] == 3

    run_sim(main, queues=1)


def test_tags_are_compared_as_text_too() -> None:
    async def main(cluster: Cluster) -> None:
        for tag in ("Aa", "BB", "c"):  # the first two have the same hash
            cluster.put("t", tag.encode(), properties={"TAGS": tag})
        cluster.put("t", b"none")
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.tag)

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", filter="Aa || c", start="earliest", handler=handler
            )
            async with consumer:
                await pass_time(1)
            heartbeat = json.loads(cluster.of_code(34)[0].body)["consumerDataSet"][0]
        assert got == ["Aa", "c"]
        wanted = heartbeat["subscriptionDataSet"]
        assert [entry["topic"] for entry in wanted] == ["t", "%RETRY%c"]
        assert wanted[0]["tagsSet"] == ["Aa", "c"]
        assert wanted[0]["codeSet"] == [99, 2112]
        assert cluster.offsets["c", "broker-a", "t", 0] == 4

    run_sim(main, queues=1)


@pytest.mark.parametrize(("start", "first"), [("latest", 8), ("earliest", 0), ("between", 2)])
def test_new_group_starts_at_the_configured_position(start: Any, first: int) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        await pass_time(60)
        between = cluster.clock.time_ms()
        await pass_time(60)
        fill(cluster, 6)
        cluster.script[14] = [22, 22]  # a queue that began here would be read from its start
        async with cluster.client() as client:
            async with client.consumer(
                "t", group="c", start=between if start == "between" else start, handler=nothing
            ):
                await pass_time(1)
        pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
        assert pulls[0].ext_fields["queueOffset"] == str(first)

    run_sim(main, queues=1)


def test_stored_offset_wins_and_an_error_is_no_start() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        cluster.offsets["c", "broker-a", "t", 0] = 5
        cluster.script[14] = [1]
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=nothing):
                await pass_time(30)
        pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
        assert pulls[0].ext_fields["queueOffset"] == "5"

    run_sim(main, queues=1)


def test_pulling_pauses_at_each_limit_and_resumes() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 200)
        gate = asyncio.Event()
        handled: set[int] = set()

        async def handler(message: ReceivedMessage) -> None:
            await gate.wait()
            handled.add(message.offset)

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", start="earliest", handler=handler, max_cached_messages=50
            )
            async with consumer:
                await pass_time(10)
                queue = MessageQueue("t", "broker-a", 0)
                assert consumer.health().queues[queue].cached == 64  # two pulls of 32: > 50
                assert consumer.health().queues[queue].lag == 200
                gate.set()
                await until(lambda: len(handled) == 200, 5)

    run_sim(main, queues=1)


def test_offset_outside_the_queue_starts_where_the_broker_says() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 5)
        cluster.offsets["c", "broker-a", "t", 0] = 1
        moved_to(cluster, 2)
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.offset)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler):
                await until(lambda: len(got) == 3)
        assert got == [2, 3, 4]
        assert cluster.offsets["c", "broker-a", "t", 0] == 5

    run_sim(main, queues=1)


def test_results_of_a_queue_given_up_do_not_count() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        gate = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            await gate.wait()

        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            async with consumer:
                await until(lambda: len(of_topic(consumer)) == 1)
                await pass_time(1)
                body = fastjson.dumps({"offsetTable": {MessageQueue("t", "broker-a", 0): 2}})
                reset = {"group": "c", "topic": "t", "timestamp": "0", "isForce": "false"}
                cluster.remotings[0].receive(make_request(220, reset, body, oneway=True))
                await pass_time(0.1)
                assert cluster.offsets["c", "broker-a", "t", 0] == 2
                await consumer.commit()
                assert cluster.offsets["c", "broker-a", "t", 0] == 2
                gate.set()
                await pass_time(1)
                await consumer.commit()
                assert cluster.offsets["c", "broker-a", "t", 0] == 3

    run_sim(main, queues=1)


def test_stop_waits_for_handlers_and_cancels_slow_ones() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        finished = []

        async def handler(message: ReceivedMessage) -> None:
            await pass_time(2 if message.offset == 0 else 1_000)
            finished.append(message.offset)

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", start="earliest", handler=handler, stop_timeout=5
            )
            await consumer.start()
            await pass_time(1)
            started_ms = cluster.clock.monotonic_ms()
            await consumer.close()
            assert cluster.clock.monotonic_ms() - started_ms < 5_100
        assert finished == [0]
        assert cluster.offsets["c", "broker-a", "t", 0] == 1
        assert not cluster.members("c")

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", ["plain", "ordered", "pop"])
def test_handler_that_takes_no_notice_of_its_cancelling_does_not_hold_a_close_up(
    kind: str,
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        is_free = asyncio.Event()
        begun = []

        async def handler(message: Any) -> None:
            begun.append(message.body)
            while not is_free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await is_free.wait()

        async with cluster.client() as client:
            make: Any = client.pop_consumer if kind == "pop" else client.consumer
            more: dict[str, Any] = {"start": "earliest"} if kind != "pop" else {}
            more |= {"ordered": True} if kind == "ordered" else {}
            consumer = make("t", group="c", handler=handler, stop_timeout=5, **more)
            await consumer.start()
            await pass_time(5)
            cluster.put("t", b"more")
            await until(lambda: begun)
            started_ms = cluster.clock.monotonic_ms()
            await consumer.close()
            assert 5_000 <= cluster.clock.monotonic_ms() - started_ms < 6_500
            is_free.set()
            await pass_time(1)
        if kind != "pop":
            assert cluster.offsets["c", "broker-a", "t", 0] == 0

    run_sim(main, queues=1)


def test_message_beyond_the_consume_timeout_is_redelivered() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)

        async def handler(message: ReceivedMessage) -> None:
            await pass_time(10_000)

        async with cluster.client() as client:
            async with client.consumer(
                "t", group="c", start="earliest", handler=handler, stop_timeout=0.1
            ):
                await pass_time(910)
                assert [back["delayLevel"] for back in cluster.sent_back] == ["3"]
                await pass_time(6)
                assert cluster.offsets["c", "broker-a", "t", 0] == 1

    run_sim(main, queues=1)


def test_body_that_cannot_be_inflated_goes_back_and_the_rest_is_delivered() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"good")
        cluster.put("t", b"not zlib at all", sys_flag=1)
        cluster.put("t", b"good too")
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await until(lambda: len(cluster.sent_back) == 1 and len(got) == 2)
        assert got == [b"good", b"good too"]
        assert cluster.sent_back[0]["originMsgId"] == "U1-0"
        assert cluster.offsets["c", "broker-a", "t", 0] == 3

    run_sim(main, queues=1)


def test_unexpected_background_error_reaches_the_iterating_user() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[11] = [ZeroDivisionError("bug")] * 5
        async with cluster.client() as client:
            async with client.consumer("t", group="c") as consumer:
                with pytest.raises(ZeroDivisionError):
                    async for _ in consumer:
                        pass
                assert not consumer.health().ok

    run_sim(main, queues=1)


def test_batches_and_decoded_bodies() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        sizes = []
        values = []

        async def handler(bodies: list[Any], messages: list[ReceivedMessage]) -> None:
            sizes.append(len(messages))
            values.extend(bodies)

        async with cluster.client() as client:
            async with client.consumer(
                "t",
                group="c",
                start="earliest",
                handler=handler,
                batch=16,
                serializer=json_serializer,
            ):
                await until(lambda: len(values) == 40)
        assert max(sizes) == 16
        assert sorted(values) == list(range(40))

    run_sim(main, queues=1)


def test_misuse_raises_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                with pytest.raises(ClientError, match="already has"):
                    await client.consumer("t", group="c").start()
                with pytest.raises(ClosedError, match="iterate"):
                    async for _ in consumer:
                        pass
            with pytest.raises(ClosedError):
                await consumer.start()
            cluster.down.add(NAMESRV)
            with pytest.raises(NoNameServerError):
                await client.consumer("u", group="d").start()

    run_sim(main)
