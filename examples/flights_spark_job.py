r"""The Spark side of `make demo-spark`, as a job of one's own looks; also for spark-submit.

    python flights_spark_job.py stream  --namesrv HOST:PORT --to DIR [--live]
    spark-submit flights_spark_job.py analyse --namesrv HOST:PORT --flights DIR --tables DIR \
        --to FILE

Both take `--master` (`local[2,3]` by default; spark-submit has its own) or `--remote`, a Spark
Connect server.

`stream` turns the messages of the topic into rows of Parquet, partitioned by month. Each message is
there exactly once whatever reads the files, also when this process is killed: the files of a batch
are named after the batch, and a batch that is repeated replaces its own.
"""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

TOPIC = "departures"
RESULTS = "departure-delays"
FLIGHT = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, "
    "origin string, dest string, air_time int, distance int, hour int, minute int, "
    "time_hour timestamp"
)
WEATHER = (
    "origin string, year int, month int, day int, hour int, temp double, dewp double, "
    "humid double, wind_dir double, wind_speed double, wind_gust double, precip double, "
    "pressure double, visib double, time_hour timestamp"
)
PLANE = (
    "tailnum string, built int, type string, manufacturer string, model string, engines int, "
    "seats int, speed int, engine string"
)
PLACE = ["brokerName", "queueId", "queueOffset"]


def session(master: str, remote: str) -> SparkSession:
    """The session of a Spark Connect server, of spark-submit, or of a master, with two cores."""
    builder = SparkSession.builder.appName("flights")
    if remote:
        builder = builder.remote(remote)
    elif "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master).config("spark.driver.memory", "1g")
        builder = builder.config("spark.ui.enabled", "false")
    if not remote:
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    builder = builder.config("spark.sql.shuffle.partitions", "4")
    spark = builder.getOrCreate()
    if not remote:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def executors_of(spark: SparkSession) -> int:
    """Return the number of executors; 0 over Connect, which does not report it."""
    if not hasattr(spark, "_jsc"):
        return 0
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # noqa: SLF001 - no other way


# --- the stream ---------------------------------------------------------------------------


def departures(messages: DataFrame) -> DataFrame:
    """The CSV line in each message as columns, beside the message's place in its queue."""
    line = f.col("body").cast("string")
    flight = f.from_csv(line, FLIGHT, {"nullValue": "NA"}).alias("flight")
    return messages.select(*PLACE, "storeTimestamp", flight).select(
        *PLACE, "storeTimestamp", "flight.*"
    )


def write_once(rows: DataFrame, batch: int, root: Path) -> None:
    """Write a batch into `root/month=M/`, in place of what an attempt before left of it.

    Args:
        rows: of the batch, the same whenever it is repeated.
        batch: its number.
        root: of the table.
    """
    attempt = root / "_attempt"
    rows.write.mode("overwrite").partitionBy("month").parquet(str(attempt))
    for stale in root.glob(f"month=*/batch-{batch:06d}-*.parquet"):
        stale.unlink()
    for number, part in enumerate(sorted(attempt.glob("month=*/*.parquet"))):
        folder = root / part.parent.name
        folder.mkdir(exist_ok=True)
        part.replace(folder / f"batch-{batch:06d}-{number:04d}.parquet")
    shutil.rmtree(attempt)


def stream(spark: SparkSession, namesrv: str, root: Path, *, live: bool, batch_rows: int) -> None:
    """Write the topic to Parquet: the existing messages, or continuously."""
    messages = (
        spark.readStream.format("rocketmq")
        .option("nameservers", namesrv)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", batch_rows)
        .option("progressGroup", "flights-archive")
        .load()
    )
    writer = departures(messages).writeStream.option(
        "checkpointLocation", str(root / "_checkpoint")
    )

    def take(rows: DataFrame, batch: int) -> None:
        write_once(rows, batch, root)
        print(f"batch {batch} is written", flush=True)

    trigger = {"processingTime": "1 second"} if live else {"availableNow": True}
    writer.trigger(**trigger).foreachBatch(take).start().awaitTermination()


# --- the analysis -------------------------------------------------------------------------


