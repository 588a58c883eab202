"""A topic streamed into Parquet with a checkpoint, and counted back into another topic.

The same file runs in one process, and with executors that are other processes:

    python examples/spark_archive.py --master 'local[2,3]' NAMESRV TOPIC DIR
    python examples/spark_archive.py --master 'local-cluster[2,1,1024]' NAMESRV TOPIC DIR

It takes what is in the topic now and ends; with `--forever` it goes on until it is killed. Either
way, the next start goes on where the checkpoint says.
"""

import argparse
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it


def session(options: argparse.Namespace) -> SparkSession:
    """Return the session that the command line, or spark-submit, asks for."""
    builder = SparkSession.builder.appName("rocketpy-archive")
    if options.remote:
        return builder.remote(options.remote).getOrCreate()
    if options.master:
        builder = builder.master(options.master)
    return builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()


def read(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """Return the topic as a stream, from its beginning."""
    return (
        spark.readStream.format("rocketmq")
        .option("nameservers", options.namesrv)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.batch_rows)
        .load()
    )


def archive(spark: SparkSession, options: argparse.Namespace) -> int:
    """Write a stream into Parquet, a line a batch; return how many rows are there then."""
    writer = (
        read(spark, options)
        .writeStream.format("parquet")
        .option("path", str(options.directory / "parquet"))
        .option("checkpointLocation", str(options.directory / "checkpoint"))
    )
    if options.forever:
        query = writer.trigger(processingTime="0 seconds").start()
    else:
        query = writer.trigger(availableNow=True).start()
    shown = -1
    while True:
        is_active = query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > shown and progress["numInputRows"]:
                shown = progress["batchId"]
                print(f"batch {shown}: {progress['numInputRows']} rows", flush=True)
        if not is_active:
            break
        time.sleep(0.2)
    query.awaitTermination()
    # Over Connect, a query that has ended tells of no progress: the files are counted.
    return spark.read.parquet(str(options.directory / "parquet")).count()


def count_back(spark: SparkSession, options: argparse.Namespace) -> int:
    """Write how many rows each queue has into a topic; return how many queues there are."""
    rows = spark.read.parquet(str(options.directory / "parquet"))
    queues = rows.groupBy("brokerName", "queueId").count()
    place = F.concat_ws(":", "brokerName", "queueId")
    counts = queues.select(place.alias("keys"), F.col("count").cast("string").alias("body"))
    writer = counts.write.format("rocketmq").mode("append").option("nameservers", options.namesrv)
    writer.option("topic", options.counts).save()
    return queues.count()


def main(arguments: list[str]) -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("namesrv", help="host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path, help="gets parquet/ and checkpoint/")
    parser.add_argument("--master", help="not under spark-submit")
    parser.add_argument("--remote", help="a Spark Connect server")
    parser.add_argument("--counts", help="topic that gets the number of rows of each queue")
    parser.add_argument("--batch-rows", type=int, default=200_000, help="most rows of a batch")
    parser.add_argument("--forever", action="store_true", help="wait for more, until killed")
    options = parser.parse_args(arguments)
    spark = session(options)
    print("started", flush=True)
    total = archive(spark, options)
    print(f"archived {total} rows", flush=True)
    if options.counts:
        print(f"counted {count_back(spark, options)} queues", flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
