"""Program that reads, streams and writes with any PySpark 4; run by `test_older_versions.py`.

    python older_versions.py NAMESRV STORE HOME

Topics: `T` with messages, `W` empty. It prints a JSON object with the numbers of rows.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.settings import settings


def run(writer: Any) -> int:
    """Run a query to its end; return its rows. Busy machines exceed 10 s, which are no setting."""
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if "failed to connect back" not in str(error):
                raise
            continue
        return sum(each["numInputRows"] for each in query.recentProgress)


def stream(spark: SparkSession, namesrv: str, home: Path, out: str, **options: Any) -> list[int]:
    """Run a stream of `T` with `AvailableNow` until it has no more rows; return rows per run."""
    counts = []
    while True:
        rows = spark.readStream.format("rocketmq").options(
            nameservers=namesrv, subscribe="T", startingOffsets="earliest", **options
        )
        writer = (
            rows.load()
            .selectExpr("brokerName", "queueId", "queueOffset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(home / f"{out}-checkpoint"))
            .option("path", str(home / out))
        )
        counts.append(run(writer))
        if not counts[-1]:
            return counts


def main() -> None:
    """Run every kind of query."""
    namesrv, store, home = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings(home).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    batch = spark.read.format("rocketmq").options(nameservers=namesrv, subscribe="T").load()
    found: dict[str, Any] = {"version": pyspark.__version__, "batch": batch.count()}
    found["store"] = spark.read.format("rocketmq.store").option("topics", "T").load(store).count()
    writer = batch.select("body", "keys", "tags", "properties", "bornTimestamp").write
    writer = writer.format("rocketmq").mode("append").options(nameservers=namesrv, topic="W")
    writer.save()
    found["stream"] = stream(spark, namesrv, home, "all")
    found["limited"] = stream(spark, namesrv, home, "limited", maxOffsetsPerTrigger=40)
    rows = spark.readStream.format("rocketmq").options(
        nameservers=namesrv, subscribe="T", startingOffsets="earliest"
    )
    copies = (
        rows.load()
        .select("body", "keys", "tags", "properties", "bornTimestamp")
        .writeStream.format("rocketmq")
        .options(nameservers=namesrv, topic="W", checkpointLocation=str(home / "sink"))
    )
    run(copies)
    for name in ("all", "limited"):
        read = spark.read.parquet(str(home / name))
        found[f"{name} rows"] = [read.count(), read.distinct().count()]
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
