"""Assignment of queues: rounds, members, and queues that appear, vanish or stall."""

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from rocketpy.client.consumer.pulling.pull_loop import PullLoop
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, of_topic, until

OFFSET_OF, HEARTBEAT, MEMBERS_OF = 14, 34, 38


def test_there_is_a_round_every_twenty_seconds() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: len(of_topic(consumer)) == 4)
                await pass_time(30)  # what the start woke is over
                before = len(cluster.of_code(MEMBERS_OF))
                await pass_time(200)
                rounds = (len(cluster.of_code(MEMBERS_OF)) - before) / 2  # and the retry topic
                assert rounds == 10

    run_sim(main)


def test_members_are_asked_of_any_broker_and_share_pages_of_the_sorted_queues() -> None:
    async def main(cluster: Cluster) -> None:
        async with (
            cluster.client(instance_name="b") as two,
            cluster.client(instance_name="a") as one,
        ):
            async with (
                two.consumer("t", group="c", handler=nothing) as second,
                one.consumer("t", group="c", handler=nothing) as first,
            ):
                await until(lambda: len(of_topic(first)) == len(of_topic(second)) == 4)
                assert {queue.broker_name for queue in of_topic(first)} == {"broker-a"}
                assert {queue.broker_name for queue in of_topic(second)} == {"broker-b"}
                await pass_time(300)
        asked = Counter(where for where, request in cluster.requests if request.code == MEMBERS_OF)
        assert len(asked) == 2

    run_sim(main, brokers=2)


def test_member_asks_another_broker_for_the_members_when_one_is_silent() -> None:
    async def main(cluster: Cluster) -> None:
        silent = brokers_of(cluster)[0]

        def answer(address: str, _: Any) -> Any:
            return "lost" if address == silent else None

        cluster.always[MEMBERS_OF] = answer
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: len(of_topic(consumer)) == 8, limit_s=8)
                await pass_time(200)
        pairs = zip(cluster.times, cluster.requests, strict=True)
        asked = [(at, where) for (at, each), (where, _) in pairs if each.code == MEMBERS_OF]
        assert silent in {where for _, where in asked}
        for (at, where), (next_at, next_where) in pairwise(asked):
            if where == silent:
                assert next_where != silent
                assert next_at - at <= 3_100, "at once after the time-out"

    run_sim(main, brokers=2)


def brokers_of(cluster: Cluster) -> list[str]:
    return [each.address for each in sorted(cluster.world.brokers, key=lambda each: each.name)]


def test_silent_broker_is_asked_once_a_round_and_delays_no_other() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            silent = brokers_of(cluster)[0]

            def answer(address: str, _: Any) -> Any:
                return "lost" if address == silent else None

            cluster.always[OFFSET_OF] = answer
            options: dict[str, Any] = {"start": "earliest", "start_timeout": 0}
            async with client.consumer("t", group="c", handler=nothing, **options) as one:
                await until(lambda: len(of_topic(one)) == 4, limit_s=8)
                assert {queue.broker_name for queue in of_topic(one)} == {"broker-b"}
                asked = [where for where, each in cluster.requests if each.code == OFFSET_OF]
                assert asked.count(silent) <= 2, "of the topic, and of its retry topic"
                await pass_time(20)
                assert len(of_topic(one)) == 4
                cluster.always.clear()
                await until(lambda: len(of_topic(one)) == 8)

    run_sim(main, brokers=2)


def test_broker_without_a_heartbeat_is_asked_last() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            silent = brokers_of(cluster)[0]

            def answer(address: str, _: Any) -> Any:
                return "lost" if address == silent else None

            for code in (HEARTBEAT, MEMBERS_OF, OFFSET_OF):
                cluster.always[code] = answer
            options: dict[str, Any] = {"start": "earliest", "start_timeout": 0}
            async with client.consumer("t", group="c", handler=nothing, **options) as one:
                began_ms = cluster.elapsed_ms
                await until(lambda: len(of_topic(one)) == 4)
                assert cluster.elapsed_ms - began_ms < 1_000

    run_sim(main, brokers=2)


