"""Pauses last until they are resumed: over the start, rebalances and resets."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.consumer.pulling.queue_readers import PausedQueues, chosen
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, moved_to, of_topic, until

FIRST, SECOND, THIRD = (MessageQueue("t", "broker-a", number) for number in range(3))
OTHER = MessageQueue("u", "broker-a", 0)


def test_last_word_counts_and_a_queue_s_own_before_its_topic_s() -> None:
    pauses = PausedQueues()
    assert not pauses.holds(FIRST)
    pauses.set(["t"], paused=True)
    assert [pauses.holds(each) for each in (FIRST, SECOND, OTHER)] == [True, True, False]
    pauses.set([SECOND], paused=False)
    assert [pauses.holds(each) for each in (FIRST, SECOND, OTHER)] == [True, False, False]
    pauses.set(None, paused=True)
    assert [pauses.holds(each) for each in (FIRST, SECOND, OTHER)] == [True, True, True]
    pauses.set([OTHER], paused=False)
    assert [pauses.holds(each) for each in (FIRST, SECOND, OTHER)] == [True, True, False]
    pauses.set(["u"], paused=True)
    assert pauses.holds(OTHER)
    pauses.set(None, paused=False)
    assert not any(pauses.holds(each) for each in (FIRST, SECOND, OTHER))


def test_topics_are_named_without_the_namespace_and_queues_as_brokers_do() -> None:
    assert chosen("ns", ["t", FIRST]) == ["ns%t", FIRST]
    assert chosen("", []) is None
    wrong: Any = [[FIRST]]
    with pytest.raises(TypeError, match="neither"):
        chosen("", wrong)


def test_pause_after_the_start_holds_for_later_messages() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        got: list[ReceivedMessage] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message)

        async with cluster.client() as client:
            options: dict[str, Any] = {"group": "c", "start": "earliest", "start_timeout": 0}
            async with client.consumer("t", handler=handler, **options) as consumer:
                assert consumer.assignment == []
                consumer.pause()
                await pass_time(60)
                assert len(of_topic(consumer)) == 4
                assert got == []
                consumer.resume(FIRST)
                await until(lambda: len(got) == 2)
                await pass_time(60)
                assert {message.queue for message in got} == {FIRST}
                consumer.resume()
                await until(lambda: len(got) == 8)

    run_sim(main)


def test_paused_topic_leaves_others_running() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[str] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.topic)

        async with cluster.client() as client:
            consumer = client.consumer(["t", "u"], group="c", start="earliest", handler=handler)
            consumer.pause("t")
            async with consumer:
                for topic in ("t", "u"):
                    cluster.put(topic, b"x")
                await until(lambda: got == ["u"])
                await pass_time(30)
                assert got == ["u"]
                consumer.resume("t")
                await until(lambda: got == ["u", "t"])

    run_sim(main, topics=("t", "u"))


def test_pause_of_a_queue_survives_a_rebalance_and_a_moved_offset() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[MessageQueue] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.queue)

        # Paused before it pulls anything: a pull that waits is still answered, and delivered.
        options: dict[str, Any] = {"group": "c", "start": "earliest", "start_timeout": 0}
        async with cluster.client() as one, cluster.client() as two:
            async with one.consumer("t", handler=handler, **options) as consumer:
                consumer.pause(FIRST, THIRD)  # whoever comes first, one of them moves, one stays
                async with two.consumer("t", handler=handler, **options):
                    await until(lambda: len(of_topic(consumer)) == 2)
                    moved = set(range(4)) - {each.queue_id for each in of_topic(consumer)}
                    assert moved in ({0, 1}, {2, 3})
                await until(lambda: len(of_topic(consumer)) == 4)
                fill(cluster, 4)
                await pass_time(60)
                assert set(got) == set(of_topic(consumer)) - {FIRST, THIRD}
                consumer.resume(FIRST)
                await until(lambda: FIRST in got)
                assert THIRD not in got

    run_sim(main)


def test_paused_queue_that_is_moved_by_its_broker_stays_paused() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                moved_to(cluster, 2)
                await consumer.assign([FIRST])
                await pass_time(1)
                assert consumer.position(FIRST) == 2
                consumer.pause("t")
                assert await consumer.poll(timeout=30) == []
                await consumer.seek(FIRST, 1)
                assert await consumer.poll(timeout=30) == []
                consumer.resume("t")
                assert [each.offset for each in await consumer.poll()] == [1, 2, 3]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", ["consumer", "pull_consumer"])
@pytest.mark.parametrize("what", [(), ("t",), (FIRST,)])
def test_message_that_comes_for_a_waiting_pull_is_kept_until_resume(
    kind: str, what: tuple[Any, ...]
) -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async def poll(consumer: Any) -> None:
            while True:
                got.extend([each.body for each in await consumer.poll()])

        async with cluster.client() as client:
            if kind == "consumer":
                consumer: Any = client.consumer("t", group="c", handler=handler)
                await consumer.start()
                working = asyncio.create_task(pass_time(0))
            else:
                consumer = client.pull_consumer(group="c")
                await consumer.start()
                await consumer.subscribe("t")
                working = asyncio.create_task(poll(consumer))
            await pass_time(5)  # a pull waits at the broker
            consumer.pause(*what)
            for body in (b"0", b"1"):
                cluster.put("t", body)
                await pass_time(30)
            assert got == []
            consumer.resume(*what)
            await until(lambda: got == [b"0", b"1"])
            consumer.pause(*what)
            await pass_time(30)
            consumer.resume(*what)
            await pass_time(30)
            assert got == [b"0", b"1"]
            working.cancel()
            await consumer.close()
        if kind == "consumer":
            assert cluster.offsets["c", "broker-a", "t", 0] == 2

    run_sim(main, queues=1)
