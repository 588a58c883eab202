"""Writes by `df.write.format("rocketmq")`: every row is acknowledged, or the job fails."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.runtime.clock import SystemClock
from rocketpy.testing.cluster import ClusterThread
from tests.spark.sink_kit import assert_equal_ids_are_equal_rows, bodies, rows, stored, write


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("sink"), brokers=2) as found:
        yield found


@pytest.fixture
def topic(cluster: ClusterThread, request: pytest.FixtureRequest) -> str:
    """New topic with two queues on each broker."""
    name = "".join(c if c.isalnum() else "_" for c in request.node.name)[:60]
    cluster.create_topic(name, 2)
    return name


def spark_ids(messages: list[MessageExt]) -> Counter[str]:
    return Counter(message.properties["_spark_id"] for message in messages)


# ---- stored messages


@pytest.mark.parametrize("batch_bytes", ["256k", "0"])
def test_sink_stores_every_part_of_a_row(
    spark: SparkSession, cluster: ClusterThread, topic: str, batch_bytes: str
) -> None:
    number = F.col("id").cast("string")
    df = spark.range(0, 500, 1, 2).select(
        F.lit(topic).alias("topic"),
        F.concat(F.lit("grüße-"), number).alias("body"),
        F.array(number, F.lit("all")).alias("keys"),
        F.when(F.col("id") % 2 == 0, "even").alias("tags"),
        F.create_map(F.lit("city"), F.concat(F.lit("münchen "), number)).alias("properties"),
        (F.col("id") % 7).cast("int").alias("flag"),
    )
    write(df, cluster.namesrv, batch__maxBytes=batch_bytes)

    found = stored(cluster, topic)
    assert len(found) == 500
    assert set(spark_ids(found).values()) == {1}
    assert len({message.msg_id for message in found}) == 500
    for message in found:
        n = int(message.body.decode().removeprefix("grüße-"))
        assert message.keys == [str(n), "all"]
        assert message.tags == ("even" if n % 2 == 0 else None)
        assert message.properties["city"] == f"münchen {n}"
        assert message.flag == n % 7


def test_sink_writes_to_several_topics(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    names = [f"{topic}_{n}" for n in range(3)]
    for name in names:
        cluster.create_topic(name, 1)
    df = rows(spark, 300).withColumn(
        "topic", F.concat(F.lit(f"{topic}_"), (F.rand(7) * 3).cast("int").cast("string"))
    )
    write(df, cluster.namesrv)

    found = [message for name in names for message in stored(cluster, name)]
    assert bodies(found) == Counter(f"row-{n}" for n in range(300))


def test_sink_sharding_key_keeps_order(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    df = spark.range(0, 2000, 1, 1).select(
        F.col("id").cast("string").alias("body"), (F.col("id") % 5).alias("shardingKey")
    )
    write(df, cluster.namesrv, topic=topic, batch__maxBytes="4k", inflight=16)

    by_key: dict[str, list[tuple[str, int, int]]] = {}
    for message in stored(cluster, topic):
        place = (message.store_host, message.queue_id, int(message.body))
        by_key.setdefault(message.properties["__SHARDINGKEY"], []).append(place)
    assert sum(map(len, by_key.values())) == 2000
    for places in by_key.values():
        assert len({(host, queue) for host, queue, _ in places}) == 1
        in_order = [n for _, _, n in places]
        assert in_order == sorted(in_order)


def test_sink_delayed_rows_are_delivered_later(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    df = rows(spark, 4, 1).withColumn("delayLevel", F.lit(1))
    df = df.unionByName(
        rows(spark, 4, 1)
        .withColumn("body", F.concat(F.lit("timed-"), F.col("body")))
        .withColumn("deliverTime", F.current_timestamp() + F.expr("INTERVAL 1 SECOND")),
        allowMissingColumns=True,
    )
    before = SystemClock().time_ms()
    write(df, cluster.namesrv, topic=topic)

    wait_for(lambda: len(stored(cluster, topic)) == 8)
    for message in stored(cluster, topic):
        assert message.store_timestamp_ms >= before + 900
    wanted = Counter(f"row-{n}" for n in range(4)) + Counter(f"timed-row-{n}" for n in range(4))
    assert bodies(stored(cluster, topic)) == wanted


def wait_for(condition: Callable[[], bool], limit_s: float = 100) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def test_sink_oneway_stores_rows(spark: SparkSession, cluster: ClusterThread, topic: str) -> None:
    write(rows(spark, 5000), cluster.namesrv, topic=topic, sendMode="oneway", inflight=4)

    wait_for(lambda: len(stored(cluster, topic)) == 5000)
    assert bodies(stored(cluster, topic)) == Counter(f"row-{n}" for n in range(5000))


def test_sink_message_ids_from_a_column(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    df = rows(spark, 10).withColumn("msgId", F.concat(F.lit("ID-"), F.col("body")))
    write(df, cluster.namesrv, topic=topic, messageId="column")

    for message in stored(cluster, topic):
        assert message.msg_id == f"ID-{message.body.decode()}"


# ---- errors on the driver, before any task


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda df: df, {"topik": "t"}, "topik: no such option; did you mean topic?"),
        (lambda df: df, {}, "topic: give the option topic or a column"),
        (lambda df: df.withColumn("tag", F.lit("A")), {"topic": "t"}, "did you mean tags?"),
        (lambda df: df.withColumn("keys", F.lit(3)), {"topic": "t"}, "keys: .*not int"),
    ],
)
def test_sink_invalid_columns_and_options_fail_on_the_driver(
    spark: SparkSession,
    cluster: ClusterThread,
    change: Callable[[DataFrame], DataFrame],
    options: dict[str, str],
    words: str,
) -> None:
    with pytest.raises(AnalysisException, match=words):
        write(change(rows(spark, 1)), cluster.namesrv, **options)


def test_sink_mode_overwrite_fails(spark: SparkSession, cluster: ClusterThread) -> None:
    writer = rows(spark, 1).write.format("rocketmq").mode("overwrite")

    with pytest.raises(AnalysisException, match="use mode append"):
        writer.option("nameservers", cluster.namesrv).option("topic", "t").save()


def test_sink_unknown_topic_fails_on_the_driver(spark: SparkSession, tmp_path: Any) -> None:
    settings = {"autoCreateTopicEnable": "false"}
    with ClusterThread(tmp_path, properties=settings) as strict:
        with pytest.raises(AnalysisException, match="no broker serves topic nowhere"):
            write(rows(spark, 1), strict.namesrv, topic="nowhere")
        with pytest.raises(PySparkException, match="nowhere") as raised:
            write(rows(spark, 1, 1).withColumn("topic", F.lit("nowhere")), strict.namesrv,
                  sendTimeoutMs="500")  # fmt: skip
        assert "no broker serves topic nowhere" in str(raised.value)


def test_sink_unknown_topic_is_created_by_brokers_that_create_topics(
    spark: SparkSession, cluster: ClusterThread
) -> None:
    write(rows(spark, 2), cluster.namesrv, topic="unknown_of_option")
    write(rows(spark, 2).withColumn("topic", F.lit("unknown_of_row")), cluster.namesrv)
    for topic in ("unknown_of_option", "unknown_of_row"):
        assert len(stored(cluster, topic)) == 2


def test_sink_without_name_servers_names_them(spark: SparkSession) -> None:
    writer = rows(spark, 1).write.format("rocketmq").mode("append").option("topic", "t")

    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:1\b"):
        writer.option("nameservers", "127.0.0.1:1").save()


# ---- rows that are not valid messages


def bad_rows(spark: SparkSession) -> DataFrame:
    body = F.when(F.col("id") == 3, F.lit(None)).when(
        F.col("id") == 5, F.lit("x" * 2000)
    ).otherwise(F.concat(F.lit("row-"), F.col("id").cast("string")))  # fmt: skip
    return spark.range(0, 10, 1, 1).select(body.alias("body"))


def test_sink_row_without_a_body_fails_the_job(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    with pytest.raises(PySparkException, match=r"row 3 .*the body is null"):
        write(bad_rows(spark), cluster.namesrv, topic=topic)


def test_sink_bad_rows_go_to_the_dead_letter_topic(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    dead = f"{topic}_dead"
    cluster.create_topic(dead, 1)
    write(
        bad_rows(spark),
        cluster.namesrv,
        topic=topic,
        onError="dlq",
        dlqTopic=dead,
        maxMessageSize=1000,
    )

    assert bodies(stored(cluster, topic)) == Counter(
        f"row-{n}" for n in range(10) if n not in {3, 5}
    )
    reasons = {
        message.properties["_spark_id"].rpartition("/")[2]: message.properties["_spark_error"]
        for message in stored(cluster, dead)
    }
    assert reasons.keys() == {"3", "5"}
    assert "null" in reasons["3"]
    assert "2000 bytes" in reasons["5"]
    assert {m.properties["DLQ_ORIGIN_TOPIC"] for m in stored(cluster, dead)} == {topic}


def test_sink_body_over_the_brokers_limit_fails_alone(spark: SparkSession, tmp_path: Any) -> None:
    """The broker rejects the complete batch; its other rows are sent nevertheless."""
    with ClusterThread(tmp_path, properties={"maxMessageSize": "2000"}) as small:
        small.create_topic("t", 1)
        small.create_topic("dead", 1)
        with pytest.raises(PySparkException, match="row 0 of the partition"):
            write(rows(spark, 1, 1).withColumn("body", F.lit("x" * 3000)), small.namesrv, topic="t")
        df = spark.range(0, 20, 1, 1).select(
            F.when(F.col("id") == 7, "x" * 1990).otherwise("small").alias("body")
        )
        write(df, small.namesrv, topic="t", onError="dlq", dlqTopic="dead", maxMessageSize=1990)
        found = stored(small, "t") + stored(small, "dead")
        assert len(spark_ids(found)) == len(found) == 20


# ---- failures: every row acknowledged, or the job fails


def test_sink_full_broker_fails_the_job(spark: SparkSession, tmp_path: Any) -> None:
    with ClusterThread(tmp_path, properties={"diskSpaceWarningLevelRatio": "0"}) as full:
        full.create_topic("t", 1)
        full.brokers[0].parts.store._gate.set_disk_full(
            "the disk is nearly full"
        )  # as the next check would find
        with pytest.raises(PySparkException, match="rows 0 to 9 of the partition") as raised:
            write(rows(spark, 10, 1), full.namesrv, topic="t", sendTimeoutMs="2s", retries=1)
        assert "disk" in str(raised.value)
        assert "0 rows stored" in str(raised.value)
        assert not stored(full, "t")


def test_sink_lost_acknowledgement_stores_rows_twice_with_equal_ids(
    spark: SparkSession, cluster: ClusterThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = SendMessageProcessor._response
    lost: list[RemotingCommand] = []

    def loses_the_first(self: Any, channel: Any, request: RemotingCommand, sent: Any) -> Any:
        """Store the request, then close the connection."""
        if request.ext_fields.get("b") == topic and not lost:
            lost.append(request)
            channel.abort("the test breaks it")
        return respond(self, channel, request, sent)

    monkeypatch.setattr(SendMessageProcessor, "_response", loses_the_first)
    write(rows(spark, 1000, 1), cluster.namesrv, topic=topic, sendTimeoutMs="4s")

    assert len(lost) == 1
    found = stored(cluster, topic)
    assert len(found) > 1000
    assert set(bodies(found)) == {f"row-{n}" for n in range(1000)}
    assert_equal_ids_are_equal_rows(found, 1000)


def owner_of(address: str) -> int:
    """Return the process with this end of a loopback connection."""
    port = f":{int(address.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{words[9]}]" for words in lines if words[1].endswith(port)}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if str(link.readlink()) in inodes:
                return int(link.parts[2])
    raise AssertionError(f"no process has {address}")


def test_sink_killed_worker_is_repeated_with_equal_ids(
    spark: SparkSession, cluster: ClusterThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = SendMessageProcessor._response
    asked: list[str] = []
    killed: list[int] = []

    def kills_at_the_fifth(self: Any, channel: Any, request: RemotingCommand, sent: Any) -> Any:
        if request.ext_fields.get("b") == topic:
            asked.append(channel.remote_address)
            if len(asked) == 5:
                killed.append(owner_of(channel.remote_address))
                assert killed[0] != os.getpid()
                os.kill(killed[0], signal.SIGKILL)
        return respond(self, channel, request, sent)

    monkeypatch.setattr(SendMessageProcessor, "_response", kills_at_the_fifth)
    write(rows(spark, 3000, 1), cluster.namesrv, topic=topic, batch__maxBytes=8192)

    assert len(killed) == 1
    found = stored(cluster, topic)
    assert len(found) > 3000
    assert set(bodies(found)) == {f"row-{n}" for n in range(3000)}
    assert_equal_ids_are_equal_rows(found, 3000)


def test_sink_repeated_task_stores_rows_twice_with_equal_ids(
    spark: SparkSession, cluster: ClusterThread, topic: str
) -> None:
    def fails_once(batches: Any) -> Any:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            is_last = batch.column(0)[-1].as_py() == "row-29999"
            if context.attemptNumber() == 0 and is_last:
                raise RuntimeError("the first attempt fails after its last batch")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 500)
    try:
        write(
            rows(spark, 30_000, 2).mapInArrow(fails_once, "body string"),
            cluster.namesrv,
            topic=topic,
        )
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")

    found = stored(cluster, topic)
    assert len(found) > 30_000, "the first attempt had sent something"
    assert set(bodies(found)) == {f"row-{n}" for n in range(30_000)}
    assert_equal_ids_are_equal_rows(found, 30_000)
