"""The official Java client and RocketPy's client exchange messages."""

import zlib

import pytest

import rocketpy
from rocketpy.client.config import Compression
from rocketpy.sync import connect
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for


def test_java_sends_python_consumes(
    any_java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = any_java.producer()
    any_java.send(producer, topic, count=12, tags="A,B,C", key="k", body="grüße", user_x="ü")
    any_java.send(producer, topic, size=100_000, tags="A")
    any_java.send(producer, topic, mode="batch", count=6, tags="A,C", body="batch")
    wanted = {f"grüße-{number}" for number in range(12) if number % 3 < 2}
    wanted |= {f"batch-{number}" for number in (0, 2, 4)} | {"large"}
    got: dict[str, rocketpy.ReceivedMessage] = {}
    with (
        connect(servers.namesrv, group=group) as client,
        client.consumer(topic, group=group, filter="A || B", start="earliest") as consumer,
    ):
        for message in consumer:
            large = len(message.body) == 100_000
            got["large" if large else message.body.decode()] = message
            if len(got) == len(wanted):
                break
    assert set(got) == wanted
    one = got["grüße-4"]
    assert (one.tag, one.keys, one.headers["x"]) == ("B", ["k-4", "all"], "ü")
    body = b"body-0" + bytes(ord("a") + i % 23 for i in range(6, 100_000))
    assert got["large"].body == body


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_python_sends_java_consumes(
    java: JavaClient, servers: Servers, topic: str, group: str, compression: Compression
) -> None:
    large = b"large " * 5_000
    with connect(servers.namesrv, group=group) as client:
        producer = client.producer(compression=compression)
        producer.send(topic, large, tag="A", keys=["k1", "k2"], headers={"city": "münchen"})
        producer.send(topic, "grüße 订单", tag="B")
        producer.send(topic, b"filtered", tag="C")
        producer.send_oneway(topic, b"oneway", tag="A")
        results = producer.send_batch(topic, [b"batch-0", b"batch-1"], tag="B")
    assert [result.status for result in results] == [rocketpy.SendStatus.SEND_OK] * 2
    consumer = java.push(group, topic, expression="A || B")
    got = java.receive(consumer, 5)
    (big,) = [one for one in got if one["bytes"] == len(large)]
    assert big["crc"] == zlib.crc32(large)
    assert big["sysFlag"] >> 8 & 7 == {"lz4": 1, "zstd": 2, "zlib": 3}[compression]
    assert (big["tags"], big["keys"]) == ("A", "k1 k2")
    assert big["properties"]["city"] == "münchen"
    small = [one for one in got if one is not big]
    assert bodies(small) == ["batch-0", "batch-1", "grüße 订单", "oneway"]
    batch = {one["msgId"] for one in small if one["body"].startswith("batch")}
    assert batch == {result.msg_id for result in results}
    java.stop(consumer)


def test_java_and_python_share_a_group(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer()
    java.send(producer, topic, count=4, body="before")
    consumer = java.push(group, topic)
    java.receive(consumer, 4)
    with (
        connect(servers.namesrv, group=group) as client,
        client.consumer(topic, group=group, start="earliest") as ours,
    ):
        wait_for(lambda: len(java.owned(consumer)) == 2)
        sent = java.send(producer, topic, count=12, body="shared")
        count = sum(one["queueId"] in java.owned(consumer) for one in sent)
        theirs = java.receive(consumer, count, only="shared")
        mine: list[str] = []
        for message in ours:
            if message.body.startswith(b"shared"):
                mine.append(message.body.decode())
            if len(mine) == 12 - count:
                break
    assert sorted(mine + bodies(theirs)) == sorted(f"shared-{number}" for number in range(12))
    wait_for(lambda: java.owned(consumer) == [0, 1, 2, 3])
    java.stop(consumer)


def test_one_offset_file_serves_java_and_ours_in_turn(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    """A broadcast member of the same name continues at the offset in the other's file."""
    producer, member = java.producer(), f"member-{topic}"

    def sent(body: str) -> list[str]:
        java.send(producer, topic, count=4, body=body)
        return [f"{body}-{number}" for number in range(4)]

    def to_java(wanted: list[str]) -> None:
        consumer = java.push(group, topic, model="broadcasting", name=member)
        assert bodies(java.receive(consumer, len(wanted))) == wanted
        java.stop(consumer)

    to_java(sent("first"))
    [file] = java.offset_dir.glob(f"*@{member}/{group}/offsets.json")
    address = file.parts[-3].partition("@")[0]
    wanted = sent("second")
    got: list[str] = []
    with (
        connect(servers.namesrv, group=group, instance_name=member, client_ip=address) as client,
        client.consumer(
            topic,
            group=group,
            broadcast=True,
            offset_dir=str(java.offset_dir),
            start="earliest",
            handler=lambda message: got.append(message.body.decode()),
        ),
    ):
        wait_for(lambda: len(got) == len(wanted))
    assert sorted(got) == wanted
    assert list(java.offset_dir.glob(f"*/{group}/offsets.json")) == [file]
    to_java(sent("third"))
