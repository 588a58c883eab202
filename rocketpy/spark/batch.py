"""`spark.read.format("rocketmq")`: what to read is decided once, by the planner; tasks read it."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketpy.errors import DataLossError
from rocketpy.spark.batches import lost_words
from rocketpy.spark.connection import Connection, with_retries
from rocketpy.spark.executor import QueuePartition, read_partition
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.options import parse_options
from rocketpy.spark.planning import ranges_between, split_ranges
from rocketpy.spark.positions import ending_offsets, out_of_range, starting_offsets
from rocketpy.spark.read_options import BatchOptions
from rocketpy.spark.schema import rows_for
from rocketpy.spark.snapshot import Snapshot, check_complete, take_snapshot


class BatchReader(DataSourceReader):
    """Reads ranges that are fixed when the query is planned.

    Args:
        options: as Spark has them.
        schema: the columns wanted.

    Raises:
        ConfigError: an option or a column cannot be used.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, BatchOptions)
        self.rows = rows_for(schema, self.options)

    def partitions(self) -> list[InputPartition]:
        """Return a partition a queue, or more where they are to be split.

        Raises:
            RocketPyError: a topic or queue is not there, offsets are out of range, no name server
                answers.
        """
        connection = Connection(self.options)
        try:
            snapshot, ranges = connection.run(
                with_retries(
                    lambda: self._plan(connection),
                    retries=self.options.offset_retries,
                    pause_ms=self.options.offset_retry_pause_ms,
                )
            )
        finally:
            connection.close()
        return [QueuePartition(each, snapshot.brokers.get(each.broker_name, {})) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; of a query without any, Spark asks for one all the same."""
        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self.options, self.rows)

    async def _plan(self, connection: Connection) -> tuple[Snapshot, list[QueueRange]]:
        options = self.options
        snapshot = await take_snapshot(connection.servers, options)
        check_complete(snapshot, options)
        start = await starting_offsets(connection, snapshot, options, "earliest")
        end = await ending_offsets(connection, snapshot, options)
        outside = out_of_range(snapshot, start, end)
        if outside and options.data_loss == "fail":
            raise DataLossError(lost_words(outside))
        there = {queue: min(offset, snapshot.ends[queue].high) for queue, offset in end.items()}
        ranges = ranges_between(start, there)
        return snapshot, split_ranges(
            ranges, options.min_partitions, options.max_records_per_partition
        )
