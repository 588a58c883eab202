"""Reader with push-down of conditions, which Spark allows only with its own setting."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from rocketpy.spark.spark_api import warn_of_kept_conditions
from rocketpy.spark.store_source.conditions import Conditions
from rocketpy.spark.store_source.plan import Task, tasks
from rocketpy.spark.store_source.reader import StoreReader


class NarrowingReader(StoreReader):
    """Reader of the rows that meet conditions; arguments and errors as in `StoreReader`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._conditions = Conditions(self.rows)

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept conditions, and return those that Spark has to apply."""
        warn_of_kept_conditions(filters)
        return list(self._conditions.take(filters))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the rows of a partition that meet the conditions."""
        yield from self._conditions.filtered(super().read(partition))

    def _tasks(self) -> list[Task]:
        planned = tasks(self._conditions.narrow_options(self.options), self.rows)
        return self._conditions.narrow_tasks(planned)
