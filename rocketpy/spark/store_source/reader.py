"""Reader of `spark.read.format("rocketmq.store").load(directory)`: planned once, read by tasks."""

import logging
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rocketpy.arrow.schema import RowSchema
from rocketpy.errors import CorruptRecordError
from rocketpy.spark.options import parse_options
from rocketpy.spark.prefetch import ahead
from rocketpy.spark.schema import rows_for
from rocketpy.spark.store_source.options import StoreOptions
from rocketpy.spark.store_source.plan import Task, tasks
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.plan import read

logger: logging.Logger = logging.getLogger(__name__)


class TaskPartition(InputPartition):
    """Partition of Spark with the work of one task."""

    def __init__(self, task: Task) -> None:
        super().__init__(None)
        self.task = task


class StoreReader(DataSourceReader):
    """Reader of pieces of store directories, which are fixed when the query is planned.

    Args:
        options: as texts, from Spark.
        schema: the columns to read.

    Raises:
        ConfigError: an option or a column is invalid.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options: StoreOptions = parse_options(options, StoreOptions)
        self.rows: RowSchema = rows_for(schema, self.options)

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each queue or log file, or more where queues are split.

        Raises:
            RocketPyError: a path is not a store, a topic does not exist, or offsets are lost.
        """
        return [TaskPartition(each) for each in self._tasks()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition; Spark reads an empty one for a query without partitions."""
        if isinstance(partition, TaskPartition):
            task = partition.task
            directory = StoreDirectory(task.root, self.options.commit_log)
            yield from ahead(read(directory, task.wanted, task.piece, _report))

    def _tasks(self) -> list[Task]:
        return tasks(self.options, self.rows)


def _report(error: CorruptRecordError) -> None:
    logger.warning("damaged record skipped: error=%s", error)
