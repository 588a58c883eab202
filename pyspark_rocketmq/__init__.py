"""The format `rocketmq`, found by Spark, which imports every package named `pyspark_*`.

Nothing but pyspark is imported at the top: an import that fails here would cost the user every
other Python data source.
"""

# ruff: noqa: PLC0415 - see above

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics of a live cluster, RocketPy's or Apache's: batch and streaming, reads and writes."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the columns of a read without a schema of the user's."""
        from rocketpy.spark.schema import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what plans and reads a batch."""
        from rocketpy.spark.batch import BatchReader

        return BatchReader(self.options, schema)
