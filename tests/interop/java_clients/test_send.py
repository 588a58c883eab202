"""Messages of all send methods of the official Java client, as the broker stores them."""

import zlib

from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for

TEXT = "grüße 订单 🙂"


def test_sync(any_java: JavaClient, servers: Servers, topic: str) -> None:
    response = any_java.do("producer", name=topic)
    assert response["serialization"] == ("ROCKETMQ" if any_java.binary else "JSON")
    sent = any_java.send(
        topic, topic, count=8, body=TEXT, tags="A,B", key="k", flag=7, user_city="münchen", user_n=1
    )
    # The topic did not exist: it got the four queues of TBW102, and all are used.
    assert {one["queueId"] for one in sent} == {0, 1, 2, 3}
    for queue_id in range(4):
        offsets = [one["queueOffset"] for one in sent if one["queueId"] == queue_id]
        assert offsets == list(range(len(offsets)))
    assert {one["broker"] for one in sent} == {"broker-a"}
    assert {one["regionId"] for one in sent} == {"DefaultRegion"}
    for by in ("msgId", "offsetMsgId"):
        (found,) = any_java.do("view", name=topic, topic=topic, id=sent[3][by])["messages"]
        assert found["body"] == f"{TEXT}-3"
        assert (found["tags"], found["keys"], found["flag"]) == ("B", "k-3 all", 7)
        assert (found["properties"]["city"], found["properties"]["n"]) == ("münchen", "1")
        assert found["properties"]["UNIQ_KEY"] == sent[3]["msgId"]
        assert found["bornHost"] == "127.0.0.1"
        assert (found["queueId"], found["queueOffset"]) == (
            sent[3]["queueId"],
            sent[3]["queueOffset"],
        )
    by_key = any_java.do("query", name=topic, topic=topic, key="all")["messages"]
    assert bodies(by_key) == [f"{TEXT}-{number}" for number in range(8)]
    by_key = any_java.do("query", name=topic, topic=topic, key="k-5")["messages"]
    assert bodies(by_key) == [f"{TEXT}-5"]
    assert servers.stored(topic) == 8


def test_async_oneway_batch(any_java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = any_java.producer()
    sent = any_java.send(producer, topic, mode="async", count=100, body="async")
    assert len({one["msgId"] for one in sent}) == 100
    any_java.send(producer, topic, mode="oneway", count=20, body="oneway")
    wait_for(lambda: servers.stored(topic) == 120)
    (batch,) = any_java.send(producer, topic, mode="batch", count=30, body="batch", tags="A,B")
    assert len(batch["msgId"].split(",")) == len(batch["offsetMsgId"].split(",")) == 30
    assert servers.stored(topic) == 150
    consumer = any_java.push(group, topic, batch=16)
    got = any_java.receive(consumer, 150)
    wanted = [("async", 100), ("oneway", 20), ("batch", 30)]
    assert bodies(got) == sorted(f"{kind}-{n}" for kind, count in wanted for n in range(count))
    in_batch = sorted(
        (one for one in got if one["body"].startswith("batch")), key=lambda one: one["queueOffset"]
    )
    assert {one["queueId"] for one in in_batch} == {batch["queueId"]}
    assert [one["body"] for one in in_batch] == [f"batch-{number}" for number in range(30)]
    assert [one["msgId"] for one in in_batch] == batch["msgId"].split(",")
    any_java.stop(consumer)


def test_large_bodies(any_java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = any_java.producer(max=8 << 20)
    for size in (4095, 4096, 200_000, 4_000_000):
        any_java.send(producer, topic, size=size)
    got = any_java.receive(any_java.push(group, topic), 4)
    assert sorted(one["bytes"] for one in got) == [4095, 4096, 200_000, 4_000_000]
    # The client compresses from 4096 bytes on, and that is how they are stored.
    flags = servers.sys_flags(topic)
    assert len(flags) == 4
    assert {stored_bytes for stored_bytes, flag in flags.items() if not flag & 1} == {4095}
    assert max(flags) < 200_000
    for one in got:
        body = b"body-0" + bytes(ord("a") + i % 23 for i in range(6, one["bytes"]))
        assert one["crc"] == zlib.crc32(body)


def test_too_large(java: JavaClient, servers: Servers, topic: str) -> None:
    own_limit = java.refused(java.producer(), topic, size=(4 << 20) + 1)
    assert own_limit["code"] == 13
    assert "4194304" in own_limit["text"]
    # A batch is not compressed, so a client with a higher limit reaches the broker's.
    error = java.refused(java.producer(max=8 << 20), topic, mode="batch", count=5, size=1 << 20)
    assert (error["error"], error["code"]) == ("MQBrokerException", 13)
    assert servers.stored(topic) == 0


def test_order_by_hash(java: JavaClient, topic: str) -> None:
    producer = java.producer()
    java.send(producer, topic, mode="queue", broker="broker-a", queue=0)
    # String.hashCode: "order-1" is -1207111310, "a" is 97; the remainder's absolute value.
    for argument, queue in (("order-1", 2), ("order-2", 1), ("a", 1), ("订单42", 1)):
        sent = java.send(producer, topic, mode="hash", argument=argument, count=5)
        assert {one["queueId"] for one in sent} == {queue}
        offsets = [one["queueOffset"] for one in sent]
        assert offsets == list(range(offsets[0], offsets[0] + 5))


def test_queue_ends_and_times(java: JavaClient, topic: str) -> None:
    producer = java.producer()
    where = {"mode": "queue", "broker": "broker-a", "queue": 2}
    java.send(producer, topic, **where, count=3)
    look = {"topic": topic, "broker": "broker-a", "queue": 2}
    (last,) = java.send(producer, topic, **where)
    (found,) = java.do("view", name=producer, topic=topic, id=last["offsetMsgId"])["messages"]
    ends = java.do("look", name=producer, **look, at=found["stored"] + 1)
    assert (ends["min"], ends["max"], ends["at"]) == (0, 4, 4)
    ends = java.do("look", name=producer, **look, at=0)
    assert ends["at"] == 0
    assert 0 < ends["earliest"] <= found["stored"]
    empty = java.do("look", name=producer, topic=topic, broker="broker-a", queue=1)
    assert (empty["min"], empty["max"]) == (0, 0)
