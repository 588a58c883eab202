"""A JavaScript client against our servers: all that it can do. Its topics have to exist."""

import asyncio
from collections.abc import Iterator

import pytest

import rocketpy
import rocketpy.admin
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import bodies
from tests.interop.other_clients.node_client import NodeClient, install

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

TOPICS = ("Tags", "Sql", "Delay", "Fails", "Everyone", "FromNode", "ToNode")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    settings = {"messageDelayLevel": "1s 1s 1s 1s 1s"}
    with Servers(tmp_path_factory.mktemp("servers"), properties=settings) as found:
        asyncio.run(_make_topics(found.namesrv))
        yield found


async def _make_topics(namesrv: str) -> None:
    async with rocketpy.admin.connect(namesrv) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, queues=2)


@pytest.fixture(scope="module")
def node(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeClient]:
    client = NodeClient(install(tmp_path_factory.mktemp("node")), servers.namesrv)
    yield client
    client.close()


def test_send_and_push_by_tags(node: NodeClient) -> None:
    producer = node.producer()
    common = {"key": "k", "property_colour": "grün"}
    sent = node.send(producer, "Tags", "a", count=3, tags="A", **common)
    node.send(producer, "Tags", "b", tags="B", **common)
    node.send(producer, "Tags", "c", tags="C", **common)
    node.send(producer, "Tags", "large", size=20_000, tags="A")  # the client compresses it
    consumer = node.push("nodeTags", "Tags", tags="A || B")
    got = node.take(consumer, 5)
    assert bodies(got) == ["a-0", "a-1", "a-2", "b-0", "large-0xxx...20000"]
    by_body = {one["body"]: one for one in got}
    assert [by_body[f"a-{number}"]["msgId"] for number in range(3)] == sent
    assert (by_body["a-2"]["tag"], by_body["a-2"]["keys"]) == ("A", "k")
    assert by_body["a-2"]["properties"]["colour"] == "grün"
    node.stop(consumer, producer)


def test_push_by_a_condition(node: NodeClient) -> None:
    producer = node.producer()
    for amount in (10, 50, 90):
        node.send(producer, "Sql", str(amount), property_amount=amount, property_region="eu")
    node.send(producer, "Sql", "other", property_amount=95, property_region="us")
    consumer = node.push("nodeSql", "Sql", sql="amount > 20 AND region = 'eu'")
    assert bodies(node.take(consumer, 2)) == ["50-0", "90-0"]
    node.stop(consumer, producer)


def test_delay_levels(node: NodeClient) -> None:
    producer = node.producer()
    consumer = node.push("nodeDelay", "Delay")
    node.send(producer, "Delay", "later", delay=2, tags="a")
    (got,) = node.take(consumer, 1)
    assert (got["body"], got["tag"], got["topic"]) == ("later-0", "a", "Delay")
    assert got["stored"] - got["born"] >= 1_000
    node.stop(consumer, producer)


def test_failed_message_is_redelivered(node: NodeClient) -> None:
    producer = node.producer()
    node.send(producer, "Fails", "twice")
    consumer = node.push("nodeFails", "Fails", fails=2)
    got = node.take(consumer, 3)
    assert [(one["body"], one["topic"], one["reconsumeTimes"]) for one in got] == [
        ("twice-0", "Fails", number) for number in range(3)
    ]
    node.stop(consumer, producer)


def test_broadcasting(node: NodeClient) -> None:
    producer = node.producer()
    node.send(producer, "Everyone", "all", count=4)
    consumers = [node.push("nodeEveryone", "Everyone", broadcast="true") for _ in range(2)]
    for consumer in consumers:
        assert bodies(node.take(consumer, 4)) == [f"all-{number}" for number in range(4)]
    node.stop(*consumers, producer)


def test_node_and_ours_read_each_other(node: NodeClient, servers: Servers) -> None:
    producer = node.producer()
    sent = node.send(producer, "FromNode", "x", tags="t", key="k", size=5_000, property_a="ä")
    node.stop(producer)

    async def ours() -> rocketpy.ReceivedMessage:
        async with rocketpy.connect(servers.namesrv) as client:
            await client.producer().send(
                "ToNode", b"y" * 50, tag="u", keys=["1"], headers={"b": "ö"}
            )
            async with client.consumer("FromNode", group="ours", start="earliest") as consumer:
                async for message in consumer:
                    return message
        raise AssertionError("the consumer ended")

    message = asyncio.run(ours())
    assert (message.body, message.tag, message.keys) == (b"x-0".ljust(5_000, b"x"), "t", ["k"])
    assert message.headers["a"] == "ä"
    assert sent == [message.offset_id]
    consumer = node.push("nodeReads", "ToNode")
    (got,) = node.take(consumer, 1)
    assert (got["body"], got["tag"], got["keys"]) == ("y" * 50, "u", "1")
    assert got["properties"]["b"] == "ö"
    node.stop(consumer)
