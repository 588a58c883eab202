"""Delayed messages of the official Java client."""

from rocketpy.proto.record.message import decode_message
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, wait_for


def test_delay_levels(any_java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = any_java.producer()
    (now,) = any_java.send(producer, topic, body="now")
    consumer = any_java.push(group, topic)
    any_java.receive(consumer, 1)
    (sent,) = any_java.send(producer, topic, body="later", delay=1, tags="a", key="k")
    assert sent["queueId"] in range(4)
    (got,) = any_java.receive(consumer, 1)
    assert servers.stored(topic) == 2
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


def test_timed_messages(any_java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = any_java.producer()
    any_java.send(producer, topic, body="now")
    consumer = any_java.push(group, topic)
    any_java.receive(consumer, 1)
    (sent,) = any_java.send(producer, topic, body="later", TIMER_DELAY_MS="4000")
    any_java.send(producer, topic, body="sooner", TIMER_DELAY_SEC="1")
    assert bool(sent["recallHandle"]) is (any_java.version == "5.4.0")
    got = any_java.receive(consumer, 2)
    assert [one["body"] for one in got] == ["sooner-0", "later-0"]
    properties = got[1]["properties"]
    assert properties["REAL_TOPIC"] == topic
    store = servers.broker().parts.store
    (at,) = store.query_index(topic, sent["msgId"], 9, 0, 1 << 62).phy_offsets
    record = store.look_message(at)
    assert record is not None
    stored = decode_message(record)
    late_ms = stored.store_timestamp_ms - stored.born_timestamp_ms - 4_000
    assert late_ms >= 0
    any_java.stop(consumer)


def test_recall(java: JavaClient, servers: Servers, topic: str) -> None:
    producer = java.producer()
    (kept,) = java.send(producer, topic, body="kept", TIMER_DELAY_MS="5000")
    (gone,) = java.send(producer, topic, body="gone", TIMER_DELAY_MS="5000")
    if java.version != "5.4.0":
        assert gone["recallHandle"] is None, "it cannot call messages back"
        return
    answer = java.do("recall", name=producer, topic=topic, handle=gone["recallHandle"])
    assert answer["msgId"] == gone["msgId"]
    wait_for(lambda: servers.stored(topic) == 1)
    store = servers.broker().parts.store
    assert len(store.query_index(topic, kept["msgId"], 9, 0, 1 << 62).phy_offsets) == 1
    # Half a second after both were due.
    due_ms = store.store_time_ms(topic, kept["queueId"], 0) + 500
    wait_for(lambda: servers.broker().parts.clock.time_ms() > due_ms)
    assert store.query_index(topic, gone["msgId"], 9, 0, 1 << 62).phy_offsets == []


def test_moment_too_far_away_is_refused(java: JavaClient, servers: Servers, topic: str) -> None:
    error = java.refused(java.producer(), topic, TIMER_DELAY_SEC="259201")
    assert (error["error"], error["code"]) == ("MQBrokerException", 13)
    assert servers.stored(topic) == 0
