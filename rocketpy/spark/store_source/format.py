"""What Spark asks of the format: a schema, and a reader that fits the options."""

from collections.abc import Iterable, Mapping

from pyspark.sql.datasource import DataSourceReader, Filter
from pyspark.sql.types import StructType

from rocketpy.spark.options import parse_options
from rocketpy.spark.schema import arrow_schema_to_spark, row_schema_to_spark, rows_of
from rocketpy.spark.store_source.options import StoreOptions
from rocketpy.spark.store_source.reader import StoreReader
from rocketpy.spark.store_source.tables import TableReader, table_schema


class NarrowingReader(StoreReader):
    """The same, which takes conditions: Spark refuses that unless it is set up for it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take conditions, and return those that Spark has to apply itself."""
        return list(self.conditions.take(filters))


def store_schema(options: Mapping[str, str]) -> StructType:
    """Return the columns of a read whose user gives none.

    Raises:
        ConfigError: an option cannot be used.
    """
    parsed = parse_options(options, StoreOptions)
    if parsed.table != "messages":
        return arrow_schema_to_spark(table_schema(parsed.table))
    return row_schema_to_spark(rows_of(parsed))


def store_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return what plans and reads.

    Raises:
        ConfigError: an option or a column cannot be used.
    """
    parsed = parse_options(options, StoreOptions)
    if parsed.table != "messages":
        return TableReader(parsed, schema)
    return NarrowingReader(options, schema) if parsed.pushdown else StoreReader(options, schema)
