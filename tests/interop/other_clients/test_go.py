"""The official Go client against our servers: all that it can do."""

import asyncio
from collections.abc import Iterator

import pytest

import rocketpy
from rocketpy.proto.trace import (
    TRACE_TOPIC,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    decode_traces,
)
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import bodies, wait_for
from tests.interop.other_clients.go_client import GoClient, build

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    settings = {
        "transactionCheckInterval": "1000",
        "transactionTimeOut": "1000",
        "traceTopicEnable": "true",  # this client does not have it made
    }
    with Servers(tmp_path_factory.mktemp("servers"), properties=settings) as found:
        yield found


@pytest.fixture(scope="module")
def go(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoClient]:
    program = build(tmp_path_factory.mktemp("go"))
    client = GoClient(program, servers.namesrv, tmp_path_factory.mktemp("home"))
    yield client
    client.close()


def test_every_way_to_send_and_push_by_tags(go: GoClient) -> None:
    producer = go.producer()
    common = {"tags": "A,B,C", "key": "k", "property_colour": "grün"}
    sent = go.send(producer, "Tags", "sync", count=5, **common)
    sent += go.send(producer, "Tags", "async", count=3, mode="async", **common)
    go.send(producer, "Tags", "oneway", count=3, mode="oneway", **common)
    go.send(producer, "Tags", "batch", count=3, mode="batch", **common)
    go.send(producer, "Tags", "large", count=2, size=20_000, tags="A")  # the client compresses it
    consumer = go.push("goTags", "Tags", tags="A || B")
    got = go.take(consumer, 12)
    assert bodies(got) == [
        "async-0", "async-1", "batch-0", "batch-1", "large-0xxx...20000", "large-1xxx...20000",
        "oneway-0", "oneway-1", "sync-0", "sync-1", "sync-3", "sync-4",
    ]  # fmt: skip
    by_body = {one["body"]: one for one in got}
    assert by_body["sync-4"]["msgId"] == sent[4]
    assert (by_body["sync-4"]["tag"], by_body["sync-4"]["keys"]) == ("B", "k-4")
    assert by_body["async-0"]["properties"]["colour"] == "grün"
    go.stop(consumer, producer)


def test_push_by_a_condition(go: GoClient) -> None:
    producer = go.producer()
    for amount in (10, 50, 90):
        go.send(producer, "Sql", str(amount), property_amount=amount, property_region="eu")
    go.send(producer, "Sql", "other", property_amount=95, property_region="us")
    consumer = go.push("goSql", "Sql", sql="amount > 20 AND region = 'eu'")
    assert bodies(go.take(consumer, 2)) == ["50-0", "90-0"]
    go.stop(consumer, producer)


def test_delay_levels(go: GoClient, servers: Servers) -> None:
    producer = go.producer()
    go.send(producer, "Delay", "now")
    consumer = go.push("goDelay", "Delay")
    go.take(consumer, 1)
    go.send(producer, "Delay", "later", delay=1, tags="a")
    (got,) = go.take(consumer, 1)
    assert servers.stored("Delay") == 2
    assert (got["body"], got["tag"], got["topic"]) == ("later-0", "a", "Delay")
    assert got["stored"] - got["born"] >= 1_000
    go.stop(consumer, producer)


def test_every_end_of_a_transaction(go: GoClient, servers: Servers) -> None:
    plain, producer = go.producer(), go.producer(kind="transaction")
    go.send(plain, "Tx", "plain")
    consumer = go.push("goTx", "Tx")
    for body in ("commit", "rollback", "unknown commit", "unknown rollback"):
        go.send(producer, "Tx", body, mode="transaction", tags="a")
    got = go.take(consumer, 3)
    assert bodies(got) == ["commit-0", "plain-0", "unknown commit-0"]
    asked: set[str] = set()

    def asked_about_both() -> bool:
        asked.update(one["body"] for one in go.taken(producer))
        return asked >= {"unknown commit-0", "unknown rollback-0"}

    wait_for(asked_about_both)
    assert asked == {"unknown commit-0", "unknown rollback-0"}
    assert servers.stored("Tx") == 3
    go.stop(consumer, producer, plain)


