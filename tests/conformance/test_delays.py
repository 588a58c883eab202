"""Delayed messages come when they are due, on either kind of cluster."""

from collections.abc import Callable
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from tests.conformance.worlds import World


def test_delay_levels(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=2)
        received: dict[bytes, tuple[int, ReceivedMessage]] = {}

        async def handle(message: ReceivedMessage) -> None:
            received[message.body] = world.clock.time_ms(), message

        async with world.client() as client:
            await client.consumer("t", group="g", handler=handle, start="earliest").start()
            producer = client.producer()
            sent_ms = {}
            for level in (2, 1, 0):
                body = b"level %d" % level
                sent_ms[body] = world.clock.time_ms()
                await producer.send("t", body, delay_level=level, tag="a")
            await world.until(lambda: len(received) == 3)
        for body, level_ms in ((b"level 2", 5_000), (b"level 1", 1_000), (b"level 0", 0)):
            came_ms, message = received[body]
            assert came_ms - sent_ms[body] >= level_ms
            assert (message.topic, message.tag) == ("t", "a")
        assert world.message_count("t") == 3

    run(case)


def test_restart_loses_no_delayed_message(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        async with world.client() as client:
            producer = client.producer()
            await producer.send("t", b"x", delay_level=1)
            await world.restart_broker()
            await world.until(lambda: world.message_count("t") == 1)

    run(case)


def test_timed_messages_come_to_the_moment(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t", queues=2)
        received: dict[bytes, int] = {}

        async def handle(message: ReceivedMessage) -> None:
            received[message.body] = world.clock.time_ms()

        async with world.client() as client:
            await client.consumer("t", group="g", handler=handle, start="earliest").start()
            producer = client.producer()
            wanted = {}
            for delay_ms in (2_350, 400, 1_100):
                body = b"%d" % delay_ms
                wanted[body] = world.clock.time_ms() + delay_ms
                sent = await producer.send("t", body, delay=delay_ms / 1_000)
                assert sent.recall_handle
            await world.until(lambda: len(received) == 3)
        assert [*received] == sorted(received, key=int)
        for body, came_ms in received.items():
            assert came_ms >= wanted[body]

    run(case)


def test_restart_loses_no_timed_message(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        async with world.client() as client:
            producer = client.producer()
            await producer.send("t", b"x", delay=1.5)
            await world.restart_broker()
            await world.until(lambda: world.message_count("t") == 1)

    run(case)
