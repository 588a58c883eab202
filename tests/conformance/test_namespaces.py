"""A namespace is a part of every name that brokers see, and of none that users see."""

from collections.abc import Callable
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry
from tests.conformance.worlds import World


def test_namespaces_do_not_see_each_other(run: Callable[..., Any]) -> None:
    async def case(world: World) -> dict[str, list[tuple[str, bytes]]]:
        for topic in ("t", "one%t", "two%t"):
            world.create_topic(topic, queues=1)
        got: dict[str, list[tuple[str, bytes]]] = {}
        for namespace in ("", "one", "two"):
            async with world.client(namespace=namespace) as client:
                sent = await client.producer().send("t", b"of %s" % namespace.encode())
                assert sent.queue.topic == (f"{namespace}%t" if namespace else "t")
        for namespace in ("", "one", "two"):
            seen = got.setdefault(namespace, [])

            async def handler(message: ReceivedMessage, seen: Any = seen) -> None:
                assert message.headers == {}
                seen.append((message.topic, message.body))

            options: Any = {"group": "c", "start": "earliest", "handler": handler}
            async with world.client(namespace=namespace) as client:
                async with client.consumer("t", **options) as consumer:
                    await world.until(lambda seen=seen: bool(seen))  # type: ignore[misc]
                    assert consumer.group == (f"{namespace}%c" if namespace else "c")
        return got

    assert run(case) == {name: [("t", b"of %s" % name.encode())] for name in ("", "one", "two")}


def test_failed_message_comes_again_in_its_namespace(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[tuple[str, int]]:
        world.create_topic("ns%t", queues=1)
        seen: list[tuple[str, int]] = []

        async def handler(message: ReceivedMessage) -> None:
            seen.append((message.topic, message.retries))
            if not message.retries:
                raise Retry(1)

        async with world.client(namespace="ns") as client:
            await client.producer().send("t", b"x")
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await world.until(lambda: len(seen) == 2)
        return seen

    assert run(case) == [("t", 0), ("t", 1)]


def test_pull_consumer_and_a_batch_have_the_namespace_too(run: Callable[..., Any]) -> None:
    async def case(world: World) -> list[tuple[str, bytes]]:
        world.create_topic("ns%t", queues=1)
        async with world.client(namespace="ns") as client:
            await client.producer().send_batch("t", [b"1", b"2"])
            async with client.pull_consumer(group="c", start="earliest") as consumer:
                queues = await consumer.queues("t")
                assert [queue.topic for queue in queues] == ["ns%t"]
                await consumer.assign(queues)
                got: list[ReceivedMessage] = []
                while len(got) < 2:
                    got += await consumer.poll(timeout=5)
        return [(message.topic, message.body) for message in got]

    assert run(case) == [("t", b"1"), ("t", b"2")]
