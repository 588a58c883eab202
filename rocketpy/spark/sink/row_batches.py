"""Rows of Spark as record batches, for versions of PySpark without Arrow writers."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

ROWS: Final = 4_096

_TYPES: Final[Mapping[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    ArrayType: pa.list_(pa.string()),
    MapType: pa.map_(pa.string(), pa.string()),
}
"""Types of the columns that a write uses."""


def as_batches(given: Iterable[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the rows that Spark passes to a writer, as record batches.

    Args:
        given: record batches, or rows.
        schema: of the rows, which was checked for a write.
    """
    items = iter(given)
    for first in items:
        if isinstance(first, pa.RecordBatch):
            yield first
            yield from items
            return
        rows = itertools.chain((first,), items)
        while some := list(itertools.islice(rows, ROWS)):
            columns = zip(schema.fields, zip(*some, strict=True), strict=True)
            arrays = [_column(field.dataType, values) for field, values in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=schema.names)


def _column(kind: DataType, values: tuple[Any, ...]) -> pa.Array:
    found = _TYPES.get(type(kind))
    if found is None:  # of a column that no write uses
        return pa.nulls(len(values))
    convert = _CONVERTERS.get(type(kind))
    if convert is None:
        return pa.array(values, found)
    return pa.array([None if value is None else convert(value) for value in values], found)


def _pairs(value: Mapping[str, str]) -> list[tuple[str, str]]:
    return list(value.items())


def _in_utc(value: datetime) -> datetime:
    """Return a time in UTC; Spark passes local times without a zone."""
    return value.astimezone(UTC)


_CONVERTERS: Final[Mapping[type[DataType], Callable[[Any], Any]]] = {
    TimestampType: _in_utc,
    BinaryType: bytes,
    MapType: _pairs,
}
