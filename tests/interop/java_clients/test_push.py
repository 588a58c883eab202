"""Push consumers of the official Java client."""

from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.conftest import Start
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for


def test_all_and_by_tag(any_java: JavaClient, topic: str, group: str) -> None:
    producer = any_java.producer()
    any_java.send(producer, topic, count=30, tags="A,B,C", key="k", user_x="ü")
    everything = any_java.push(group, topic)
    some = any_java.push(group + "_tags", topic, expression="A || B")
    got = any_java.receive(everything, 30)
    assert bodies(got) == sorted(f"body-{number}" for number in range(30))
    assert {one["properties"]["x"] for one in got} == {"ü"}
    assert {one["reconsumeTimes"] for one in got} == {0}
    got = any_java.receive(some, 20)
    assert bodies(got) == sorted(f"body-{number}" for number in range(30) if number % 3 < 2)
    # Both now wait at the broker: what comes is told at once.
    any_java.send(producer, topic, count=3, tags="A,B,C", body="later")
    assert bodies(any_java.receive(everything, 3)) == ["later-0", "later-1", "later-2"]
    assert bodies(any_java.receive(some, 2)) == ["later-0", "later-1"]
    any_java.stop(everything)
    any_java.stop(some)


def test_by_condition(any_java: JavaClient, topic: str, group: str) -> None:
    producer = any_java.producer()
    for delay, carrier in ((70, "UA"), (70, "AA"), (50, "UA"), ("late", "UA")):
        any_java.send(producer, topic, body=f"{delay}{carrier}", user_delay=delay, user_by=carrier)
    some = any_java.push(group, topic, sql="delay BETWEEN 60 AND 80 AND by = 'UA'")
    assert bodies(any_java.receive(some, 1)) == ["70UA-0"]
    # It waits at the broker now: what meets the condition is told at once.
    any_java.send(producer, topic, body="no", user_delay=90, user_by="UA")
    any_java.send(producer, topic, body="yes", user_delay=80, user_by="UA")
    assert bodies(any_java.receive(some, 1)) == ["yes-0"]
    any_java.stop(some)


def test_members_share_and_take_over(java: JavaClient, topic: str, group: str) -> None:
    producer = java.producer()
    java.send(producer, topic, count=4, body="before")
    first = java.push(group, topic)
    java.receive(first, 4)
    second = java.push(group, topic)
    wait_for(lambda: len(java.owned(first)) == len(java.owned(second)) == 2)
    assert sorted(java.owned(first) + java.owned(second)) == [0, 1, 2, 3]
    sent = java.send(producer, topic, count=20, body="shared")
    mine = sum(one["queueId"] in java.owned(first) for one in sent)
    # The second may get again what the first had not yet said that it has done.
    got_first = java.receive(first, mine, only="shared")
    got_second = java.receive(second, 20 - mine, only="shared")
    assert bodies(got_first + got_second) == sorted(f"shared-{number}" for number in range(20))
    java.stop(first)
    wait_for(lambda: java.owned(second) == [0, 1, 2, 3])
    java.send(producer, topic, count=8, body="alone")
    assert bodies(java.receive(second, 8, only="alone")) == [
        f"alone-{number}" for number in range(8)
    ]
    java.stop(second)


