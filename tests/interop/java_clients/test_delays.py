"""Delayed messages of the official Java client."""

from rocketpy.proto.message import decode_message
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient


def test_delay_levels(any_java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = any_java.producer()
    (now,) = any_java.send(producer, topic, body="now")
    consumer = any_java.push(group, topic)
    any_java.receive(consumer, 1)
    (sent,) = any_java.send(producer, topic, body="later", delay=1, tags="a", key="k")
    assert sent["queueId"] in range(4)
    assert servers.stored(topic) == 1, "it waits elsewhere"
    (got,) = any_java.receive(consumer, 1)
    assert (got["body"], got["tags"], got["msgId"]) == ("later-0", "a", sent["msgId"])
    properties = got["properties"]
    assert (properties["DELAY"], properties["REAL_TOPIC"]) == ("1", topic)
    store = servers.broker().parts.store
    (waited_from,) = store.query_index(
        "SCHEDULE_TOPIC_XXXX", sent["msgId"], 9, 0, 1 << 62
    ).phy_offsets
    (came_at,) = store.query_index(topic, sent["msgId"], 9, 0, 1 << 62).phy_offsets
    records = [store.look_message(at) for at in (waited_from, came_at)]
    times = [decode_message(each).store_timestamp_ms for each in records if each is not None]
    assert times[1] - times[0] >= 1_000
    assert now["msgId"] != sent["msgId"]
    any_java.stop(consumer)
