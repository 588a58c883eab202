"""Stream reader of `spark.readStream.format("rocketmq")`: triggers, limits and progress.

One object exists for the lifetime of the query and returns offsets; tasks get copies of it, which
only read. The rows of a batch are determined by the offsets in Spark's checkpoint. So a queue is
never read from a position that is not durable: the first batch of a stream is empty, and a new
queue adds no rows to the first batch in which it appears.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from rocketpy.arrow.schema import RowSchema
from rocketpy.spark.offsets import StreamOffset, from_json, to_json
from rocketpy.spark.options import parse_options
from rocketpy.spark.planning import ranges_between, ranges_cut, split_ranges
from rocketpy.spark.read_options import StreamOptions
from rocketpy.spark.schema import rows_for
from rocketpy.spark.source.executor import (
    MarkPartition,
    QueuePartition,
    read_marks,
    read_partition,
)
from rocketpy.spark.source.stream_planner import StreamPlanner
from rocketpy.spark.spark_api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

logger: logging.Logger = logging.getLogger(__name__)

_NO_LIMIT = (1 << 63) - 1


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader for Spark; `StreamPlanner` makes its decisions.

    Args:
        options: as texts, from Spark.
        schema: the columns to read.

    Raises:
        ConfigError: an option or a column is invalid.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: StreamOptions = parse_options(options, StreamOptions)
        self.rows: RowSchema = rows_for(schema, self.options)
        self._planner: StreamPlanner | None = None
        self._position: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Drop the planner: copies for tasks only read."""
        return {**self.__dict__, "_planner": None}

    @property
    def planner(self) -> StreamPlanner:
        """The planner, created on first use."""
        if self._planner is None:
            self._planner = StreamPlanner(self.options)
        return self._planner

    @property
    def tells_of_cuts(self) -> bool:
        """Whether batches have a partition for queues that assign offsets again."""
        return self.options.data_loss == "mark"

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a new stream."""
        return to_json(self.planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit other than "all" if there are limits, to recognise "all" later."""
        options = self.options
        if options.max_offsets or options.max_bytes or options.min_offsets:
            return ReadMaxRows(options.max_offsets or _NO_LIMIT)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the query to the current messages."""
        self.planner.freeze()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch; `start` when there is none.

        PySpark before 4.2 passes no arguments: the batch then begins at the end of the last one,
        and the limits are those of the options.
        """
        if start is None:
            start = self._position or self.initialOffset()
        is_limited = not isinstance(limit or self.getDefaultReadLimit(), ReadAllAvailable)
        end = self.planner.next(from_json(start), is_limited=is_limited)
        return start if end is None else to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of all queues, for the progress of the query."""
        highs = self.planner.highs
        return to_json(StreamOffset(highs)) if highs else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch, the same at every replay."""
        self._position = end
        first, last = from_json(start), from_json(end)
        self.planner.check_topics(last)
        if last.is_first:
            return []
        options = self.options
        ranges = split_ranges(
            ranges_between(first.offsets, last.offsets),
            options.min_partitions,
            options.max_records_per_partition,
        )
        brokers = self.planner.brokers
        found: list[InputPartition] = [
            QueuePartition(each, brokers.get(each.broker_name, {}), last.seen.get(each.queue))
            for each in ranges
        ]
        cut = ranges_cut(first.offsets, last.offsets)
        if cut and self.tells_of_cuts:
            found.append(MarkPartition(cut))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range; Spark reads an empty one for a batch without partitions."""
        if isinstance(partition, QueuePartition):
            yield from read_partition(partition, self.options, self.rows)
        elif isinstance(partition, MarkPartition):
            yield from read_marks(partition, self.options, self.rows)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish the progress, which never exceeds the checkpoint."""
        self.planner.publish(from_json(end).offsets)

    def stop(self) -> None:
        """Close connections."""
        if self._planner is not None:
            self._planner.close()
