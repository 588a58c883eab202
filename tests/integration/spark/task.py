"""Fake task of a write, without Spark."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from rocketpy.spark.sink.writer import TaskReport, batch_writer


@pytest.fixture
def in_task() -> Iterator[None]:
    """Set the environment of a Spark task."""
    TaskContext._getOrCreate()._partitionId = 0
    yield
    TaskContext._setTaskContext(None)


def write(options: dict[str, str], topic: str, count: int) -> TaskReport:
    """Write `body-0`, `body-1`, ... and return the report of the task."""
    schema = StructType([StructField("body", BinaryType()), StructField("keys", StringType())])
    writer = batch_writer(options | {"topic": topic}, schema, overwrite=False)
    bodies = [b"body-%d" % number for number in range(count)]
    keys = [str(number) for number in range(count)]
    return writer.write(iter([pa.RecordBatch.from_pydict({"body": bodies, "keys": keys})]))
