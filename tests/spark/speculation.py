"""Program that writes and archives with speculative execution and one very slow task of each.

    python speculation.py NAMESRV SUNK KEPT DIR

It writes rows to topic SUNK and archives topic KEPT to DIR/archive. Attempts of the slow task
create a file `sink-N` or `archive-N` in DIR at the end of their work.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from rocketpy.spark.jobs.archive import ArchiveRequest, archive
from rocketpy.spark.jobs.parquet_archive import source as archive_source
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog

ROWS = 400
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
}
_SLOW_S = 600.0  # far longer than a second attempt; Spark kills the first one after that


def wait_once(directory: Path, what: str) -> None:
    """Block the attempt of the first task that arrives first, until it is killed.

    On a busy machine that may be the second attempt: the first one starts slowly there, and would
    be killed before it arrived here if the second one finished.
    """
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        (directory / f"{what}-{context.attemptNumber()}").touch()
        try:
            (directory / f"first-of-{what}").touch(exist_ok=False)
        except FileExistsError:
            return
        time.sleep(_SLOW_S)


class SlowReader(archive_source.ArchiveReader):
    """Reader with a first task that blocks between its file and its report."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            if rows.column("rows")[0].as_py():
                wait_once(self.root.parent, "archive")
            yield rows


class SlowSource(archive_source.ArchiveSource):
    """Source of the archive with that reader."""

    def streamReader(self, schema: Any) -> SlowReader:  # noqa: N802 - Spark's
        return SlowReader(self.options)


def write(spark: SparkSession, namesrv: str, topic: str, directory: Path) -> None:
    """Write rows; the slow task passes most of its rows to the sink before it blocks."""

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        wait_once(directory, "sink")

    rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) AS body")
    writer = rows.mapInArrow(slow, rows.schema).write.format("rocketmq").mode("append")
    writer.option("nameservers", namesrv).option("topic", topic).save()


def main(namesrv: str, sunk: str, kept: str, directory: Path) -> None:
    """Run both jobs."""
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    write(spark, namesrv, sunk, directory)
    setattr(archive_source, "ArchiveSource", SlowSource)  # noqa: B010 - the source that the job registers
    root = directory / "archive"
    wanted = ArchiveRequest(topics=kept, namesrv=namesrv, root=root)
    with ArchiveLog(root) as log:
        print("archived", archive(spark, wanted, log, print).messages)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
