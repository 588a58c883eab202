"""Writes by `df.writeStream.format("rocketmq")`: a repeated batch has the same ids."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketpy.errors import ConfigError
from rocketpy.spark import dedup
from rocketpy.testing.cluster import ClusterThread
from tests.spark.sink_kit import assert_equal_ids_are_equal_rows, bodies, stored, write


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("sink")) as found:
        yield found


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Return a stream of 3 files with 100 rows each, one file a batch."""
    data = tmp_path / "data"
    number = F.col("id").cast("string")
    for part in range(3):
        rows = spark.range(part * 100, part * 100 + 100, 1, 1)
        rows = rows.select(F.concat(F.lit("row-"), number).alias("body"))
        rows.write.parquet(str(data / f"part-{part}"))
    stream = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
    return stream.parquet(str(data / "*"))


def run(df: DataFrame, cluster: ClusterThread, topic: str, checkpoint: Path, **more: str) -> None:
    """Write all current rows, and wait until they are stored."""
    query = (
        df.writeStream.format("rocketmq")
        .option("nameservers", cluster.namesrv)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .options(**more)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_stream_sink_repeated_batch_is_removed_by_dedup(
    spark: SparkSession, cluster: ClusterThread, source: DataFrame, tmp_path: Path
) -> None:
    cluster.create_topic("streamed", 2)
    checkpoint = tmp_path / "checkpoint"
    run(source, cluster, "streamed", checkpoint)
    assert len(stored(cluster, "streamed")) == 300

    # As if the driver had been killed after the last batch's rows were stored.
    (checkpoint / "commits" / "2").unlink()
    (checkpoint / "commits" / ".2.crc").unlink()
    run(source, cluster, "streamed", checkpoint)

    found = stored(cluster, "streamed")
    assert len(found) == 400
    assert set(bodies(found)) == {f"row-{n}" for n in range(300)}
    assert_equal_ids_are_equal_rows(found, 300)
    assert {m.properties["_spark_id"].split("/")[1] for m in found} == {"0", "1", "2"}

    read = spark.read.format("rocketmq").option("nameservers", cluster.namesrv)
    df = read.option("subscribe", "streamed").load()
    assert df.count() == 400
    kept = sorted(row.body.decode() for row in dedup(df).collect())
    assert kept == sorted(f"row-{n}" for n in range(300))
    assert dedup(df).schema == df.schema


def test_dedup_keeps_messages_without_spark_id(spark: SparkSession, cluster: ClusterThread) -> None:
    """They have no `_spark_id`, and equal bodies do not make them duplicates."""
    cluster.create_topic("others", 1)
    from rocketpy.sync import connect  # noqa: PLC0415

    with connect(cluster.namesrv, group="others") as client:
        producer = client.producer()
        for _ in range(3):
            producer.send("others", b"same")
    read = spark.read.format("rocketmq").option("nameservers", cluster.namesrv)

    assert dedup(read.option("subscribe", "others").load()).count() == 3
    kafka = read.option("subscribe", "others").option("schemaStyle", "kafka").load()
    assert dedup(kafka).count() == 3
    with pytest.raises(ConfigError, match="dedup needs column properties"):
        dedup(kafka.drop("properties"))


def test_sink_copy_of_a_topic_has_new_ids(spark: SparkSession, cluster: ClusterThread) -> None:
    for name in ("copied", "copy"):
        cluster.create_topic(name, 1)
    rows = spark.range(0, 10, 1, 1).select(F.col("id").cast("string").alias("body"))
    write(rows.withColumn("tags", F.lit("A")), cluster.namesrv, topic="copied")
    read = spark.read.format("rocketmq").option("nameservers", cluster.namesrv)
    write(read.option("subscribe", "copied").load(), cluster.namesrv, topic="copy")

    first, second = stored(cluster, "copied"), stored(cluster, "copy")
    assert bodies(first) == bodies(second)
    assert {message.tags for message in second} == {"A"}
    ids = {m.properties["_spark_id"] for m in first} & {m.properties["_spark_id"] for m in second}
    assert not ids


def test_stream_sink_complete_mode_appends_every_result(
    spark: SparkSession, cluster: ClusterThread, source: DataFrame, tmp_path: Path
) -> None:
    cluster.create_topic("counts", 1)
    counts = source.groupBy().count().select(F.col("count").cast("string").alias("body"))
    query = (
        counts.writeStream.format("rocketmq")
        .outputMode("complete")
        .option("nameservers", cluster.namesrv)
        .option("topic", "counts")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert [message.body for message in stored(cluster, "counts")] == [b"100", b"200", b"300"]


def test_stream_sink_invalid_column_fails_before_tasks(
    cluster: ClusterThread, source: DataFrame, tmp_path: Path
) -> None:
    with pytest.raises(StreamingQueryException, match="did you mean tags"):
        run(source.withColumn("tag", F.lit("A")), cluster, "t", tmp_path / "checkpoint")
    assert cluster.message_count("t") == 0
