"""B8: Spark's sink beside our asyncio producer, with the same number of messages in flight.

One task is compared with one producer; the rows are in Spark's memory before the start.
"""

import asyncio
import time
from collections.abc import Callable
from functools import cache

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import rocketpy
from bench.spark.frame import Context, Measure, Ratio

TOPIC = "SinkTopic"
IN_FLIGHT = 256
BATCH = 500
BATCHES_IN_FLIGHT = 4
ROWS = 200_000
"""Enough rows that the half second for planning a query hardly affects the rate."""


def ratios() -> list[Ratio]:
    """Return B8 for single messages, and for batches of the sink and of the producer."""
    alone, batches = "sink / asyncio producer, each alone", "sink / asyncio producer, batches"
    return [
        Ratio("B8", f"{alone}, 100 B", "rows/s", 0.8, Measure(sink, 100), Measure(producer, 100)),
        Ratio(
            "B8",
            f"{batches}, 100 B",
            "rows/s",
            0.8,
            Measure(sink_of_batches, 100),
            Measure(producer_of_batches, 100),
        ),
    ]


def sink(context: Context, body_bytes: int) -> float:
    """Write rows, one in each request."""
    return _written(context, _rows(context), body_bytes, "0")


def sink_of_batches(context: Context, body_bytes: int) -> float:
    """Write rows with the default options of the sink."""
    return _written(context, _rows(context, 2), body_bytes, "256k")


def producer(context: Context, body_bytes: int) -> float:
    """Send as many messages, one in each request."""
    rows, namesrv = _rows(context), context.live(0)

    async def send() -> None:
        async with rocketpy.connect(namesrv, group="bench") as client:
            sending = client.producer(max_in_flight=IN_FLIGHT)
            for number in range(rows):
                await sending.ready()
                sending.send_nowait(TOPIC, b"x" * body_bytes, keys=str(number), tag="A")
            await sending.flush()

    return _rate(rows, lambda: asyncio.run(send()))


def producer_of_batches(context: Context, body_bytes: int) -> float:
    """Send as many messages in batches, several in flight."""
    rows, namesrv, body = _rows(context, 2), context.live(0), b"x" * body_bytes

    async def send() -> None:
        async with rocketpy.connect(namesrv, group="bench") as client:
            sending = client.producer()
            for start in range(0, rows, BATCH * BATCHES_IN_FLIGHT):
                firsts = range(start, start + BATCH * BATCHES_IN_FLIGHT, BATCH)
                batches = [[_message(body, first + n) for n in range(BATCH)] for first in firsts]
                await asyncio.gather(*(sending.send_batch(TOPIC, each) for each in batches))

    return _rate(rows, lambda: asyncio.run(send()))


def _rows(context: Context, times: int = 1) -> int:
    """Return the number of rows, a multiple of a round of batches."""
    step = BATCH * BATCHES_IN_FLIGHT
    return max(step, int(ROWS * times * context.scale) // step * step)


def _written(context: Context, rows: int, body_bytes: int, batch_bytes: str) -> float:
    frame = _in_memory(context.spark, rows, body_bytes)
    writer = frame.write.format("rocketmq").mode("append")
    writer.option("nameservers", context.live(0)).option("inflight", IN_FLIGHT)
    return _rate(rows, lambda: writer.option("batch.maxBytes", batch_bytes).save())


def _rate(rows: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


@cache
def _in_memory(spark: SparkSession, rows: int, body_bytes: int) -> DataFrame:
    frame = spark.range(0, rows, 1, 1).select(
        F.lit(TOPIC).alias("topic"),
        F.repeat(F.lit("x"), F.lit(body_bytes)).cast("binary").alias("body"),
        F.col("id").cast("string").alias("keys"),
        F.lit("A").alias("tags"),
    )
    frame = frame.cache()
    frame.count()
    return frame


def _message(body: bytes, number: int) -> rocketpy.Message:
    return rocketpy.Message(topic=TOPIC, body=body, tag="A", keys=str(number))
