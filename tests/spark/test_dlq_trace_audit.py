"""Jobs on dead letters, traces and a damaged store of real clients and brokers."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rocketpy
from rocketpy.admin.dead_letters import REQUEUED_FROM
from rocketpy.proto.trace import TRACE_TOPIC
from rocketpy.spark.jobs.audit import audit_with_spark
from rocketpy.spark.jobs.audit_store import Store, by_message
from rocketpy.spark.jobs.dlq import dead_letters, to_requeue, triage
from rocketpy.spark.jobs.replay import send
from rocketpy.spark.jobs.rows import collected, topic_frame
from rocketpy.spark.jobs.trace import consume_report, events_of, send_report
from rocketpy.testing.cluster import ClusterThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[ClusterThread]:
    with ClusterThread(folder) as running:
        running.create_topic("orders", 2)
        asyncio.run(trade(running.namesrv))
        yield running


async def trade(namesrv: str) -> None:
    """Send and consume with traces; every third message goes to the dead letters."""
    done: list[int] = []
    complete = asyncio.Event()

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        number = int(message.body)
        done.append(number)
        if len(done) == COUNT:
            complete.set()
        if number % 3 == 0:
            raise rocketpy.ToDLQ

    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(trace=True)
        consumer = client.consumer(
            "orders", group="readers", start="earliest", handler=handle, trace=True
        )
        async with consumer:
            for number in range(COUNT):
                headers = {"exception": "timeout"} if number % 2 == 0 else {"other": "x"}
                await producer.send(
                    "orders", str(number).encode(), tag="t", keys=[f"k{number}"], headers=headers
                )
            await asyncio.wait_for(complete.wait(), 100)


def wait_for_rows(cluster: ClusterThread, topic: str, count: int) -> None:
    deadline = time.monotonic() + 100
    while cluster.message_count(topic) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_dlq_requeue_sends_letters_to_their_origin(
    spark: "SparkSession", cluster: ClusterThread
) -> None:
    wait_for_rows(cluster, "%DLQ%readers", COUNT // 3)
    letters = dead_letters(topic_frame(spark, cluster.namesrv, "%DLQ%readers"))
    found = Counter(
        {
            (row["originTopic"], row["exception"]): row["letters"]
            for row in collected(triage(letters))
        }
    )
    assert found == {("orders", "timeout"): 2, ("orders", None): 2}
    before = cluster.message_count("orders")
    chosen = letters.where("exception = 'timeout'")
    send(to_requeue(chosen), cluster.namesrv, new_ids=False, options={})
    assert cluster.message_count("orders") == before + 2
    again = topic_frame(spark, cluster.namesrv, "orders").where(
        f"element_at(properties, '{REQUEUED_FROM}') is not null"
    )
    assert {(bytes(row.body), row.keys, row.tags) for row in again.collect()} == {
        (b"0", "k0", "t"), (b"6", "k6", "t"),
    }  # fmt: skip
    ids = {row.msgId for row in chosen.collect()}
    assert {row.msgId for row in again.collect()} == ids


def test_trace_reports_of_real_clients(spark: "SparkSession", cluster: ClusterThread) -> None:
    wait_for_rows(cluster, TRACE_TOPIC, 2)
    events = events_of(
        topic_frame(spark, cluster.namesrv, TRACE_TOPIC, columns=["body", "bornHost"])
    ).cache()
    (sends,) = collected(send_report(events))
    assert (sends["topic"], sends["sent"], sends["failed"]) == ("orders", COUNT, 0)
    (seen,) = collected(consume_report(events))
    assert (seen["topic"], seen["group"], seen["host"]) == ("orders", "readers", "127.0.0.1")
    assert (seen["deliveries"], seen["unfinished"], seen["retried"]) == (COUNT, 0, 0)
    assert seen["unsuccessful"] == COUNT // 3


def test_audit_with_spark_finds_a_flipped_byte(spark: "SparkSession", tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as running:
        running.create_topic("orders", 2)
        asyncio.run(trade(running.namesrv))
    store = tmp_path / "broker-a"
    done = audit_with_spark(spark, Store.find(store))
    assert done.findings == []
    assert done.records >= COUNT
    log = next((store / "commitlog").iterdir())
    data = log.read_bytes()
    at = data.index(b"7\x06orders")
    log.write_bytes(data[:at] + b"8" + data[at + 1 :])
    (finding,) = by_message(audit_with_spark(spark, Store.find(store)).findings)
    assert finding.phy_offset < at < finding.phy_offset + 200
    assert "body" in finding.problem
