"""B1 to B4: sources into a no-op sink, beside the ceiling and Spark's Kafka source.

Every source has the same messages. Kafka's rows are its default ones: key, value and five fixed
fields, no headers. RocketPy's rows have all default columns, including the map of properties.
"""

from functools import cache
from pathlib import Path

import pyarrow as pa

from bench.spark import kafka, session
from bench.spark.frame import Context, Measure, Ratio
from bench.spark.stores import TOPIC
from rocketpy.store import to_arrow


def ratios() -> list[Ratio]:
    """Return the ratios for bodies of 100 B and 1 KB."""
    found = []
    for size in (100, 1024):
        store, live = Measure(store_rate, size), Measure(live_rate, size)
        ceiling, apache_kafka = Measure(ceiling_rate, size), Measure(kafka_rate, size)
        found += [
            Ratio("B1", f"store source / ceiling, {size} B", "rows/s", 0.8, store, ceiling),
            Ratio("B2", f"live source / store source, {size} B", "rows/s", 0.5, live, store),
            Ratio(
                "B3", f"store source / Kafka source, {size} B", "rows/s", 1.2, store, apache_kafka
            ),
            Ratio("B4", f"live source / Kafka source, {size} B", "rows/s", 1.0, live, apache_kafka),
        ]
    return sorted(found, key=lambda each: each.key)


def store_rate(context: Context, body_bytes: int) -> float:
    """Read the complete store."""
    store = context.store(body_bytes)
    frame = context.spark.read.format("rocketmq.store").load(str(store.root))
    return session.rows_per_s(frame, store.count)


def ceiling_rate(context: Context, body_bytes: int) -> float:
    """Read as many prepared rows of the same shape."""
    store = context.store(body_bytes)
    path = prepared(context.scratch, store.root)
    schema = context.spark.read.format("rocketmq.store").load(str(store.root)).schema
    frame = (
        context.spark.read.format("ceiling")
        .schema(schema)
        .options(path=str(path), rows=store.count // session.TASKS)
        .load()
    )
    return session.rows_per_s(frame, store.count)


def live_rate(context: Context, body_bytes: int) -> float:
    """Read the same messages from a RocketPy broker."""
    options = {"nameservers": context.live(body_bytes), "subscribe": TOPIC}
    frame = context.spark.read.format("rocketmq").options(**options).load()
    return session.rows_per_s(frame, context.store(body_bytes).count)


def kafka_rate(context: Context, body_bytes: int) -> float:
    """Read the same messages from a Kafka broker."""
    broker, store = context.kafka, context.store(body_bytes)
    topic = f"{TOPIC}{body_bytes}"
    if topic not in broker.filled:
        rows = context.spark.read.format("rocketmq.store").load(str(store.root))
        kafka.fill(broker, topic, rows)
    options = {"kafka.bootstrap.servers": broker.address, "subscribe": topic}
    frame = context.spark.read.format("kafka").options(**options).load()
    return session.rows_per_s(frame, store.count)


@cache
def prepared(scratch: Path, root: Path, include: tuple[str, ...] = ("properties",)) -> Path:
    """Write the first batch of a store as the file that the ceiling repeats."""
    batch = next(iter(to_arrow(root, include=include)))
    path = scratch / f"{root.name}-{len(include)}.arrow"
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
    return path
