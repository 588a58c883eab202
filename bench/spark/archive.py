"""B7: the archive job, from a live topic to Parquet, beside Spark's writer of prepared batches."""

import shutil
import time
from pathlib import Path

from bench.spark import session
from bench.spark.frame import Context, Measure, Ratio
from bench.spark.reads import prepared
from bench.spark.stores import TOPIC
from rocketpy.spark.jobs.archive import ArchiveRequest, archive
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog
from rocketpy.spark.jobs.parquet_archive.source import INCLUDE


def ratios() -> list[Ratio]:
    """Return B7 for both sizes of bodies."""
    return [
        Ratio(
            "B7",
            f"archive job / ceiling to Parquet, {size} B",
            "rows/s",
            0.9,
            Measure(archive_rate, size),
            Measure(parquet_ceiling_rate, size),
        )
        for size in (100, 1024)
    ]


def archive_rate(context: Context, body_bytes: int) -> float:
    """Archive the complete topic into a new directory."""
    namesrv, root = context.live(body_bytes), _new(context.scratch / "archive")
    wanted = ArchiveRequest(topics=TOPIC, namesrv=namesrv, root=root)
    began = time.perf_counter()
    with ArchiveLog(root) as log:
        done = archive(context.spark, wanted, log, lambda _: None)
    passed = time.perf_counter() - began
    shutil.rmtree(root)
    if done.messages != context.store(body_bytes).count:
        msg = f"{done.messages} messages were archived of {context.store(body_bytes).count}"
        raise RuntimeError(msg)
    return done.messages / passed


def parquet_ceiling_rate(context: Context, body_bytes: int) -> float:
    """Write as many prepared rows of the same columns."""
    store, root = context.store(body_bytes), _new(context.scratch / "parquet")
    reader = context.spark.read.format("rocketmq.store").option("include", INCLUDE)
    schema = reader.load(str(store.root)).schema
    path = prepared(context.scratch, store.root, tuple(INCLUDE.split(",")))
    options = {"path": str(path), "rows": str(store.count // session.TASKS)}
    frame = context.spark.read.format("ceiling").schema(schema).options(**options).load()
    began = time.perf_counter()
    frame.write.parquet(str(root))
    passed = time.perf_counter() - began
    shutil.rmtree(root)
    return store.count / passed


def _new(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    return path