def test_broadcasting_member_has_every_queue_without_a_request(tmp_path: Any) -> None:
    async def main(cluster: Cluster) -> None:
        def consumer(client: Any) -> Any:
            return client.consumer(
                "t", group="c", handler=nothing, broadcast=True, offset_dir=str(tmp_path)
            )

        async with (
            cluster.client(instance_name="1") as one,
            cluster.client(instance_name="2") as two,
        ):
            async with consumer(one) as first, consumer(two) as second:
                await until(lambda: len(of_topic(first)) == len(of_topic(second)) == 4)
                assert not cluster.of_code(MEMBERS_OF)

    run_sim(main)


def test_client_outside_the_group_has_no_queue() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: len(of_topic(consumer)) == 4)
                broker = cluster.world.brokers[0]
                broker.kill()
                await broker.start()  # it knows nobody
                await pass_time(60)
                assert len(of_topic(consumer)) == 4

    run_sim(main)


def test_queue_without_a_pull_for_two_minutes_is_restarted(monkeypatch: Any) -> None:
    async def main(cluster: Cluster) -> None:
        stuck = asyncio.Event()
        run = PullLoop.run

        async def stand_still(self: PullLoop) -> None:
            if not stuck.is_set():
                stuck.set()
                await asyncio.Event().wait()
            await run(self)

        monkeypatch.setattr(PullLoop, "run", stand_still)
        fill(cluster, 3)
        got: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await pass_time(100)
                assert not got
                await pass_time(60)
                assert got == [b"0", b"1", b"2"]

    run_sim(main, queues=1)


def test_reassigned_queue_continues_at_its_committed_offset() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        got: Counter[bytes] = Counter()

        async def handler(message: ReceivedMessage) -> None:
            got[message.body] += 1

        def consumer(client: Any) -> Any:
            return client.consumer("t", group="c", start="earliest", handler=handler)

        async with cluster.client() as one, cluster.client() as two:
            first = consumer(one)
            await first.start()
            await until(lambda: len(got) == 40)
            async with consumer(two) as second:
                await until(lambda: len(of_topic(second)) == 2)
                fill(cluster, 40)
                await until(lambda: sum(got.values()) == 80)
                await first.close()
                await until(lambda: len(of_topic(second)) == 4)
                fill(cluster, 40)
                await until(lambda: sum(got.values()) == 120)
                await pass_time(30)
        assert sum(got.values()) == 120, "members that part in peace repeat nothing"

    run_sim(main)


def test_queues_and_brokers_that_come_are_read_and_those_that_go_are_left() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: len(of_topic(consumer)) == 2)
                cluster.create_topic("t", 2)
                await until(lambda: len(of_topic(consumer)) == 4)
                second = cluster.world.brokers[1]
                await second.stop()
                await until(lambda: len(of_topic(consumer)) == 2)
                assert MessageQueue("t", "broker-a", 1) in of_topic(consumer)
                await second.start()
                await until(lambda: len(of_topic(consumer)) == 4)

    run_sim(main, brokers=2, queues=1)


def test_topic_that_is_not_subscribed_any_more_is_left() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer(["t", "u"], group="c", handler=nothing) as consumer:
                await until(lambda: len(consumer.assignment) >= 8)
                del consumer._subscriptions["u"]
                await until(lambda: not any(q.topic == "u" for q in consumer.assignment))

    run_sim(main, topics=("t", "u"))


def test_members_with_different_subscriptions_are_logged_once(caplog: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with (
            cluster.client(instance_name="1") as one,
            cluster.client(instance_name="2") as two,
        ):
            async with one.consumer("t", group="c", filter="a", handler=nothing):
                await pass_time(40)
                assert "subscribe differently" not in caplog.text
                async with two.consumer("t", group="c", filter="b", handler=nothing):
                    await pass_time(100)

    with caplog.at_level("WARNING", "rocketpy.client.cluster.instance"):
        run_sim(main)
    told = [
        each
        for each in caplog.records
        if each.name == "rocketpy.client.cluster.instance"
        and "subscribe differently" in each.getMessage()
    ]
    assert len(told) == 2, "each client, once"


def test_missing_topic_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("mistyped", group="c", handler=nothing):
                await pass_time(100)

    run_sim(main)
    said = [record.getMessage() for record in caplog.records if "mistyped" in record.getMessage()]
    assert len([each for each in said if "no broker has the topic" in each]) == 1
