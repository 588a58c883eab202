"""The official push consumer in pop mode, as Apache's example sets it."""

from rocketpy.proto.bodies.group import SetMessageRequestModeRequestBody
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.conftest import Start
from tests.interop.java_clients.jvm import wait_for


def test_push_consumers_in_pop_mode(
    clients: Start, servers: Servers, topic: str, group: str
) -> None:
    java = clients("5.4.0", False)  # 4.9 cannot pop
    producer = java.producer()
    java.send(producer, topic, count=20, body="m", tags="a")
    parts = servers.broker().parts
    assert parts.modes.put(SetMessageRequestModeRequestBody(topic, group, "POP", 8))
    first = java.push(group, topic, pop=1)
    second = java.push(group, topic, pop=1)
    got: list[str] = []

    def has_all() -> bool:
        for consumer in (first, second):
            got.extend(one["body"] for one in java.received(consumer))
        return len(set(got)) == 20

    wait_for(has_all)
    assert len(got) == 20, "none is popped twice"
    (sent,) = java.send(producer, topic, body="later")
    wait_for(lambda: has_all() or "later-0" in got)
    assert sent["msgId"]
    for consumer in (first, second):
        java.stop(consumer)


def test_popped_message_is_redelivered_after_listener_failure(
    clients: Start, servers: Servers, topic: str, group: str
) -> None:
    java = clients("5.4.0", False)  # 4.9 cannot pop
    producer = java.producer()
    java.send(producer, topic, body="once")
    parts = servers.broker().parts
    assert parts.modes.put(SetMessageRequestModeRequestBody(topic, group, "POP", 8))
    consumer = java.push(group, topic, pop=1, fail=1)
    (found,) = java.receive(consumer, 1)
    assert (found["body"], found["reconsumeTimes"]) == ("once-0", 1)
    java.stop(consumer)
