"""Once a consumer has started, nothing that is sent is missed, wherever its group begins."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from rocketpy.errors import SubscriptionParseError
from tests.conformance.worlds import World

PULL, POP, MEMBERS_OF, QUERY_ASSIGNMENT = 11, 200050, 38, 400
OLD, NEW = [b"old %d" % n for n in range(8)], {b"new %d" % n for n in range(8)}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "push": ("consumer", {}),
    "ordered": ("consumer", {"ordered": True}),
    "by key": ("consumer", {"order_by_key": True}),
    "broadcast": ("consumer", {"broadcast": True}),
    "pop": ("pop_consumer", {}),
    "pop in order": ("pop_consumer", {"ordered": True}),
}


def make(client: rocketpy.Client, kind: str, got: set[bytes], directory: Path) -> Any:
    method, options = KINDS[kind]

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        got.add(message.body)

    if kind == "broadcast":
        options = {**options, "offset_dir": str(directory)}
    return getattr(client, method)("t", group="c", start="latest", handler=handle, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_message_sent_after_the_start_is_received(
    run: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    async def case(world: World) -> set[bytes]:
        world.create_topic("t", queues=4)
        got: set[bytes] = set()
        async with world.client() as client:
            producer = client.producer()
            for body in OLD:
                await producer.send("t", body)
            async with make(client, kind, got, tmp_path) as consumer:
                assert {queue.topic for queue in consumer.assignment} >= {"t"}
                await producer.send_batch("t", sorted(NEW))
                await world.until(lambda: got >= NEW)
        return got

    got = run(case)
    assert got >= NEW
    if KINDS[kind][0] == "consumer":  # who pops from the end is given a young queue whole
        assert got == NEW


def test_poll_returns_messages_sent_after_subscribe(
    run: Callable[..., Any],
) -> None:
    async def case(world: World) -> list[bytes]:
        for topic in ("t", "u"):
            world.create_topic(topic, queues=2)
        async with world.client() as client:
            producer = client.producer()
            got: list[bytes] = []
            async with client.pull_consumer(group="c", start="latest") as consumer:
                for topic in ("t", "u"):
                    await producer.send(topic, b"old")
                    await consumer.subscribe(topic)
                    await producer.send(topic, topic.encode())
                while len(got) < 2:
                    got += [message.body for message in await consumer.poll(timeout=5)]
        return sorted(got)

    assert run(case) == [b"t", b"u"]


def test_responder_answers_the_request_that_follows_its_start(run: Callable[..., Any]) -> None:
    async def case(world: World) -> bytes:
        world.create_topic("quotes")

        async def quote(message: rocketpy.ReceivedMessage) -> bytes:
            return message.body + b"!"

        async with world.client() as shop, world.client() as pricing:
            async with pricing.responder("quotes", group="pricing", handler=quote):
                return (await shop.producer().request("quotes", b"q", timeout=20)).body

    assert run(case) == b"q!"


@pytest.mark.parametrize("kind", ["push", "broadcast", "pop"])
def test_topic_that_does_not_exist_does_not_hold_the_start_up(
    run: Callable[..., Any], tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(world: World) -> set[bytes]:
        got: set[bytes] = set()
        async with world.client() as client:
            async with asyncio.timeout(4), make(client, kind, got, tmp_path):
                await asyncio.sleep(0)
            began_ms = world.clock.monotonic_ms()
            async with make(client, kind, got, tmp_path):
                assert world.clock.monotonic_ms() - began_ms < 4_000, "not its start_timeout_s"
                await client.producer().send("t", b"first")
                await world.until(lambda: bool(got))
        return got

    assert run(case) == {b"first"}
    assert "start position still unknown" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "code"), [("push", MEMBERS_OF), ("pop", QUERY_ASSIGNMENT), ("pop", POP)]
)
def test_brokers_that_say_nothing_are_waited_for_and_warned_of(
    run_simulated: Callable[..., Any],
    tmp_path: Path,
    kind: str,
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case(world: World) -> tuple[float, set[bytes]]:
        world.create_topic("t")
        got: set[bytes] = set()
        world.script[code] = [1] * 40  # members are asked for twice a round
        async with world.client() as client:
            began_ms = world.clock.monotonic_ms()
            async with make(client, kind, got, tmp_path):
                waited_s = (world.clock.monotonic_ms() - began_ms) / 1000
                await world.until(lambda: not world.script[code], 600)
                await asyncio.sleep(30)
                await client.producer().send("t", b"new")
                await world.until(lambda: bool(got))
        return waited_s, got

    with caplog.at_level(logging.WARNING):
        waited_s, got = run_simulated(case)
    assert round(waited_s) == 5
    assert got == {b"new"}
    assert caplog.text.count("start position still unknown") == 1


def test_broker_that_comes_back_during_the_start_is_enough(
    run_simulated: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def case(world: World) -> set[bytes]:
        world.create_topic("t")
        got: set[bytes] = set()
        world.script[MEMBERS_OF] = [1, 1, 1, 1]
        async with world.client() as client:
            async with make(client, "push", got, tmp_path):
                await client.producer().send("t", b"new")
                await world.until(lambda: bool(got))
        return got

    assert run_simulated(case) == {b"new"}
    assert "start position still unknown" not in caplog.text


def test_start_that_is_cancelled_leaves_no_member(
    run_simulated: Callable[..., Any], tmp_path: Path
) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        world.script[MEMBERS_OF] = [1] * 20
        async with world.client() as client:
            consumer = make(client, "push", set(), tmp_path)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await consumer.start()
            await consumer.wait_closed()
            assert client.health().consumers == {}
            world.script[MEMBERS_OF] = []
            async with make(client, "push", set(), tmp_path) as other:
                assert other.assignment

    run_simulated(case)


def test_popping_by_a_condition_that_the_broker_does_not_take_is_refused_at_the_start(
    run: Callable[..., Any],
) -> None:
    async def case(world: World) -> SubscriptionParseError:
        world.create_topic("t")
        world.script[46] = [23]
        async with world.client() as client:
            with pytest.raises(SubscriptionParseError) as caught:
                await client.pop_consumer("t", group="c", sql="a > 1").start()
        assert caught.value.code == 23
        return caught.value

    run(case)


def test_popping_by_a_condition(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[bytes]:
        world.create_topic("t", queues=2)
        got: list[bytes] = []

        async def handle(message: rocketpy.PoppedMessage) -> None:
            got.append(message.body)

        async with world.client() as client:
            options: dict[str, Any] = {"group": "c", "sql": "size > 5", "handler": handle}
            async with client.pop_consumer("t", start="earliest", **options) as consumer:
                for size in (1, 9, 2, 8):
                    await client.producer().send("t", b"%d" % size, headers={"size": str(size)})
                await world.until(lambda: len(got) == 2)
                await world.until(lambda: not consumer.in_hand)
        return sorted(got)

    assert run(case) == [b"8", b"9"]
