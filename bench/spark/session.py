"""Spark session of the benchmarks, and a source without work as the ceiling."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bench.processes import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2


def start(scratch: Path, jars: Sequence[Path] = ()) -> "SparkSession":
    """Start a session with two cores, on loopback, with more jars on its class path."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession  # noqa: PLC0415 - reads the environment

    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(scratch / "spark"),
    }
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    builder = SparkSession.builder.master(f"local[{TASKS},3]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(Ceiling)
    return session


def rows_per_s(frame: "DataFrame", count: int) -> float:
    """Run a query into a no-op sink, and return rows a second."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return count / (time.perf_counter() - began)


class Ceiling(DataSource):
    """Yields one prepared batch (an Arrow IPC file, option `path`) up to `rows` rows a task."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _CeilingReader(self.options["path"], int(self.options["rows"]))


class _CeilingReader(DataSourceReader):
    def __init__(self, path: str, rows: int) -> None:
        self.path = path
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        with pa.ipc.open_file(self.path) as file:
            batch = file.get_batch(0)
        left = self.rows
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows
