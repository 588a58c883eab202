"""Rows of versions of PySpark without Arrow writers."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketpy.spark.sink.row_batches import ROWS, as_batches

SCHEMA = StructType(
    [
        StructField("body", BinaryType()),
        StructField("keys", ArrayType(StringType())),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("deliverTime", TimestampType()),
        StructField("shardingKey", LongType()),
    ]
)


@pytest.fixture
def new_york() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("new_york")
def test_batches_of_rows_have_values_of_arrow() -> None:
    row = Row(
        body=bytearray(b"x"), keys=["a", None], properties={"k": "v"},
        deliverTime=datetime(2026, 7, 1, 8, 0), shardingKey=7,  # noqa: DTZ001 - as Spark's
    )  # fmt: skip
    nothing = Row(body=None, keys=None, properties=None, deliverTime=None, shardingKey=None)
    (batch,) = as_batches(iter([row, nothing]), SCHEMA)

    assert batch.to_pylist() == [
        {
            "body": b"x",
            "keys": ["a", None],
            "properties": [("k", "v")],
            "deliverTime": datetime(2026, 7, 1, 12, 0, tzinfo=UTC),
            "shardingKey": 7,
        },
        dict.fromkeys(SCHEMA.names),
    ]


def test_batches_of_many_rows_are_split_and_batches_kept() -> None:
    schema = StructType([StructField("shardingKey", LongType())])
    rows = [Row(shardingKey=number) for number in range(ROWS + 5)]
    assert [each.num_rows for each in as_batches(iter(rows), schema)] == [ROWS, 5]

    batches = [pa.RecordBatch.from_pydict({"shardingKey": [number]}) for number in range(3)]
    assert list(as_batches(iter(batches), schema)) == batches
    assert list(as_batches(iter([]), schema)) == []
