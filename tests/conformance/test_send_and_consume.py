"""Messages are consumed once and in order, on simulated and real clusters."""

from collections.abc import Callable
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from tests.conformance.worlds import World

SEND_V2 = 310
MESSAGES = 40


def test_every_queue_arrives_in_order(run: Callable[..., Any]) -> None:
    async def case(world: World) -> dict[int, list[bytes]]:
        world.create_topic("t", queues=4)
        received: dict[int, list[bytes]] = {}

        async def handle(message: ReceivedMessage) -> None:
            received.setdefault(message.queue.queue_id, []).append(message.body)

        async with world.client() as client:
            consumer = client.consumer(
                "t", group="group", handler=handle, start="earliest", concurrency=1
            )
            await consumer.start()
            producer = client.producer()
            for number in range(MESSAGES):
                await producer.send("t", b"%d" % number)
            await world.until(lambda: sum(map(len, received.values())) >= MESSAGES)
        assert world.message_count("t") == MESSAGES
        return received

    received = run(case)
    assert sorted(int(body) for queue in received.values() for body in queue) == [*range(MESSAGES)]
    for queue in received.values():
        assert queue == sorted(queue, key=int)


def test_busy_broker_is_asked_again(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        world.script[SEND_V2] = [2]
        async with world.client() as client:
            await client.producer().send("t", b"x", timeout=10)
        assert len(world.of_code(SEND_V2)) == 2
        assert world.message_count("t") == 1

    run(case)


def test_broker_that_restarts_keeps_its_messages(run: Callable[..., Any]) -> None:
    async def case(world: World) -> None:
        world.create_topic("t")
        async with world.client() as client:
            producer = client.producer()
            await producer.send("t", b"before")
            await world.restart_broker()
            await producer.send("t", b"after", timeout=20)
        assert world.message_count("t") == 2

    run(case)