def weather_of(spark: SparkSession, tables: Path) -> DataFrame:
    """Return one row for each airport and hour, with the kind of weather."""
    found = spark.read.schema(WEATHER).csv(str(tables / "weather.csv"), header=True, nullValue="NA")
    kind = (
        f.when(f.col("visib") < 2, "fog or snow (under 2 miles)")
        .when(f.col("precip") > 0.1, "heavy rain (over 0.1 in/h)")
        .when(f.col("precip") > 0, "rain")
        .when(f.col("wind_speed") > 20, "wind over 20 mph")
        .otherwise("none of these")
    )
    wanted = found.select(
        "origin", "time_hour", "temp", "wind_speed", "visib", kind.alias("weather")
    )
    return wanted.dropDuplicates(["origin", "time_hour"])


def reports(spark: SparkSession, flights: Path, tables: Path) -> dict[str, DataFrame]:
    """Delay by carrier, hour, weather, and age of the plane."""
    planes = spark.read.schema(PLANE).csv(str(tables / "planes.csv"), header=True, nullValue="NA")
    airlines = spark.read.schema("carrier string, airline string").csv(
        str(tables / "airlines.csv"), header=True
    )
    joined = (
        spark.read.parquet(str(flights))
        .where("dep_delay is not null")
        .join(f.broadcast(weather_of(spark, tables)), ["origin", "time_hour"], "left")
        .join(f.broadcast(planes.select("tailnum", "built", "seats")), "tailnum", "left")
        .join(f.broadcast(airlines), "carrier", "left")
        .withColumn("age", f.col("year") - f.col("built"))
        .cache()
    )
    by_age = joined.where("age is not null").withColumn(
        "age", f.least(f.expr("age div 5 * 5"), f.lit(30))
    )
    return {
        "carrier": delays(joined, "airline").orderBy(f.desc("mean_delay")),
        "hour": delays(joined, "hour").orderBy("hour"),
        "weather": delays(joined.where("weather is not null"), "weather").orderBy(
            f.desc("mean_delay")
        ),
        "age": delays(by_age, "age").orderBy("age"),
    }


def delays(flights: DataFrame, by: str) -> DataFrame:
    """Return the number of flights, and their delays."""
    return flights.groupBy(by).agg(
        f.count("*").alias("flights"),
        f.round(f.mean("dep_delay"), 1).alias("mean_delay"),
        f.round(f.percentile("dep_delay", f.lit(0.9)), 1).alias("p90_delay"),
        f.round(100 * f.mean((f.col("dep_delay") > 15).cast("int")), 1).alias("percent_late"),
    )


def analyse(spark: SparkSession, namesrv: str, flights: Path, tables: Path, to: Path) -> None:
    """Join, aggregate, send each row of the results as a message, and write them as JSON."""
    results = {}
    for name, report in reports(spark, flights, tables).items():
        rows = report.collect()
        results[name] = [row.asDict() for row in rows]
        key = f.concat(f.lit(f"{name}:"), f.col(report.columns[0]).cast("string"))
        body = f.to_json(f.struct("*"))
        frame = spark.createDataFrame(rows, report.schema).select(
            body.alias("body"),
            f.lit(name).alias("tags"),
            f.regexp_replace(key, " ", "_").alias("keys"),
        )
        frame.write.format("rocketmq").mode("append").option("nameservers", namesrv).option(
            "topic", RESULTS
        ).save()
    back = (
        spark.read.format("rocketmq")
        .option("nameservers", namesrv)
        .option("subscribe", RESULTS)
        .load()
        .groupBy("tags")
        .count()
    )
    in_topic = {row["tags"]: row["count"] for row in back.collect()}
    found = {"results": results, "in_topic": in_topic, "executors": executors_of(spark)}
    to.write_text(json.dumps(found, indent=1))


def main() -> None:
    """Read the command line and do it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["stream", "analyse"])
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--batch-rows", type=int, default=40_000)
    parser.add_argument("--flights", type=Path)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--master", default="local[2,3]")
    parser.add_argument("--remote", default="", help="a Spark Connect server")
    given = parser.parse_args()
    spark = session(given.master, given.remote)
    if given.what == "stream":
        stream(spark, given.namesrv, given.to, live=given.live, batch_rows=given.batch_rows)
    else:
        analyse(spark, given.namesrv, given.flights, given.tables, given.to)
    spark.stop()


if __name__ == "__main__":
    main()
