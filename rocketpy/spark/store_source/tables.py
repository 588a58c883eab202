"""Tables of a store directory as rows: offsets, topics, groups."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketpy.errors import ConfigError
from rocketpy.spark.store_source.options import StoreOptions
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.tables import SCHEMAS, table

_BROKER: pa.Field = pa.field("brokerName", pa.string())


def table_schema(name: str) -> pa.Schema:
    """Return the columns of a table: the broker's name, then those of the table."""
    return pa.schema([_BROKER, *SCHEMAS[name]])


class TableReader(DataSourceReader):
    """Reader of one table of every directory, in a single task because tables are small."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        known = table_schema(options.table)
        for name in schema.names:
            if name not in known.names:
                reason = f"has no column {name!r}; there are {', '.join(known.names)}"
                raise ConfigError(reason, key="table")
        self.options = options
        self.names: list[str] = schema.names

    def partitions(self) -> list[InputPartition]:
        """Check the directories, and return the single partition.

        Raises:
            StoreFormatError: a path is not a store directory.
        """
        for root in self.options.roots():
            StoreDirectory(root, self.options.commit_log)
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Return the rows of every directory, one after the other."""
        options = self.options
        for root, broker in zip(options.roots(), options.broker_names(), strict=True):
            found = table(StoreDirectory(root, options.commit_log), options.table)
            brokers = pa.array([broker] * found.num_rows, pa.string())
            whole = found.add_column(0, _BROKER, brokers).select(self.names)
            yield from whole.combine_chunks().to_batches()
