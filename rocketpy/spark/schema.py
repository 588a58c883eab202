"""Schemas of decoded rows as types of Spark."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rocketpy.arrow.schema import RowSchema, row_schema
from rocketpy.errors import ConfigError
from rocketpy.spark.options import parse_known
from rocketpy.spark.read_options import RowOptions

_TYPES: Final[Mapping[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
    pa.map_(pa.string(), pa.string()): MapType(StringType(), StringType(), True),
}


def row_schema_to_spark(schema: RowSchema) -> StructType:
    """Return a row schema as types of Spark; all columns are nullable."""
    return arrow_schema_to_spark(schema.arrow)


def arrow_schema_to_spark(schema: pa.Schema) -> StructType:
    """Return an Arrow schema as types of Spark; all columns are nullable."""
    return StructType([StructField(each.name, _TYPES[each.type], True) for each in schema])


def rows_of(options: RowOptions) -> RowSchema:
    """Return the row schema that options select.

    Raises:
        ConfigError: a column does not exist.
    """
    try:
        return row_schema(
            columns=options.columns,
            include=options.include,
            style=options.schema_style,
            value_format=options.value_format,
        )
    except ValueError as error:
        raise ConfigError(str(error), key="columns") from None


def default_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of a read without a user schema, from the options of rows."""
    return row_schema_to_spark(rows_of(parse_known(options, RowOptions)))


def rows_for(schema: StructType, options: RowOptions) -> RowSchema:
    """Return the row schema of a read; the user's schema selects columns by name.

    Args:
        schema: the user's, or that of `default_schema`.
        options: style and format.

    Raises:
        ConfigError: a column does not exist, or has another type.
    """
    try:
        found = row_schema(
            columns=schema.names, style=options.schema_style, value_format=options.value_format
        )
    except ValueError as error:
        raise ConfigError(str(error), key="schema") from None
    for wanted, ours in zip(schema.fields, row_schema_to_spark(found).fields, strict=True):
        if wanted.dataType != ours.dataType:
            reason = f"is {ours.dataType.simpleString()}, not {wanted.dataType.simpleString()}"
            raise ConfigError(f"column {wanted.name} {reason}", key="schema")
        if not wanted.nullable:
            raise ConfigError(f"column {wanted.name} has to be nullable", key="schema")
    return found
