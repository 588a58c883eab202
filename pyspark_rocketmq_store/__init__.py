"""The format `rocketmq.store`, found by Spark, which imports every package named `pyspark_*`.

Nothing but pyspark is imported at the top: an import that fails here would cost the user every
other Python data source.
"""

# ruff: noqa: PLC0415 - see above

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Store directories, RocketPy's or Apache's, read without a broker."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "rocketmq.store"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema of the user's."""
        from rocketpy.spark.store_source.format import store_schema

        return store_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads."""
        from rocketpy.spark.store_source.format import store_reader

        return store_reader(self.options, schema)
