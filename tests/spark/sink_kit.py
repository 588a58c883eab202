"""Helpers for tests of the sink: rows to write, and the stored messages."""

from collections import Counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.testing.cluster import ClusterThread


def rows(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """Return rows with a column `body`: `row-0`, `row-1`, ..."""
    number = F.col("id").cast("string")
    return spark.range(0, count, 1, partitions).select(
        F.concat(F.lit("row-"), number).alias("body")
    )


def write(df: DataFrame, namesrv: str, **options: object) -> None:
    """Append rows; `batch__maxBytes` is the option `batch.maxBytes`."""
    writer = df.write.format("rocketmq").mode("append").option("nameservers", namesrv)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), str(value))
    writer.save()


def stored(cluster: ClusterThread, topic: str) -> list[MessageExt]:
    """Return every message of a topic, queue by queue, in order."""
    found = []
    for broker in cluster.brokers:
        store = broker.parts.store
        config = broker.parts.topics.get(topic)
        for queue_id in range(config.write_queue_nums if config else 0):
            offset, end = 0, store.max_offset(topic, queue_id)
            while offset < end:
                got = store.get_message(topic, queue_id, offset, 1024, 64 << 20)
                found += [decode_message(record) for record in got.buffers]
                offset = got.next_begin_offset
    return found


def bodies(messages: list[MessageExt]) -> Counter[str]:
    """Count the bodies."""
    return Counter(message.body.decode() for message in messages)


def assert_equal_ids_are_equal_rows(found: list[MessageExt], count: int) -> None:
    """Check that exactly the copies of a row share its `_spark_id`."""
    by_id: dict[str, set[bytes]] = {}
    for message in found:
        by_id.setdefault(message.properties["_spark_id"], set()).add(message.body)
    assert len(by_id) == count
    assert all(len(copies) == 1 for copies in by_id.values())
