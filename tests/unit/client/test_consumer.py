"""Every message is delivered, none is passed over, members share queues, failures can be seen."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from rocketpy.client.message import ReceivedMessage
from rocketpy.client.outcomes import Retry, ToDLQ
from rocketpy.errors import ClientError, ClosedError, NoNameServerError
from rocketpy.proto import fastjson
from rocketpy.proto.command import make_request
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import FakeCluster, run_sim


async def until(condition: Any, limit_s: float = 600) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.05)


def fill(cluster: FakeCluster, count: int, **ext: Any) -> None:
    for n in range(count):
        cluster.put("t", b"%d" % n, queue_id=n % cluster.queues, **ext)


def test_iterating_delivers_all_and_acks_when_the_next_is_asked_for() -> None:
    async def main(cluster: FakeCluster) -> None:
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


def test_the_offset_never_passes_an_unfinished_message() -> None:
    async def main(cluster: FakeCluster) -> None:
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
                assert cluster.offsets["c", "b0", "t", 0] == 3
                release.set()
                await until(lambda: len(handled) == 10)
                await consumer.commit()
                assert cluster.offsets["c", "b0", "t", 0] == 10

    run_sim(main, queues=1)


def test_offsets_are_stored_every_five_seconds_one_way() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=_nothing):
                await asyncio.sleep(5.5)
                stored = cluster.of_code(15)
                assert {request.ext_fields["commitOffset"] for request in stored} <= {"0", "4"}
                assert cluster.offsets["c", "b0", "t", 0] == 4
                assert all(request.is_oneway for request in stored)

    run_sim(main, queues=1)


async def _nothing(message: ReceivedMessage) -> None:
    pass


def test_failed_messages_go_back_to_the_broker_and_the_offset_goes_on() -> None:
    async def main(cluster: FakeCluster) -> None:
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
        levels = {back["offset"]: back["delayLevel"] for back in cluster.sent_back}
        assert levels == {"0": "5", "1000": "-1", "2000": "0"}
        assert cluster.sent_back[0]["originTopic"] == "t"
        assert cluster.sent_back[0]["maxReconsumeTimes"] == "16"
        assert cluster.offsets["c", "b0", "t", 0] == 4

    run_sim(main, queues=1)


def test_what_cannot_be_given_back_is_consumed_again_here_and_not_passed() -> None:
    async def main(cluster: FakeCluster) -> None:
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
                assert cluster.offsets["c", "b0", "t", 0] == 1
                await until(lambda: len(tries) == 3)
        assert [retries for retries, _ in tries] == [0, 1, 2]
        assert tries[1][1] - tries[0][1] == pytest.approx(5000, abs=20)
        assert cluster.offsets["c", "b0", "t", 0] == 5

    run_sim(main, queues=1)


def test_nack_while_iterating() -> None:
    async def main(cluster: FakeCluster) -> None:
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
        assert cluster.offsets["c", "b0", "t", 0] == 2

    run_sim(main, queues=1)


def test_tags_are_compared_as_text_too() -> None:
    async def main(cluster: FakeCluster) -> None:
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
                await asyncio.sleep(1)
            heartbeat = json.loads(cluster.of_code(34)[0].body)["consumerDataSet"][0]
        assert got == ["Aa", "c"]
        wanted = heartbeat["subscriptionDataSet"]
        assert [entry["topic"] for entry in wanted] == ["t", "%RETRY%c"]
        assert wanted[0]["tagsSet"] == ["Aa", "c"]
        assert wanted[0]["codeSet"] == [99, 2112]
        assert cluster.offsets["c", "b0", "t", 0] == 4

    run_sim(main, queues=1)


@pytest.mark.parametrize(
    ("start", "first"), [("latest", 8), ("earliest", 0), (1_700_000_000_000, 2)]
)
def test_where_a_new_group_starts(start: Any, first: int) -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 8)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start=start, handler=_nothing):
                await asyncio.sleep(1)
        pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
        assert pulls[0].ext_fields["queueOffset"] == str(first)

    run_sim(main, queues=1)


def test_a_stored_offset_wins_and_an_error_is_no_start() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 8)
        cluster.offsets["c", "b0", "t", 0] = 5
        cluster.script[14] = [1]
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=_nothing):
                await asyncio.sleep(30)
        pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
        assert pulls[0].ext_fields["queueOffset"] == "5"

    run_sim(main, queues=1)


def test_two_members_share_and_the_rest_takes_over() -> None:
    async def main(cluster: FakeCluster) -> None:
        seen: Counter[bytes] = Counter()

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1

        async with cluster.client() as one, cluster.client() as two:
            a = one.consumer("t", group="c", start="earliest", handler=handler)
            b = two.consumer("t", group="c", start="earliest", handler=handler)
            await a.start()
            fill(cluster, 10)
            await until(lambda: len(seen) == 10)
            started_ms = cluster.clock.monotonic_ms()
            await b.start()
            await until(lambda: len(_of(b)) == 2 and len(_of(a)) == 2)
            assert cluster.clock.monotonic_ms() - started_ms < 2_000
            assert not set(_of(a)) & set(_of(b))
            fill(cluster, 10)
            await asyncio.sleep(1)
            await a.close()
            await until(lambda: len(_of(b)) == 4, 5)
            for n in range(100, 110):
                cluster.put("t", b"%d" % n, queue_id=n % 4)
            await until(lambda: len(seen) == 20)
            await b.close()
        assert all(count <= 2 for count in seen.values())
        assert seen[b"105"] == 1

    run_sim(main)


def _of(consumer: Any) -> list[MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "t"]


def test_queues_that_are_added_later_are_found() -> None:
    async def main(cluster: FakeCluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=_nothing) as consumer:
                await until(lambda: len(_of(consumer)) == 2)
                cluster.queues = 6
                await until(lambda: len(_of(consumer)) == 6, 60)

    run_sim(main, queues=2)


def test_a_topic_that_appears_later_is_found() -> None:
    async def main(cluster: FakeCluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("later", group="c", handler=_nothing) as consumer:
                await asyncio.sleep(3)
                assert not [q for q in consumer.assignment if q.topic == "later"]
                cluster.topics.add("later")
                await until(lambda: any(q.topic == "later" for q in consumer.assignment), 25)

    run_sim(main)


def test_pulling_stops_at_each_limit_and_goes_on() -> None:
    async def main(cluster: FakeCluster) -> None:
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
                await asyncio.sleep(10)
                queue = MessageQueue("t", "b0", 0)
                assert consumer.health().queues[queue].cached == 64  # two pulls of 32: > 50
                assert consumer.health().queues[queue].lag == 200
                gate.set()
                await until(lambda: len(handled) == 200, 5)

    run_sim(main, queues=1)


def test_offset_outside_the_queue_starts_where_the_broker_says() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.min_offset["b0", "t", 0] = 100
        cluster.offsets["c", "b0", "t", 0] = 7
        fill(cluster, 3)
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.offset)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler):
                await until(lambda: len(got) == 3)
        assert got == [100, 101, 102]
        assert cluster.offsets["c", "b0", "t", 0] == 103

    run_sim(main, queues=1)


def test_a_restarting_broker_is_waited_for_and_shown_in_health() -> None:
    async def main(cluster: FakeCluster) -> None:
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler, start="earliest") as c:
                await until(lambda: len(_of(c)) == 1)
                cluster.down.add("b0:10911")
                cluster.put("t", b"wake")
                await asyncio.sleep(40)
                health = c.health()
                assert not health.ok
                assert "down" in health.queues[MessageQueue("t", "b0", 0)].failure
                assert not client.health().ok
                cluster.down.clear()
                cluster.members.clear()
                cluster.put("t", b"after")
                await until(lambda: b"after" in got, 40)
                await asyncio.sleep(35)
                assert c.health().ok
                assert client.health().ok

    run_sim(main, queues=1)


def test_results_of_a_queue_given_up_do_not_count() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 3)
        gate = asyncio.Event()

        async def handler(message: ReceivedMessage) -> None:
            await gate.wait()

        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            async with consumer:
                await until(lambda: len(_of(consumer)) == 1)
                await asyncio.sleep(1)
                await consumer.reset_offsets({MessageQueue("t", "b0", 0): 2})
                assert cluster.offsets["c", "b0", "t", 0] == 2
                await consumer.commit()
                assert cluster.offsets["c", "b0", "t", 0] == 2
                gate.set()
                await asyncio.sleep(1)
                await consumer.commit()
                assert cluster.offsets["c", "b0", "t", 0] == 3

    run_sim(main, queues=1)


def test_stop_finishes_what_is_in_hand_and_cancels_what_takes_too_long() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 2)
        finished = []

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(2 if message.offset == 0 else 1_000)
            finished.append(message.offset)

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", start="earliest", handler=handler, stop_timeout_s=5
            )
            await consumer.start()
            await asyncio.sleep(1)
            started_ms = cluster.clock.monotonic_ms()
            await consumer.close()
            assert cluster.clock.monotonic_ms() - started_ms < 5_100
        assert finished == [0]
        assert cluster.offsets["c", "b0", "t", 0] == 1
        assert "c" not in cluster.members or not cluster.members["c"]

    run_sim(main, queues=1)


def test_a_message_in_hand_for_too_long_is_given_back() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 1)

        async def handler(message: ReceivedMessage) -> None:
            await asyncio.sleep(10_000)

        async with cluster.client() as client:
            async with client.consumer(
                "t", group="c", start="earliest", handler=handler, stop_timeout_s=0.1
            ):
                await asyncio.sleep(910)
                assert [back["delayLevel"] for back in cluster.sent_back] == ["3"]
                await asyncio.sleep(6)
                assert cluster.offsets["c", "b0", "t", 0] == 1

    run_sim(main, queues=1)


def test_a_body_that_cannot_be_inflated_goes_back_and_the_rest_is_delivered() -> None:
    async def main(cluster: FakeCluster) -> None:
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
        assert cluster.sent_back[0]["offset"] == "1000"
        assert cluster.offsets["c", "b0", "t", 0] == 3

    run_sim(main, queues=1)


def test_an_unexpected_background_error_reaches_the_iterating_user() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.script[11] = [ZeroDivisionError("bug")] * 5
        async with cluster.client() as client:
            async with client.consumer("t", group="c") as consumer:
                with pytest.raises(ZeroDivisionError):
                    async for _ in consumer:
                        pass
                assert not consumer.health().ok

    run_sim(main, queues=1)


def test_batches_and_decoded_bodies() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 40)
        sizes = []
        values = []

        async def handler(bodies: list[Any], messages: list[ReceivedMessage]) -> None:
            sizes.append(len(messages))
            values.extend(bodies)

        async with cluster.client() as client:
            from rocketpy.client.serializers import json as json_serializer

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


def test_what_brokers_ask() -> None:
    async def main(cluster: FakeCluster) -> None:
        fill(cluster, 4)

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"bad":
                raise ValueError("no")

        async with cluster.client() as client:
            remoting = client._running().remoting
            async with client.consumer("t", group="c", start="earliest", handler=handler) as c:
                await until(lambda: c.health().queues and c.health().lag == 0 and _of(c))
                remoting.receive(make_request(221, {"group": "c", "topic": "t"}))
                remoting.receive(make_request(307, {"consumerGroup": "c"}))
                for body in (b"fine", b"bad"):
                    offset = cluster.put("x", body)
                    record = cluster.stored["b0", "x", 0][offset]
                    remoting.receive(make_request(309, {"consumerGroup": "c"}, record))
                remoting.receive(make_request(307, {"consumerGroup": "nobody"}))
                await asyncio.sleep(1)
                status, info, nobody, good, bad = remoting.answers
                queue = MessageQueue("t", "b0", 0)
                assert fastjson.loads(status.body)["messageQueueTable"] == {queue: 4}
                report = fastjson.loads(info.body)
                assert report["mqTable"][queue]["commitOffset"] == 4
                assert report["statusTable"]["t"]["consumeOKTPS"] > 0
                assert json.loads(good.body)["consumeResult"] == "CR_SUCCESS"
                assert json.loads(bad.body)["consumeResult"] == "CR_THROW_EXCEPTION"
                assert nobody.code == 1
                body = fastjson.dumps({"offsetTable": {queue: 1}})
                remoting.receive(make_request(220, {"group": "c", "topic": "t"}, body, oneway=True))
                await asyncio.sleep(1)
                pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
                assert "1" in {r.ext_fields["queueOffset"] for r in pulls}

    run_sim(main, queues=1)


def test_misuse_is_told_at_once() -> None:
    async def main(cluster: FakeCluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=_nothing) as consumer:
                with pytest.raises(ClientError, match="already has"):
                    await client.consumer("t", group="c").start()
                with pytest.raises(ClosedError, match="iterate"):
                    async for _ in consumer:
                        pass
            with pytest.raises(ClosedError):
                await consumer.start()
            cluster.down.add("ns:9876")
            with pytest.raises(NoNameServerError):
                await client.consumer("u", group="d").start()

    run_sim(main)
