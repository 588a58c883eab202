"""Format `rocketmq`. Spark discovers it, because it imports every package named `pyspark_*`.

Only names that every PySpark 4 has are imported at module level: an import that fails here would
disable all other Python data sources. What a version lacks is reported where it is used.
"""

# ruff: noqa: PLC0415 - see above

from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from pyspark_rocketmq.base import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Data source for topics of RocketPy or Apache: batch and streaming reads and writes."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return the default columns of a read."""
        from rocketpy.spark.schema import default_schema

        return default_schema(self.options)

    def reader(self, schema: StructType) -> "DataSourceReader":
        """Return the reader of a batch."""
        from rocketpy.spark.source.format import batch_reader

        return batch_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> "DataSourceWriter":
        """Return the writer of a batch."""
        from rocketpy.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> "DataSourceStreamWriter":
        """Return the writer of a stream."""
        from rocketpy.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":  # noqa: N802 - Spark's
        """Return the reader of a stream."""
        from rocketpy.spark.source.stream import StreamReader

        return StreamReader(self.options, schema)