async def known(namesrv: str, *groups: str) -> None:
    """Have the groups' retry topics made: the Go client looks for a new topic each 30 s only."""
    async with rocketpy.connect(namesrv) as client:
        for group in groups:
            async with client.consumer("Known", group=group):
                pass


def test_failing_message_is_redelivered_and_becomes_dead_letter(
    go: GoClient, servers: Servers
) -> None:
    producer = go.producer()
    go.send(producer, "Known", "x")
    asyncio.run(known(servers.namesrv, "goRetry", "goDead"))
    go.send(producer, "Retry", "once")
    consumer = go.push("goRetry", "Retry", fail=1, level=1)
    (got,) = go.take(consumer, 1)
    assert (got["body"], got["reconsumeTimes"], got["topic"]) == ("once-0", 1, "Retry")
    go.stop(consumer)
    go.send(producer, "Dead", "never")
    consumer = go.push("goDead", "Dead", fail=100, level=1, tries=1)
    wait_for(lambda: servers.stored("%DLQ%goDead") == 1)
    assert go.taken(consumer) == []
    go.stop(consumer, producer)


def test_orderly(go: GoClient) -> None:
    producer = go.producer()
    go.send(producer, "Order", "x", count=40)
    consumer = go.push("goOrder", "Order", listener="orderly", fail=2)
    got = [(one["queueId"], one["offset"]) for one in go.take(consumer, 40)]
    for queue_id in range(4):
        offsets = [offset for queue, offset in got if queue == queue_id]
        assert offsets == list(range(10))
    go.stop(consumer, producer)


def test_broadcasting(go: GoClient) -> None:
    producer = go.producer()
    go.send(producer, "Cast", "x", count=8)
    consumers = [go.push("goCast", "Cast", model="broadcasting") for _ in range(2)]
    for consumer in consumers:
        assert bodies(go.take(consumer, 8)) == [f"x-{number}" for number in range(8)]
    go.stop(*consumers, producer)


def test_requests_between_go_and_ours(go: GoClient, servers: Servers) -> None:
    """A requester needs a consumer beside its producer, or brokers learn of it every 30 s only."""
    asker, answerer = go.producer(), go.producer()
    go.send(answerer, "Quotes", "first")
    beside = go.push("goAskers", "Quotes", instance=asker)
    consumer = go.push("goQuotes", "Quotes", answerer=answerer)
    go.take(consumer, 1)
    assert go.send(asker, "Quotes", "of go", mode="request") == ["of go-0!"]

    async def main() -> None:
        async with rocketpy.connect(servers.namesrv) as client:
            answer = await client.producer().request("Quotes", b"of ours", timeout=30)
            assert answer.body == b"of ours!"
            go.stop(consumer)
            responder = client.responder("Quotes", group="ours", handler=lambda m: m.body + b"?")
            async with responder:
                asked = asyncio.to_thread(go.send, asker, "Quotes", "again", mode="request")
                assert await asked == ["again-0?"]

    asyncio.run(main())
    go.stop(beside, asker, answerer)


def test_condition_that_is_none_brings_nothing(go: GoClient) -> None:
    """The Go client does not ask whether its condition is one: its pulls are refused (23)."""
    producer = go.producer()
    go.send(producer, "Wrong", "x", property_a=1)
    wrong = go.push("goWrong", "Wrong", sql="a >>> 1")
    right = go.push("goRight", "Wrong", sql="a >= 1")
    go.take(right, 1)
    assert go.taken(wrong) == []
    go.stop(right, wrong, producer)


