"""Entry points of the format for Spark: the schema, and the reader for the given options.

The reader is imported on use: Spark first asks for the schema in a separate process.
"""

# ruff: noqa: PLC0415 - see above

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from rocketpy.spark.options import parse_options
from rocketpy.spark.schema import arrow_schema_to_spark, row_schema_to_spark, rows_of
from rocketpy.spark.spark_api import need_filters
from rocketpy.spark.store_source.options import StoreOptions


def store_schema(options: Mapping[str, str]) -> StructType:
    """Return the default columns of a read.

    Raises:
        ConfigError: an option is invalid.
    """
    parsed = parse_options(options, StoreOptions)
    if parsed.table != "messages":
        from rocketpy.spark.store_source.tables import table_schema

        return arrow_schema_to_spark(table_schema(parsed.table))
    return row_schema_to_spark(rows_of(parsed))


def store_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader.

    Raises:
        ConfigError: an option or a column is invalid.
    """
    parsed = parse_options(options, StoreOptions)
    if parsed.table != "messages":
        from rocketpy.spark.store_source.tables import TableReader

        return TableReader(parsed, schema)
    if parsed.pushdown:
        need_filters()
        from rocketpy.spark.store_source.narrowing_reader import NarrowingReader

        return NarrowingReader(options, schema)
    from rocketpy.spark.store_source.reader import StoreReader

    return StoreReader(options, schema)
