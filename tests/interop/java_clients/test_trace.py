"""The official client's message trace in our broker's trace topic, in the official encoding."""

from rocketpy.proto.trace import (
    TRACE_TOPIC,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    decode_traces,
)
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, wait_for


def traces_of(servers: Servers, msg_id: str) -> dict[type[TraceRecord], TraceRecord]:
    """Return the trace records of a message by kind."""
    return {
        type(record): record
        for message in servers.messages(TRACE_TOPIC)
        if msg_id in message.properties["KEYS"].split()
        for record in decode_traces(message.body.decode())
        if record.msg_id == msg_id
    }


def test_sends_and_consumption_of_java_are_traced(
    java: JavaClient, servers: Servers, topic: str, group: str
) -> None:
    producer = java.producer(trace=1)
    (sent,) = java.send(producer, topic, body="traced", tags="A", key="k")
    consumer = java.push(group, topic, trace=1)
    java.receive(consumer, 1)
    wait_for(lambda: len(traces_of(servers, sent["msgId"])) == 3)
    java.stop(producer)  # not before: a client that stops does not send what is left of its trace
    java.stop(consumer)
    found = traces_of(servers, sent["msgId"])
    pub, before, after = (
        found[SendTrace],
        found[ConsumeBeginTrace],
        found[ConsumeEndTrace],
    )
    assert isinstance(pub, SendTrace)
    assert (pub.group, pub.topic, pub.tag, pub.keys) == (producer, topic, "A", "k-0 all")
    assert (pub.body_bytes, pub.success, pub.region) == (8, True, "DefaultRegion")
    assert pub.broker == servers.broker().address
    assert isinstance(before, ConsumeBeginTrace)
    assert isinstance(after, ConsumeEndTrace)
    assert (before.group, before.retries, before.keys) == (group, 0, "k-0 all")
    assert (after.request_id, after.success) == (before.request_id, True)
