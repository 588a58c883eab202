"""Failed messages are redelivered with a delay and a count, and end as dead letters."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from tests.conformance.worlds import World

SHORT_DELAYS = {"messageDelayLevel": " ".join(f"{level}s" for level in range(1, 19))}


def test_failed_message_waits_for_its_level_and_comes_again(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[ReceivedMessage]:
        world.create_topic("t", queues=1)
        got: list[ReceivedMessage] = []
        waiting: list[int] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message)
            if message.retries < 2:
                raise rocketpy.Retry(delay_level=1)
            waiting.append(world.message_count("SCHEDULE_TOPIC_XXXX"))

        async with world.client() as client:
            sent = await client.producer().send("t", b"x", keys="k")
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await world.until(lambda: len(got) == 3)
        assert {each.id for each in got} == {sent.msg_id}
        assert waiting == [2]
        return got

    first, second, third = run(case)
    assert [each.retries for each in (first, second, third)] == [0, 1, 2]
    assert {each.topic for each in (first, second, third)} == {"t"}
    assert third.queue.topic == "%RETRY%c"
    assert third.origin_id == first.offset_id
    assert third.ext.store_timestamp_ms - second.ext.store_timestamp_ms >= 1_000
    assert third.keys == ["k"]


def test_after_the_last_try_or_at_a_word_it_is_a_dead_letter(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        tries: Counter[bytes] = Counter()
        dead: dict[bytes, ReceivedMessage] = {}

        async def handler(message: ReceivedMessage) -> None:
            tries[message.body] += 1
            if message.body == b"hopeless":
                raise rocketpy.ToDLQ("hopeless")
            if message.body == b"given back":
                await message.nack(-1)
            raise rocketpy.Retry(delay_level=1)

        async def bury(message: ReceivedMessage) -> None:
            dead[message.body] = message

        async with world.client() as client:
            for body in (b"hopeless", b"given back", b"failing"):
                await client.producer().send("t", body)
            async with (
                client.consumer("t", group="c", start="earliest", handler=handler, max_retries=1),
                client.consumer("%DLQ%c", group="d", start="earliest", handler=bury),
            ):
                await world.until(lambda: len(dead) == 3)
        assert tries == {b"hopeless": 1, b"given back": 1, b"failing": 2}
        assert {each.origin_topic for each in dead.values()} == {"t"}

    run(case)


def test_delays_grow_with_the_tries(run_simulated: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        times: list[float] = []

        async def handler(message: ReceivedMessage) -> None:
            times.append(message.ext.store_timestamp_ms / 1000)
            raise ValueError("no")

        async with world.client() as client:
            await client.producer().send("t", b"x")
            async with client.consumer(
                "t", group="c", start="earliest", handler=handler, max_retries=4
            ):
                await world.until(lambda: world.message_count("%DLQ%c") == 1, 600)
        gaps = [round(b - a) for a, b in itertools.pairwise(times)]
        assert gaps == [10, 30, 60, 120], "levels 3 to 6"

    run_simulated(case)


def test_poisoned_messages_far_apart_do_not_stop_their_queue(
    run_simulated: Callable[..., Any],
) -> None:
    """Two messages that always fail, further apart than the span of a queue may be."""

    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        poisoned = {b"0", b"3000"}
        done: set[bytes] = set()
        failed: dict[bytes, list[int]] = defaultdict(list)

        async def handler(message: ReceivedMessage) -> None:
            if message.body in poisoned:
                failed[message.body].append(message.retries)
                raise ValueError("poison")
            done.add(message.body)

        async with world.client() as client:
            producer = client.producer()
            for first in range(0, 6_000, 500):
                await producer.send_batch("t", [b"%d" % n for n in range(first, first + 500)])
            async with client.consumer(
                "t", group="c", start="earliest", handler=handler, max_span=2_000
            ) as consumer:
                await world.until(lambda: len(done) == 5_998, 30)
                (queue,) = [each for each in consumer.assignment if each.topic == "t"]
                await world.until(lambda: consumer.health().queues[queue].lag == 0, 30)
                await world.until(lambda: world.message_count("%DLQ%c") == 2, 3_600)
        assert {body: len(tries) for body, tries in failed.items()} == dict.fromkeys(poisoned, 17)
        assert failed[b"0"] == list(range(17))

    run_simulated(case, properties=SHORT_DELAYS)


def test_failed_send_back_is_retried_until_a_broker_takes_it(
    run_simulated: Callable[..., Any],
) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        tries: list[tuple[int, str]] = []

        async def handler(message: ReceivedMessage) -> None:
            tries.append((message.retries, message.queue.topic))
            if len(tries) < 5:
                raise ValueError("no")

        async with world.client() as client:
            await client.producer().send("t", b"x")
            world.script[36] = [1] * 3
            world.script[310] = [1] * 9
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await world.until(lambda: len(tries) == 5, 300)
        assert [topic for _, topic in tries] == ["t"] * 4 + ["%RETRY%c"]

    run_simulated(case)


@pytest.mark.parametrize("kind", ["plain", "ordered", "by key", "pop"])
def test_dead_letter_says_why_when_and_where_it_failed(
    run_simulated: Callable[..., Any], kind: str
) -> None:
    options: dict[str, Any] = {"ordered": {"ordered": True}, "by key": {"order_by_key": True}}
    expected = {
        b'"raise"': ("LookupError", "no such sku"),
        b'"say"': ("ToDLQ", "why"),
        b'"nack"': (None, "the consumer called nack()"),
        b"broken": ("UnreadableBodyError", "cannot be read"),
    }

    async def handler(body: str, message: ReceivedMessage) -> None:
        if body == "nack":
            await message.nack(-1)
        if body == "say":
            raise rocketpy.ToDLQ("why")
        if body == "raise":
            raise LookupError("no such sku")

    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        dead: dict[bytes, ReceivedMessage] = {}

        async def bury(message: ReceivedMessage) -> None:
            dead[message.body] = message

        async with world.client() as client:
            began_ms = world.clock.time_ms()
            for body in expected:
                await client.producer().send("t", body, headers={"mine": "kept"})
            make = client.pop_consumer if kind == "pop" else client.consumer
            async with (
                make(
                    "t",
                    group="c",
                    start="earliest",
                    handler=handler,
                    max_retries=0,
                    serializer=rocketpy.json,
                    **options.get(kind, {}),
                ),
                client.consumer("%DLQ%c", group="d", start="earliest", handler=bury),
            ):
                await world.until(lambda: len(dead) == len(expected))
            for body, (exception, reason) in expected.items():
                properties = dead[body].properties
                assert properties.get("DLQ_EXCEPTION") == exception
                assert reason in properties["DLQ_REASON"]
                assert began_ms <= int(properties["DLQ_TIME"]) <= world.clock.time_ms()
                assert properties["DLQ_MEMBER"] == client.client_id
                assert dead[body].headers == {"mine": "kept"}

    run_simulated(case)


@pytest.mark.parametrize("kind", ["plain", "ordered", "pop"])
def test_backoff_sets_the_delays_of_retries(run_simulated: Callable[..., Any], kind: str) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=1)
        times_s: list[float] = []

        async def handler(message: ReceivedMessage) -> None:
            times_s.append(world.clock.time_ms() / 1000)
            if message.retries == 2:
                raise rocketpy.Retry(delay=50)
            raise ValueError

        async with world.client() as client:
            await client.producer().send("t", b"x")
            make = client.pop_consumer if kind == "pop" else client.consumer
            options: dict[str, Any] = {"ordered": True} if kind == "ordered" else {}
            async with make(
                "t",
                group="c",
                start="earliest",
                handler=handler,
                max_retries=3,
                retry_backoff=lambda retry: 20 * retry,
                **options,
            ):
                await world.until(lambda: world.message_count("%DLQ%c") == 1, 600)
        gaps = [round(b - a) for a, b in itertools.pairwise(times_s)]
        if kind == "plain":
            assert gaps == [30, 60, 60], "the next levels"
        else:  # brokers take a few seconds to revive popped messages
            late_s = 4 if kind == "pop" else 0
            assert all(
                wanted <= gap <= wanted + late_s
                for gap, wanted in zip(gaps, [20, 40, 50], strict=True)
            )

    run_simulated(case)
