"""Batch reads from a RocketPy broker: every message once, for any start and end."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.sampling import sample
from tests.spark.fill import TAGS, Row, fill, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("brokerName", "queueId", "queueOffset", "crc32(body)")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster"), brokers=2) as running:
        for queues in (1, 2, 8):
            fill(running, f"Q{queues}", queues=queues, count=600)
        yield running


def read(spark: "SparkSession", cluster: ClusterThread, **options: Any) -> "DataFrame":
    named = {key.replace("__", "."): str(value) for key, value in options.items()}
    return spark.read.format("rocketmq").options(nameservers=cluster.namesrv, **named).load()


def rows_of(frame: "DataFrame") -> Counter[Row]:
    return Counter(tuple(row) for row in frame.selectExpr(*COLUMNS).collect())


def within(rows: Counter[Row], start: int, end: int) -> Counter[Row]:
    return Counter({row: count for row, count in rows.items() if start <= row[2] < end})


def by_queue(topic: str, queues: int, value: int) -> str:
    table = {str(queue_id): value for queue_id in range(queues)}
    return json.dumps({topic: {"broker-a": table, "broker-b": table}})


@pytest.mark.parametrize("queues", sample([1, 2, 8], 3))
def test_batch_reads_every_message_once(
    spark: "SparkSession", cluster: ClusterThread, queues: int
) -> None:
    topic = f"Q{queues}"
    held = stored(cluster, topic)

    assert held.total() == 600
    assert rows_of(read(spark, cluster, subscribe=topic)) == held


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"fetch__batchSize": 7, "fetch__prefetch": 3}, id="small-pulls"),
        pytest.param({"fetch__maxBytes": "2k", "arrow__batchRows": 10}, id="few-bytes"),
        pytest.param({"minPartitions": 9, "maxRecordsPerPartition": 50}, id="split"),
        pytest.param({"startingOffsets": by_queue("Q2", 2, -2)}, id="earliest-as-number"),
        pytest.param({"endingOffsets": by_queue("Q2", 2, -1)}, id="latest-as-number"),
        pytest.param({"startingTimestamp": 0}, id="from-the-beginning-of-time"),
    ],
)
def test_batch_with_any_options_reads_every_message_once(
    spark: "SparkSession", cluster: ClusterThread, options: dict[str, Any]
) -> None:
    assert rows_of(read(spark, cluster, subscribe="Q2", **options)) == stored(cluster, "Q2")


def test_batch_has_no_row_outside_its_offsets(
    spark: "SparkSession", cluster: ClusterThread
) -> None:
    frame = read(
        spark,
        cluster,
        subscribe="Q2",
        startingOffsets=by_queue("Q2", 2, 31),
        endingOffsets=by_queue("Q2", 2, 77),
    )

    assert rows_of(frame) == within(stored(cluster, "Q2"), 31, 77)


def test_batch_of_topics_pattern_and_queues(spark: "SparkSession", cluster: ClusterThread) -> None:
    both = stored(cluster, "Q1") + stored(cluster, "Q2")
    one = Counter({r: n for r, n in stored(cluster, "Q8").items() if r[:2] == ("broker-b", 3)})

    assert rows_of(read(spark, cluster, subscribe="Q1, Q2")) == both
    assert rows_of(read(spark, cluster, subscribePattern="Q[12]")) == both
    assert rows_of(read(spark, cluster, assign='{"Q8":{"broker-b":[3]}}')) == one


def test_batch_with_broker_filters(spark: "SparkSession", cluster: ClusterThread) -> None:
    tags = read(spark, cluster, subscribe="Q2", subExpression=" TagA || TagC ")
    assert Counter(row.tags for row in tags.select("tags").collect()) == {"TagA": 200, "TagC": 200}

    rare = read(
        spark, cluster, subscribe="Q8", expressionType="SQL92", subExpression="number = '123'"
    )
    assert [row.keys for row in rare.select("keys").collect()] == ["key-123"]


def test_batch_rows_have_all_parts(spark: "SparkSession", cluster: ClusterThread) -> None:
    frame = read(spark, cluster, subscribe="Q1", include="properties,hosts,msgId")
    row = frame.where("keys = 'key-7'").collect()[0]

    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == ("Q1", "broker-b", 0, 3)
    assert row.tags == TAGS[1]
    assert row.properties["number"] == "7"
    assert row.bornTimestamp.timestamp() * 1000 == 1_700_000_000_007
    assert len(row.msgId) == 32
    assert row.storeHost.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("condition", "is_handled"),
    [
        ("queueId = 1", True),
        ("queueId IN (0, 1) AND brokerName = 'broker-b'", True),
        ("queueOffset >= 20 AND queueOffset < 30", True),
        ("queueOffset = 25 AND queueId <> 0", True),
        ("topic LIKE 'Q%' AND queueOffset > 100", True),
        ("tags = 'TagB' AND queueId = 1", False),
        ("storeTimestamp < timestamp'2030-01-01 00:00:00'", False),
        ("storeTimestamp >= timestamp'2100-01-01 00:00:00'", False),
        ("brokerName LIKE '%-a'", True),
        ("NOT queueId IN (1, 2) AND queueOffset <= 9", True),
        ("brokerName <=> 'broker-a'", True),
        ("queueId = 1 OR queueOffset = 3", False),
    ],
)
def test_batch_with_pushdown_returns_the_same_rows(
    spark: "SparkSession",
    cluster: ClusterThread,
    capsys: pytest.CaptureFixture[str],
    condition: str,
    is_handled: bool,
) -> None:
    expected = rows_of(read(spark, cluster, subscribe="Q2").where(condition))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, cluster, subscribe="Q2", pushdown=True).where(condition)
        assert rows_of(frame) == expected
        capsys.readouterr()
        frame.explain()
        assert ("Filter " not in capsys.readouterr().out) is is_handled
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
