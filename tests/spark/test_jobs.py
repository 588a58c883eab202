"""Frames of jobs, with Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rocketpy.admin.dead_letters import REQUEUED_FROM
from rocketpy.proto.trace import (
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    encode_trace,
)
from rocketpy.spark.jobs.dlq import dead_letters, to_requeue, triage
from rocketpy.spark.jobs.replay import counts, rates_of, to_send
from rocketpy.spark.jobs.rows import collected
from rocketpy.spark.jobs.trace import consume_report, events_of, send_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, "
    "tags string, body binary, storeTimestamp timestamp, flag int, reconsumeTimes int, "
    "properties map<string,string>"
)


def messages(spark: "SparkSession", rows: Sequence[dict[str, Any]]) -> "DataFrame":
    """Return rows with the columns of a read."""
    base: dict[str, Any] = {
        "brokerName": "broker-a", "queueId": 0, "msgId": "m", "keys": "k", "tags": "t",
        "body": b"x", "storeTimestamp": datetime(2026, 6, 1, tzinfo=UTC), "flag": 0,
        "reconsumeTimes": 0, "properties": {},
    }  # fmt: skip
    return spark.createDataFrame([base | row for row in rows], ROWS)


# ---- trace


def sent(number: int, cost_ms: int, *, success: bool = True) -> TraceRecord:
    return SendTrace(
        time_ms=1000 * number, region="r", group="pg", topic="T", msg_id=f"m{number}",
        broker="b:1", body_bytes=1, cost_ms=cost_ms, success=success,
    )  # fmt: skip


def consumed(
    number: int, begin_ms: int, cost_ms: int, *, outcome: int = 0, retries: int = 0
) -> list[TraceRecord]:
    request = f"r{number}-{retries}"
    return [
        ConsumeBeginTrace(
            time_ms=begin_ms, region="r", group="cg", request_id=request, msg_id=f"m{number}",
            retries=retries,
        ),
        ConsumeEndTrace(
            request_id=request, msg_id=f"m{number}", cost_ms=cost_ms, success=outcome == 0,
            outcome=outcome, time_ms=begin_ms + cost_ms, group="cg",
        ),
    ]  # fmt: skip


def traced(spark: "SparkSession", records: Sequence[TraceRecord]) -> "DataFrame":
    rows = [(encode_trace(each).encode(), "10.0.0.9:1") for each in records]
    return events_of(spark.createDataFrame(rows, "body binary, bornHost string"))


def test_send_report_of_known_latencies(spark: "SparkSession") -> None:
    records = [sent(number, cost_ms=number) for number in range(1, 101)]
    records += [sent(200, 5, success=False), sent(1, cost_ms=1)]  # the last one is duplicated
    (row,) = collected(send_report(traced(spark, records)))
    assert (row["topic"], row["group"], row["sent"], row["failed"]) == ("T", "pg", 101, 1)
    assert (row["send_p50_ms"], row["send_p99_ms"]) == (50, 99)


@pytest.mark.parametrize(
    ("waits", "handles", "wanted"),
    [
        ([10], [3], (10, 10, 3, 3)),
        ([0, 100], [1, 2], (50, 99, 1.5, 2)),
        (list(range(101)), [7] * 101, (50, 99, 7, 7)),
    ],
)
def test_consume_report_of_known_latencies(
    spark: "SparkSession", waits: list[int], handles: list[int], wanted: tuple[float, ...]
) -> None:
    records: list[TraceRecord] = []
    for number, (wait, handle) in enumerate(zip(waits, handles, strict=True)):
        records += [sent(number, cost_ms=4), *consumed(number, 1000 * number + 4 + wait, handle)]
    (row,) = collected(consume_report(traced(spark, records)))
    assert (row["topic"], row["group"], row["host"]) == ("T", "cg", "10.0.0.9")
    assert row["deliveries"] == len(waits)
    names = ("store_to_consume_p50_ms", "store_to_consume_p99_ms", "handle_p50_ms", "handle_p99_ms")
    assert tuple(row[name] for name in names) == wanted


def test_trace_reports_count_failures_and_retries(spark: "SparkSession") -> None:
    records = [sent(1, 1)]
    for retry, outcome in enumerate([4, 2, 1, 0]):
        records += consumed(1, 2000 + retry * 1000, 5, outcome=outcome, retries=retry)
    records.append(consumed(9, 50, 1)[0])  # without a traced send, and without an end
    known, unknown = sorted(
        collected(consume_report(traced(spark, records))), key=lambda row: row["topic"] is None
    )
    assert {name: known[name] for name in ("deliveries", "retried", "unsuccessful")} == {
        "deliveries": 4, "retried": 3, "unsuccessful": 3,
    }  # fmt: skip
    assert (known["failed"], known["raised"], known["timed_out"]) == (1, 1, 1)
    assert known["store_to_consume_p50_ms"] == 999
    assert (unknown["deliveries"], unknown["unfinished"]) == (1, 1)
    assert unknown["store_to_consume_p50_ms"] is None


# ---- dead letters


def letter(offset: int, **more: Any) -> dict[str, Any]:
    properties = {"DLQ_ORIGIN_TOPIC": "T", "DLQ_ORIGIN_MESSAGE_ID": f"o{offset % 2}", "own": "1"}
    properties |= more.pop("properties", {})
    stored = datetime(2026, 6, 1, 0, offset, tzinfo=UTC)
    return {
        "topic": "%DLQ%g", "queueOffset": offset, "storeTimestamp": stored, "reconsumeTimes": 16,
        "properties": properties, **more,
    }  # fmt: skip


def test_triage_counts_letters(spark: "SparkSession") -> None:
    rows = [letter(0), letter(1), letter(2), letter(3, properties={"exception": "timeout"})]
    rows.append(letter(4, properties={"DLQ_ORIGIN_TOPIC": "U"}))
    found = collected(triage(dead_letters(messages(spark, rows))))
    assert [(row["originTopic"], row["exception"], row["letters"]) for row in found] == [
        ("T", None, 3), ("T", "timeout", 1), ("U", None, 1),
    ]  # fmt: skip
    first = found[0]
    assert (first["group"], first["messages"], first["max_tries"]) == ("g", 2, 16)
    assert str(first["first_seen"]).startswith("2026-06-01T00:00")
    assert str(first["last_seen"]).startswith("2026-06-01T00:02")


def test_to_requeue_keeps_parts_and_origin(spark: "SparkSession") -> None:
    rows = [letter(0, keys="k0"), letter(1, properties={"DLQ_ORIGIN_TOPIC": "U"})]
    letters = dead_letters(messages(spark, rows)).where("originTopic = 'U'")
    (row,) = to_requeue(letters).collect()
    assert (row.topic, row.keys, row.tags, bytes(row.body), row.msgId) == ("U", "k", "t", b"x", "m")
    assert row.properties["own"] == "1"
    assert row.properties[REQUEUED_FROM] == "g/broker-a/0/1"
    again = letter(5, properties={REQUEUED_FROM: "g/broker-a/0/1"})
    (row,) = to_requeue(dead_letters(messages(spark, [again]))).collect()
    assert row.properties[REQUEUED_FROM] == "g/broker-a/0/5"


# ---- replay


def test_to_send_keeps_order_within_a_queue(spark: "SparkSession") -> None:
    rows = [
        {"topic": "T", "queueId": queue, "queueOffset": offset, "body": b"%d/%d" % (queue, offset)}
        for offset in (3, 1, 2, 0)
        for queue in range(5)
    ]
    frame = messages(spark, rows)
    parts = to_send(frame, "U", 3).rdd.glom().collect()
    bodies = [[bytes(row.body).decode() for row in part] for part in parts]
    for queue in range(5):
        mine = [[b for b in part if b.startswith(f"{queue}/")] for part in bodies]
        assert [part for part in mine if part] == [[f"{queue}/{n}" for n in range(4)]]
    assert {row.topic for part in parts for row in part} == {"U"}
    found = collected(counts(frame))
    assert [(row["queueId"], row["messages"], row["body_bytes"]) for row in found] == [
        (queue, 4, 12) for queue in range(5)
    ]


@pytest.mark.parametrize("tasks", [1, 2, 4, 7])
def test_rates_of_tasks_are_proportional_to_messages(spark: "SparkSession", tasks: int) -> None:
    rows = [
        {"topic": "T", "queueId": queue, "queueOffset": offset}
        for queue, count in ((0, 60), (1, 6), (2, 1), (3, 33))
        for offset in range(count)
    ]
    frame = messages(spark, rows)
    rates = rates_of(spark, collected(counts(frame)), 50.0, tasks)
    parts = to_send(frame, "U", tasks).rdd.glom().collect()
    assert rates == [len(part) / 2 for part in parts]
    assert sum(rates) == 50
