"""Guarantees of consumers, on simulated and real clusters."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import (
    ClientError,
    ConfigError,
    ExpressionError,
    IllegalMessageError,
    SubscriptionParseError,
    SystemFaultError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import make_response
from tests.conformance.worlds import World


def collect(into: list[bytes]) -> Any:
    async def handler(message: ReceivedMessage) -> None:
        into.append(message.body)

    return handler


async def send(world: World, client: Any, bodies: range) -> None:
    producer = client.producer()
    for number in bodies:
        await producer.send("t", b"%d" % number, tag="even" if number % 2 == 0 else "odd")


def test_two_members_share_the_queues_and_one_takes_over(run: Callable[..., Any]) -> None:
    async def case(world: World) -> Counter[bytes]:
        world.create_topic("t", queues=4)
        got: list[bytes] = []
        async with world.client() as one, world.client() as two:
            options = {"group": "c", "start": "earliest", "handler": collect(got)}
            first, second = one.consumer("t", **options), two.consumer("t", **options)
            await first.start()
            await second.start()
            await world.until(
                lambda: [of_topic(each) for each in (first, second)] == [2, 2],
            )
            await send(world, one, range(20))
            await world.until(lambda: len(got) >= 20)
            await first.close()
            await world.until(lambda: of_topic(second) == 4)
            await send(world, one, range(20, 40))
            await world.until(lambda: len(set(got)) >= 40)
        return Counter(got)

    assert set(run(case)) == {b"%d" % number for number in range(40)}


def of_topic(consumer: Any) -> int:
    return sum(queue.topic == "t" for queue in consumer.assignment)


async def consume(world: World, client: Any, got: list[bytes], count: int) -> None:
    async with client.consumer("t", group="c", start="earliest", handler=collect(got)):
        await world.until(lambda: len(got) >= count)


def test_group_continues_where_it_stopped(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=2)
        got: list[bytes] = []
        async with world.client() as client:
            for part in (range(10), range(10, 20)):
                await send(world, client, part)
                await consume(world, client, got, part.stop)
        return got

    assert sorted(run(case), key=int) == [b"%d" % number for number in range(20)]


def test_condition_lets_through_what_meets_it_only(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=1)
        got: list[bytes] = []
        async with world.client() as client:
            producer = client.producer()
            options = {"group": "c", "start": "earliest", "handler": collect(got)}
            async with client.consumer("t", sql="delay > 60 AND carrier = 'UA'", **options):
                for number in range(0, 120, 10):
                    headers = {"delay": str(number), "carrier": "UA" if number % 20 else "AA"}
                    await producer.send("t", b"%d" % number, headers=headers)
                await producer.send("t", b"late", headers={"delay": "61", "carrier": "UA"})
                await world.until(lambda: b"late" in got)
        return got

    assert run(case) == [b"70", b"90", b"110", b"late"]


def test_broker_that_takes_no_conditions_says_so_at_the_start(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        refusal = "The broker does not support consumer to filter message by SQL92"
        async with world.client() as client:
            world.script[46] = [lambda _, request: make_response(request, 1, refusal)]
            consumer = client.consumer("t", group="c", sql="a > 5")
            with pytest.raises(SystemFaultError, match="filter message by SQL92"):
                await consumer.start()
            async with client.pull_consumer(group="d") as puller:
                world.script[46] = [lambda _, request: make_response(request, 23, "at character 1")]
                with pytest.raises(SubscriptionParseError, match="at character 1"):
                    await puller.subscribe("t", sql="a > 5")
                world.script[46] = ["lost"]
                await puller.subscribe("t", sql="a > 5")

    run(case)


@pytest.mark.parametrize(
    ("condition", "position"), [("a >", 3), ("a = 1 AMD b = 2", 6), ("a = 'x", 4)]
)
def test_condition_that_is_none_is_refused_where_it_is_written(
    run: Callable[..., Any], condition: str, position: int
) -> None:
    async def case(world: World) -> None:
        async with world.client() as client:
            with pytest.raises(ExpressionError) as caught:
                client.consumer("t", group="c", sql=condition)
            assert caught.value.position == position

    run(case)


def test_filter_lets_its_tags_through_only(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=1)
        got: list[bytes] = []
        async with world.client() as client:
            await send(world, client, range(10))
            async with client.consumer(
                "t", group="c", filter="odd", start="earliest", handler=collect(got)
            ):
                await world.until(lambda: len(got) == 5)
        return got

    assert run(case) == [b"1", b"3", b"5", b"7", b"9"]


def test_pull_consumer_seeks_polls_and_commits(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        async with world.client() as client:
            await send(world, client, range(10))
            async with client.pull_consumer(group="p", auto_commit=False) as consumer:
                (queue,) = await consumer.queues("t")
                await consumer.assign([queue])
                await consumer.seek(queue, 4)
                got: list[bytes] = []
                while len(got) < 6:
                    got += [message.body for message in await consumer.poll()]
                assert got == [b"4", b"5", b"6", b"7", b"8", b"9"]
                assert await consumer.committed(queue) is None
                await consumer.commit()
                assert await consumer.committed(queue) == 10
                with pytest.raises(ClientError, match="outside"):
                    await consumer.seek(queue, 11)
                with pytest.raises(ClientError, match="not assigned"):
                    await consumer.seek(MessageQueue("t", "other", 0), 0)

    run(case)


def test_held_pull_brings_a_message_when_it_comes(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        async with world.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign(await consumer.queues("t"))
                polled = asyncio.create_task(consumer.poll(timeout=30))
                await world.until(lambda: bool(world.of_code(11)))
                await send(world, client, range(1))
                assert [message.body for message in await polled] == [b"0"]

    run(case)


def test_misuse_of_the_blocking_client_raises_the_same_errors(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        async with world.client() as client:
            with pytest.raises(IllegalMessageError, match="empty"):
                await client.producer().send("t", b"")
            with pytest.raises(ConfigError, match="concurrency"):
                client.consumer("t", concurrency=0)
            async with client.consumer("t", group="c", handler=collect([])):
                with pytest.raises(ClientError, match="already has"):
                    await client.consumer("t", group="c").start()

    run(case)


@pytest.mark.parametrize("broadcast", [False, True])
def test_topic_that_comes_after_its_consumer_is_read_within_seconds(
    run_simulated: Callable[..., Any], tmp_path: Path, *, broadcast: bool
) -> None:
    async def case(world: World) -> list[bytes]:
        got: list[bytes] = []
        async with world.client() as sender, world.client() as receiver:
            async with receiver.consumer(
                "t",
                group="c",
                start="earliest",
                handler=collect(got),
                broadcast=broadcast,
                offset_dir=str(tmp_path),
            ):
                await send(world, sender, range(1))
                await world.until(lambda: bool(got), limit_s=5)
        return got

    assert run_simulated(case) == [b"0"]


def test_condition_holds_over_a_restart_of_the_broker(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=1)
        got: list[bytes] = []
        async with world.client() as client:
            producer = client.producer(timeout=30)
            options = {"group": "c", "start": "earliest", "handler": collect(got)}
            async with client.consumer("t", sql="n BETWEEN 3 AND 7", **options):
                for number in range(10):
                    if number == 5:
                        await world.until(lambda: b"4" in got)
                        await world.restart_broker()
                    await producer.send("t", b"%d" % number, headers={"n": str(number)})
                await world.until(lambda: b"7" in got)
        return sorted(set(got))

    assert run(case) == [b"3", b"4", b"5", b"6", b"7"]
