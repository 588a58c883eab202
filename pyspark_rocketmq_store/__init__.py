"""Format `rocketmq.store`. Spark discovers it, because it imports every package named `pyspark_*`.

Only names that every PySpark 4 has are imported at module level: an import that fails here would
disable all other Python data sources.
"""

# ruff: noqa: PLC0415 - see above

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pyspark_rocketmq.base import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Data source for store directories of RocketPy or Apache, read without a broker."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "rocketmq.store"

    def schema(self) -> StructType:
        """Return the default columns of a read."""
        from rocketpy.spark.store_source.format import store_schema

        return store_schema(self.options)

    def reader(self, schema: StructType) -> "DataSourceReader":
        """Return the reader."""
        from rocketpy.spark.store_source.format import store_reader

        return store_reader(self.options, schema)
