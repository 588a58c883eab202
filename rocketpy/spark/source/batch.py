"""Batch reader of `spark.read.format("rocketmq")`: planned once, read by tasks."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from rocketpy.arrow.schema import RowSchema
from rocketpy.errors import DataLossError
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.spark.connection import Connection, with_retries
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.options import parse_options
from rocketpy.spark.planning import Offsets, ranges_between, split_ranges
from rocketpy.spark.read_options import BatchOptions
from rocketpy.spark.schema import rows_for
from rocketpy.spark.source.executor import QueuePartition, read_partition
from rocketpy.spark.source.offset_resolution import (
    ending_offsets,
    offsets_at,
    out_of_range,
    starting_offsets,
)
from rocketpy.spark.source.pushdown import Narrowing
from rocketpy.spark.source.record_batches import lost_words
from rocketpy.spark.source.snapshot import Snapshot, check_complete, check_filter, take_snapshot


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
        return [QueuePartition(each, snapshot.brokers.get(each.broker_name, {})) for each in ranges]

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
        if outside and options.data_loss == "fail":
            raise DataLossError(lost_words(outside))
        there = {queue: min(offset, snapshot.ends[queue].high) for queue, offset in end.items()}
        ranges = await self._narrowed(connection, snapshot, ranges_between(start, there))
        return snapshot, split_ranges(
            ranges, options.min_partitions, options.max_records_per_partition
        )

    async def _narrowed(
        self,
        connection: Connection,  # noqa: ARG002 - for subclasses that narrow
        snapshot: Snapshot,  # noqa: ARG002 - for subclasses
        ranges: list[QueueRange],
    ) -> list[QueueRange]:
        """Return the ranges narrowed by pushed-down conditions; here all of them."""
        return ranges


class PushdownReader(BatchReader):
    """Batch reader with push-down of conditions.

    A separate class, because Spark fails every query of a reader with `pushFilters` unless its
    configuration allows push-down.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        namespace = self.options.namespace
        self._narrowing = Narrowing(self.rows, partial(unwrap_namespace, namespace))

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept conditions, and return those that Spark has to apply as well."""
        return [each for each in filters if not self._narrowing.add(each)]

    def __getstate__(self) -> dict[str, Any]:
        """Drop the conditions, which tasks do not need."""
        return {**self.__dict__, "_narrowing": None}

    async def _narrowed(
        self, connection: Connection, snapshot: Snapshot, ranges: list[QueueRange]
    ) -> list[QueueRange]:
        narrowing = self._narrowing
        since: Offsets = {}
        until: Offsets = {}
        if narrowing.since_ms > 0:
            times = dict.fromkeys(snapshot.ends, narrowing.since_ms)
            since = await offsets_at(connection, snapshot, times)
        if narrowing.until_ms is not None:
            times = dict.fromkeys(snapshot.ends, narrowing.until_ms)
            until = await offsets_at(connection, snapshot, times)
        found = []
        for each in ranges:
            queue = each.queue
            part = each._replace(
                start=max(each.start, since.get(queue, each.start)),
                end=min(each.end, until.get(queue, each.end)),
            )
            part = narrowing.narrowed(part)
            if part.size and narrowing.takes(queue):
                found.append(part)
        return found


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader for the given options."""
    is_pushed = parse_options(options, BatchOptions).pushdown
    return PushdownReader(options, schema) if is_pushed else BatchReader(options, schema)
