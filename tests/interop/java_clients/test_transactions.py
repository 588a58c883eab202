"""Transactions of the official Java client."""

from rocketpy.broker.transaction.op_messages import parse_op_body
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for


def _system(servers: Servers, topic: str) -> int:
    return servers.broker().parts.store.max_offset(topic, 0)


def test_every_end_of_a_transaction(
    any_java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    """Commit, rollback, and unknown, which the broker asks about."""
    producer = any_java.producer(kind="transaction")
    any_java.send(any_java.producer(), topic, body="plain")
    consumer = any_java.push(group, topic)
    before = _system(servers, TRANS_HALF_TOPIC)
    (sent,) = any_java.send(producer, topic, body="commit", mode="transaction", tags="a", key="k")
    for body in ("rollback", "unknown commit", "unknown rollback"):
        any_java.send(producer, topic, body=body, mode="transaction")
    assert _system(servers, TRANS_HALF_TOPIC) >= before + 4
    got = any_java.receive(consumer, 3)
    assert bodies(got) == ["commit-0", "plain-0", "unknown commit-0"]
    first = next(one for one in got if one["body"] == "commit-0")
    assert (first["msgId"], first["tags"]) == (sent["msgId"], "a")
    asked: list[str] = []

    def asked_about_both() -> bool:
        asked.extend(one["body"] for one in any_java.received(producer))
        return {"unknown commit-0", "unknown rollback-0"} <= set(asked)

    wait_for(asked_about_both)
    assert set(asked) == {"unknown commit-0", "unknown rollback-0"}
    assert servers.stored(topic) == 3
    _all_are_noted(servers, before)
    any_java.stop(consumer)
    any_java.stop(producer)


def _all_are_noted(servers: Servers, begin: int) -> None:
    """Each half is named by an op message, or was stored again."""
    store = servers.broker().parts.store

    def open_halves() -> set[int]:
        named = {
            half
            for offset in range(_system(servers, TRANS_OP_HALF_TOPIC))
            for op in store.get_message(TRANS_OP_HALF_TOPIC, 0, offset, 1, 1 << 20).buffers
            for half in parse_op_body(decode_message(op).body)
        }
        halves = range(begin, _system(servers, TRANS_HALF_TOPIC))
        moved = {
            int(message.properties.get("TRAN_PREPARED_QUEUE_OFFSET", -1))
            for half in halves
            for message in map(
                decode_message, store.get_message(TRANS_HALF_TOPIC, 0, half, 1, 1 << 20).buffers
            )
        }
        return set(halves) - named - moved

    wait_for(lambda: not open_halves())


def test_timed_transaction_waits_from_its_commit_on(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    """The Java client takes a delay level off a transactional message, but not a moment."""
    producer = java.producer(kind="transaction")
    java.send(java.producer(), topic, body="plain")
    java.send(producer, topic, body="commit", mode="transaction", TIMER_DELAY_MS="1500")
    java.send(producer, topic, body="rollback", mode="transaction", TIMER_DELAY_MS="1500")
    consumer = java.push(group, topic)
    got = java.receive(consumer, 2)
    assert bodies(got) == ["commit-0", "plain-0"]
    [timed] = [one for one in got if one["body"] == "commit-0"]
    assert timed["stored"] >= timed["born"] + 1_500
    assert servers.stored(topic) == 2
    java.stop(consumer)
    java.stop(producer)