def test_timed_messages(go: GoClient) -> None:
    """The client has no call for them, but takes the property."""
    producer = go.producer()
    go.send(producer, "Timed", "now")
    consumer = go.push("goTimed", "Timed")
    go.take(consumer, 1)
    go.send(producer, "Timed", "later", property_TIMER_DELAY_MS=1_234)
    (got,) = go.take(consumer, 1)
    assert got["body"] == "later-0"
    assert got["stored"] - got["born"] >= 1_234
    go.stop(consumer, producer)


def test_one_sharding_key_is_one_queue_in_order(go: GoClient) -> None:
    producer = go.producer(by="hash")
    for shard in ("a", "b", "c"):
        go.send(producer, "Shards", shard, count=10, shard=shard)
    consumer = go.push("goShards", "Shards", listener="orderly")
    got = go.take(consumer, 30)
    for shard in ("a", "b", "c"):
        own = [one for one in got if one["body"].startswith(shard)]
        assert [one["body"] for one in own] == [f"{shard}-{number}" for number in range(10)]
        assert len({one["queueId"] for one in own}) == 1
    go.stop(consumer, producer)


def test_pull_consumer_polls_acknowledges_and_continues(go: GoClient) -> None:
    producer = go.producer()
    go.send(producer, "Polled", "x", count=8, tags="A,B")
    consumer = go.pull("goPolled", "Polled", tags="A")
    assert bodies(go.take(consumer, 4)) == ["x-0", "x-2", "x-4", "x-6"]
    go.stop(consumer)
    go.send(producer, "Polled", "y", tags="A")
    consumer = go.pull("goPolled", "Polled", tags="A")
    assert bodies(go.take(consumer, 1)) == ["y-0"]
    go.stop(consumer, producer)


def test_sends_and_handlers_are_traced(go: GoClient, servers: Servers) -> None:
    producer = go.producer(trace=1)
    (msg_id,) = go.send(producer, "Traced", "x", tags="A", key="k")
    consumer = go.push("goTraced", "Traced", trace=1)
    go.take(consumer, 1)

    def records() -> dict[str, TraceRecord]:
        return {
            record.kind: record
            for message in servers.messages(TRACE_TOPIC)
            for record in decode_traces(message.body.decode())
            if record.msg_id == msg_id
        }

    wait_for(lambda: len(records()) == 3)
    pub, end = records()["Pub"], records()["SubAfter"]
    assert isinstance(pub, SendTrace)
    assert isinstance(end, ConsumeEndTrace)
    assert (pub.topic, pub.group, pub.tag, pub.success) == ("Traced", producer, "A", True)
    assert end.success
    go.stop(consumer, producer)


def test_namespace(go: GoClient, servers: Servers) -> None:
    inside, outside = go.producer(ns="NS"), go.producer()
    go.send(inside, "Spaces", "inside")
    go.send(outside, "Spaces", "outside")
    assert (servers.stored("NS%Spaces"), servers.stored("Spaces")) == (1, 1)
    consumer = go.push("goSpaces", "Spaces", ns="NS")
    (got,) = go.take(consumer, 1)
    assert (got["body"], got["topic"]) == ("inside-0", "NS%Spaces")  # it hands out brokers' names
    go.stop(consumer, inside, outside)


def test_signed_request_is_served(go: GoClient) -> None:
    account = {"access": "operator", "secret": "12345678"}
    producer = go.producer(**account)
    go.send(producer, "Signed", "x")
    consumer = go.push("goSigned", "Signed", **account)
    assert bodies(go.take(consumer, 1)) == ["x-0"]
    go.stop(consumer, producer)


def test_topics_are_made_listed_and_deleted(go: GoClient, servers: Servers) -> None:
    broker = servers.broker().address
    assert "Made" in go.do("topics", create="Made", at=broker)
    made = servers.broker().parts.topics.get("Made")
    assert made is not None
    assert (made.read_queue_nums, made.write_queue_nums) == (2, 2)
    assert "Made" not in go.do("topics", delete="Made", at=broker)
    assert servers.broker().parts.topics.get("Made") is None
