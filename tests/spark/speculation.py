"""A program that writes and archives with speculative execution: one task of each is very slow.

    python speculation.py NAMESRV SUNK KEPT DIR

It writes rows to topic SUNK and archives topic KEPT to DIR/archive. Attempts of the slow task leave
a file `sink-N` or `archive-N` in DIR when they are at the end of their work.
"""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from rocketpy.spark.jobs.archive import Wanted, archive
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
_SLOW_S = 600.0  # far longer than a second attempt takes; it is killed when that has ended


def wait_once(directory: Path, what: str) -> None:
    """Have whichever attempt of the first task gets here first wait until it is killed.

    On a busy machine that may be the second attempt: the first one is slow to begin there, and if
    the second went on, it would be killed before it got here.
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
    """Has its first task wait between its file and its report."""

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        for rows in super().read(partition):
            if rows.column("rows")[0].as_py():
                wait_once(self.root.parent, "archive")
            yield rows


class SlowSource(archive_source.ArchiveSource):
    """The archive's source with that reader."""

    def streamReader(self, schema: Any) -> SlowReader:  # noqa: N802 - Spark's
        return SlowReader(self.options)


def write(spark: SparkSession, namesrv: str, topic: str, directory: Path) -> None:
    """Write rows; the slow task hands most of its own to the sink before it waits."""

    def slow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        wait_once(directory, "sink")

    rows = spark.range(0, ROWS, 1, 4).selectExpr("cast(id as string) AS body")
    writer = rows.mapInArrow(slow, rows.schema).write.format("rocketmq").mode("append")
    writer.option("nameservers", namesrv).option("topic", topic).save()


def main(namesrv: str, sunk: str, kept: str, directory: Path) -> None:
    """Do both."""
    builder = SparkSession.builder
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    write(spark, namesrv, sunk, directory)
    setattr(archive_source, "ArchiveSource", SlowSource)  # noqa: B010 - what the job registers
    wanted = Wanted(topics=kept, namesrv=namesrv, root=directory / "archive")
    with ArchiveLog(wanted.root) as log:
        print("archived", archive(spark, wanted, log, print).messages)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
