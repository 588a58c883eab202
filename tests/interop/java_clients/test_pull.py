"""Lite pull and the old pull consumer, positions and times."""

from tests.interop.java_clients.jvm import JavaClient, bodies

BROKER = "broker-a"


def test_lite_subscribe(java: JavaClient, topic: str, group: str) -> None:
    producer = java.producer()
    java.send(producer, topic, count=30, tags="A,B,C")
    name = "s" + group
    assert (
        len(java.do("lite", name=name, group=group, topic=topic, expression="A || C")["queues"])
        == 4
    )
    got = java.poll(name, 20)
    assert bodies(got) == sorted(f"body-{number}" for number in range(30) if number % 3 != 1)
    java.stop(name)


def test_lite_assign_seek_commit(java: JavaClient, topic: str, group: str) -> None:
    producer = java.producer()
    where = {"mode": "queue", "broker": BROKER, "queue": 1}
    queue = {"topic": topic, "broker": BROKER, "queue": 1}
    sent = java.send(producer, topic, **where, count=10)
    name = "a" + group
    java.do("lite", name=name, group=group, topic=topic)
    assert bodies(java.poll(name, 10)) == [f"body-{number}" for number in range(10)]
    java.do("seek", name=name, **queue, offset=7)
    assert bodies(java.poll(name, 3)) == ["body-7", "body-8", "body-9"]
    (message,) = java.do("view", name=producer, topic=topic, id=sent[4]["offsetMsgId"])["messages"]
    moved = java.do("seek", name=name, **queue, at=message["stored"])["offset"]
    assert moved <= 4
    assert len(java.poll(name, 10 - moved)) == 10 - moved
    assert java.do("commit", name=name, **queue)["committed"] == 10
    java.stop(name)
    # Another member of the group goes on where this one stopped.
    java.send(producer, topic, **where, body="later")
    java.do("lite", name=name, group=group, topic=topic)
    assert bodies(java.poll(name, 1)) == ["later-0"]
    java.stop(name)


def test_old_pull(any_java: JavaClient, topic: str, group: str) -> None:
    producer = any_java.producer()
    where = {"mode": "queue", "broker": BROKER, "queue": 0}
    any_java.send(producer, topic, **where, count=10, tags="A,B")
    queue = {"group": group, "topic": topic, "broker": BROKER, "queue": 0}
    first = any_java.do("pull", **queue, offset=0, count=4)
    assert (first["status"], first["next"], first["min"], first["max"]) == ("FOUND", 4, 0, 10)
    assert [one["body"] for one in first["messages"]] == [f"body-{number}" for number in range(4)]
    tagged = any_java.do("pull", **queue, offset=4, expression="B")
    assert [one["body"] for one in tagged["messages"]] == ["body-5", "body-7", "body-9"]
    nothing = any_java.do("pull", **queue, offset=0, expression="none")
    assert (nothing["status"], nothing["next"]) == ("NO_MATCHED_MSG", 10)
    end = any_java.do("pull", **queue, offset=10)
    assert (end["status"], end["next"]) == ("NO_NEW_MSG", 10)
    beyond = any_java.do("pull", **queue, offset=99)
    assert (beyond["status"], beyond["next"]) == ("OFFSET_ILLEGAL", 10)
    any_java.stop(group)
