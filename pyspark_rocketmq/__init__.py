"""The format `rocketmq`, found by Spark, which imports every package named `pyspark_*`.

Nothing but pyspark is imported at the top: an import that fails here would cost the user every
other Python data source.
"""

# ruff: noqa: PLC0415 - see above

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
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
        from rocketpy.spark.source.batch import batch_reader

        return batch_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what writes a batch."""
        from rocketpy.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return what writes a batch of a stream."""
        from rocketpy.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Return what plans and reads the batches of a stream."""
        from rocketpy.spark.source.stream import StreamReader

        return StreamReader(self.options, schema)
