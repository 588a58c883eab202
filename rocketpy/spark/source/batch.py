"""Batch reader of `spark.read.format("rocketmq")`: planned once, read by tasks."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketpy.arrow.schema import RowSchema
from rocketpy.errors import DataLossError
from rocketpy.spark.connection import Connection, with_retries
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.options import parse_options
from rocketpy.spark.planning import ranges_between, split_present
from rocketpy.spark.read_options import BatchOptions
from rocketpy.spark.schema import rows_for
from rocketpy.spark.source.executor import QueuePartition, read_partition
from rocketpy.spark.source.offset_resolution import (
    ending_offsets,
    out_of_range,
    starting_offsets,
)
from rocketpy.spark.source.queue_identity import seen_after
from rocketpy.spark.source.record_batches import lost_words
from rocketpy.spark.source.snapshot import (
    Snapshot,
    check_at_slaves,
    check_complete,
    check_filter,
    take_snapshot,
)


class BatchReader(DataSourceReader):
    """Reader of ranges that are fixed when the query is planned.

    Args:
        options: as texts, from Spark.
        schema: the columns to read.

    Raises:
        ConfigError: an option or a column is invalid.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: BatchOptions = parse_options(options, BatchOptions)
        self.rows: RowSchema = rows_for(schema, self.options)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each queue, or more where queues are split.

        Raises:
            RocketPyError: a topic or queue does not exist, offsets are out of range, or no name
                server answers.
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
        seen = seen_after({}, snapshot, ())
        return [
            QueuePartition(each, snapshot.brokers.get(each.broker_name, {}), seen.get(each.queue))
            for each in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition; Spark reads an empty one for a query without partitions."""
        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self.options, self.rows)

    async def _plan(self, connection: Connection) -> tuple[Snapshot, list[QueueRange]]:
        options = self.options
        snapshot = await take_snapshot(connection.servers, options)
        check_complete(snapshot, options)
        await check_filter(connection, snapshot, options)
        start = await starting_offsets(connection, snapshot, options, "earliest")
        end = await ending_offsets(connection, snapshot, options)
        outside = out_of_range(snapshot, start, end)
        check_at_slaves(snapshot, [each for each, _ in outside])
        if outside and options.data_loss == "fail":
            raise DataLossError(lost_words(outside))
        there = {queue: min(offset, snapshot.ends[queue].high) for queue, offset in end.items()}
        ranges = await self._narrowed(connection, snapshot, ranges_between(start, there))
        firsts = {queue: bounds.low for queue, bounds in snapshot.ends.items()}
        return snapshot, split_present(
            ranges, firsts, options.min_partitions, options.max_records_per_partition
        )

    async def _narrowed(
        self,
        connection: Connection,  # noqa: ARG002 - for subclasses that narrow
        snapshot: Snapshot,  # noqa: ARG002 - for subclasses
        ranges: list[QueueRange],
    ) -> list[QueueRange]:
        """Return the ranges narrowed by pushed-down conditions; here all of them."""
        return ranges
