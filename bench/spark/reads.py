"""B1: the store source beside the ceiling of the same rows."""

from functools import cache, partial
from pathlib import Path

import pyarrow as pa

from bench.spark import session
from bench.spark.frame import Context, Ratio
from rocketpy.store import to_arrow


def ratios() -> list[Ratio]:
    """Return B1 for bodies of 100 B and 1 KB."""
    return [
        Ratio(
            "B1",
            f"store source to noop / ceiling of the same rows, {size} B",
            "rows/s",
            0.8,
            partial(store_rate, body_bytes=size),
            partial(ceiling_rate, body_bytes=size),
        )
        for size in (100, 1024)
    ]


def store_rate(context: Context, body_bytes: int) -> float:
    """Read the whole store."""
    store = context.store(body_bytes)
    frame = context.spark.read.format("rocketmq.store").load(str(store.root))
    return session.rows_per_s(frame, store.count)


def ceiling_rate(context: Context, body_bytes: int) -> float:
    """Read as many rows of the same shape, which cost nothing to make."""
    store = context.store(body_bytes)
    path = _prepared(context.scratch, store.root)
    schema = context.spark.read.format("rocketmq.store").load(str(store.root)).schema
    frame = (
        context.spark.read.format("ceiling")
        .schema(schema)
        .options(path=str(path), rows=store.count // session.TASKS)
        .load()
    )
    return session.rows_per_s(frame, store.count)


@cache
def _prepared(scratch: Path, root: Path) -> Path:
    """Write the first batch of a store as the file that the ceiling repeats."""
    batch = next(iter(to_arrow(root)))
    path = scratch / f"{root.name}.arrow"
    with pa.ipc.new_file(str(path), batch.schema) as file:
        file.write_batch(batch)
    return path