def test_offsets_survive_restarts(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer()
    java.send(producer, topic, count=8, body="first")
    consumer = java.push(group, topic)
    java.receive(consumer, 8)
    java.stop(consumer)
    java.send(producer, topic, count=4, body="second")
    consumer = java.push(group, topic)
    assert bodies(java.receive(consumer, 4)) == [f"second-{number}" for number in range(4)]
    java.stop(consumer)
    servers.restart_broker()
    # The clients' connections are gone; the first send finds that out and the next attempt works.
    java.send(producer, topic, count=4, body="third")
    consumer = java.push(group, topic)
    assert bodies(java.receive(consumer, 4)) == [f"third-{number}" for number in range(4)]
    java.stop(consumer)


def test_running_consumer_survives_a_broker_restart(
    clients: Start, servers: Servers, topic: str, group: str
) -> None:
    # 5.4.0 sees the lost connection; 4.9.8 waits until its pull's 30 s are over, with any broker.
    java = clients("5.4.0", False)
    producer = java.producer()
    java.send(producer, topic, count=4, body="before")
    consumer = java.push(group, topic)
    java.receive(consumer, 4)
    servers.restart_broker()
    java.send(producer, topic, count=4, body="after")
    got: set[str] = set()

    def has_all() -> bool:
        got.update(one["body"] for one in java.received(consumer))
        return got >= {f"after-{number}" for number in range(4)}

    wait_for(has_all)
    java.stop(consumer)


def test_broadcasting(java: JavaClient, topic: str, group: str) -> None:
    producer = java.producer()
    java.send(producer, topic, count=6)
    consumers = [java.push(group, topic, model="broadcasting") for _ in range(2)]
    for consumer in consumers:
        assert bodies(java.receive(consumer, 6)) == [f"body-{number}" for number in range(6)]
        assert java.owned(consumer) == [0, 1, 2, 3]
        java.stop(consumer)
    again = java.push(group, topic, model="broadcasting")
    assert bodies(java.receive(again, 6)) == [f"body-{number}" for number in range(6)]
    java.stop(again)


def test_orderly(java: JavaClient, servers: Servers, topic: str, group: str) -> None:
    producer = java.producer()
    sent = java.send(producer, topic, count=40)
    consumer = java.push(group, topic, listener="orderly", fail=2)
    got = java.receive(consumer, 40)
    # Two deliveries were suspended: their queues waited, and nothing overtook.
    for queue_id in range(4):
        offsets = [one["queueOffset"] for one in got if one["queueId"] == queue_id]
        assert offsets == [one["queueOffset"] for one in sent if one["queueId"] == queue_id]
    # A second member gets queues only when the first has given their locks back.
    second = java.push(group, topic, listener="orderly")
    wait_for(lambda: len(java.owned(consumer)) == len(java.owned(second)) == 2)
    sent = java.send(producer, topic, count=20, body="two")
    both: list[str] = []
    order: dict[int, list[int]] = {}

    def has_all() -> bool:
        for one in java.received(consumer) + java.received(second):
            both.append(one["body"])
            order.setdefault(one["queueId"], []).append(one["queueOffset"])
        return len(both) >= 20

    wait_for(has_all)
    assert sorted(both) == sorted(f"two-{number}" for number in range(20))
    for queue_id, offsets in order.items():
        assert offsets == [one["queueOffset"] for one in sent if one["queueId"] == queue_id]
    java.stop(consumer)
    wait_for(lambda: java.owned(second) == [0, 1, 2, 3])
    java.stop(second)


def test_failed_messages_come_again(java: JavaClient, topic: str, group: str) -> None:
    producer = java.producer()
    sent = {one["msgId"] for one in java.send(producer, topic, count=6)}
    consumer = java.push(group, topic, fail=3)
    # The broker chooses the delay: level 3, 10 s.
    got = java.receive(consumer, 6)
    assert bodies(got) == [f"body-{number}" for number in range(6)]
    assert sorted(one["reconsumeTimes"] for one in got) == [0, 0, 0, 1, 1, 1]
    assert {one["topic"] for one in got} == {topic}
    assert {one["msgId"] for one in got} == sent
    again = [one["properties"] for one in got if one["reconsumeTimes"]]
    assert {(one["DELAY"], one["RETRY_TOPIC"]) for one in again} == {("3", topic)}
    java.stop(consumer)


def test_message_that_always_fails_becomes_dead_letter(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer()
    java.send(producer, topic, count=2)
    consumer = java.push(group, topic, fail=5, level=1, tries=1)
    wait_for(lambda: servers.stored("%DLQ%" + group) == 2)
    assert not java.received(consumer), "each failed twice"
    java.send(producer, topic, body="later")
    assert [one["reconsumeTimes"] for one in java.receive(consumer, 1)] == [1]
    java.stop(consumer)
    undertaker = java.push(group + "_dead", "%DLQ%" + group)
    dead = java.receive(undertaker, 2)
    assert bodies(dead) == ["body-0", "body-1"]
    assert {one["reconsumeTimes"] for one in dead} == {2}
    assert {one["properties"]["RETRY_TOPIC"] for one in dead} == {topic}
    java.stop(undertaker)


def test_ordered_what_fails_is_dead_at_once(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer()
    java.send(producer, topic, count=4)
    consumer = java.push(group, topic, listener="orderly", fail=4, tries=0)
    # The client sends it to the retry topic; the broker sees that the group holds locks.
    wait_for(lambda: servers.stored("%DLQ%" + group) == 4)
    assert servers.stored("%RETRY%" + group) == 0
    java.send(producer, topic, body="later")
    assert bodies(java.receive(consumer, 1)) == ["later-0"]
    java.stop(consumer)


def test_broadcast_consumer_continues_at_its_offset(
    java: JavaClient, topic: str, group: str
) -> None:
    producer = java.producer()
    java.send(producer, topic, count=4)
    consumer = java.push(group, topic, model="broadcasting")
    java.receive(consumer, 4)
    java.stop(consumer)
    java.send(producer, topic, count=4, body="later")
    again = java.push(group, topic, model="broadcasting", name=consumer)
    assert bodies(java.receive(again, 4)) == [f"later-{number}" for number in range(4)]
    java.stop(again)
