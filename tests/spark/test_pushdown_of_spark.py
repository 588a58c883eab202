"""Behaviour of Spark that makes `pushdown` unsafe for a second query of one DataFrame.

When the first test fails, a release of Spark plans every query again: `pushdown` may become the
default, and its warning and the text in docs/spark.md may go.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Numbers(DataSource):
    """Data source of the numbers 0 to 9, which drops those that a condition excludes."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    limit = 10

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        for each in filters:
            if type(each).__name__ == "LessThan":
                self.limit = each.value  # type: ignore[attr-defined]
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(self.limit))


@pytest.fixture
def pushing(spark: "SparkSession") -> Iterator["SparkSession"]:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_spark_keeps_conditions_of_the_first_query(pushing: "SparkSession") -> None:
    pushing.dataSource.register(Numbers)
    frame = pushing.read.format("numbers").load()

    assert frame.where("n < 3").count() == 3
    assert frame.count() == 3, "Spark plans every query again: see the docstring of this module"
    assert pushing.read.format("numbers").load().count() == 10


def test_pushdown_is_off_by_default_and_needs_load_for_each_query(
    pushing: "SparkSession", tmp_path: "Path"
) -> None:
    with ClusterThread(tmp_path) as cluster:
        fill(cluster, "P", queues=1, count=70)
        reader = pushing.read.format("rocketmq").options(nameservers=cluster.namesrv, subscribe="P")
        frame = reader.load()
        assert frame.where("queueOffset < 10").count() == 10
        assert frame.count() == 70

        options = {"nameservers": cluster.namesrv, "subscribe": "P", "pushdown": "true"}
        frame = pushing.read.format("rocketmq").options(**options).load()
        assert frame.where("queueOffset < 10").count() == 10
        assert pushing.read.format("rocketmq").options(**options).load().count() == 70
