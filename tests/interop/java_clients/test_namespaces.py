"""Namespaces of the official Java client: names of brokers have it, names of users do not."""

from rocketpy.sync import connect
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for


def test_namespace_keeps_to_itself_in_java_and_ours(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    inside, outside = java.producer(ns="NS"), java.producer()
    java.send(inside, topic, body="inside", tags="A", key="k")
    java.send(outside, topic, body="outside")
    assert (servers.stored(f"NS%{topic}"), servers.stored(topic)) == (1, 1)
    consumer = java.push(group, topic, ns="NS", expression="A")
    [got] = java.receive(consumer, 1)
    assert (got["topic"], got["body"]) == (topic, "inside-0")
    topics = {f"NS%{topic}", f"%RETRY%NS%{group}"}

    def reads_both() -> bool:
        return {one["topic"] for one in java.do("owned", name=consumer)["queues"]} == topics

    wait_for(reads_both)
    with (
        connect(servers.namesrv, group=group, namespace="NS") as client,
        client.consumer(topic, group=f"{group}2", start="earliest") as ours,
    ):
        message = next(iter(ours))
        assert (message.topic, message.body) == (topic, b"inside-0")
        client.producer().send(topic, b"ours", tag="A")
    [back] = java.receive(consumer, 1)
    assert (back["topic"], back["body"]) == (topic, "ours")
    java.stop(consumer)
    other = java.push(group, topic)
    assert bodies(java.receive(other, 1)) == ["outside-0"]
    java.stop(other)


def test_failed_message_comes_again_in_its_namespace(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    java.send(java.producer(ns="NS"), topic)
    consumer = java.push(group, topic, ns="NS", fail=1, level=1)
    [got] = java.receive(consumer, 1)
    assert (got["topic"], got["reconsumeTimes"]) == (topic, 1)
    assert servers.stored(f"%RETRY%NS%{group}") == 1
    java.stop(consumer)


def test_transaction_in_a_namespace_is_decided_and_checked(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer(kind="transaction", ns="NS")
    for body in ("commit", "rollback", "unknown commit"):
        java.send(producer, topic, body=body, mode="transaction")
    consumer = java.push(group, topic, ns="NS")
    assert bodies(java.receive(consumer, 2)) == ["commit-0", "unknown commit-0"]
    assert servers.stored(f"NS%{topic}") == 2
    java.stop(consumer)
    java.stop(producer)


def test_broadcasting_in_a_namespace(java: JavaClient, topic: str, group: str) -> None:
    java.send(java.producer(ns="NS"), topic, count=4)
    consumer = java.push(group, topic, ns="NS", model="broadcasting")
    assert bodies(java.receive(consumer, 4)) == [f"body-{number}" for number in range(4)]
    java.stop(consumer)


def test_namespace_v2_is_sent_beside_names(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    """`setNamespaceV2` (5.x) changes no name: it is for the proxy, as with Apache's broker."""
    producer = java.producer(ns2="NS")
    java.send(producer, topic, body="second")
    assert servers.stored(topic) == 1
    consumer = java.push(group, topic, ns2="NS")
    [got] = java.receive(consumer, 1)
    assert (got["topic"], got["body"]) == (topic, "second-0")
    java.stop(consumer)
