"""Deduplication of rows that a repeated write stored twice."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from rocketpy.errors import ConfigError
from rocketpy.spark.sink.rows import SPARK_ID

_KEY = "__rocketpy_dedup"


def without_repeats(rows: DataFrame, within: str | None) -> DataFrame:
    """Implement `rocketpy.spark.dedup`."""
    names = [
        _found(rows, *choices)
        for choices in (
            ("topic",),
            ("properties",),
            ("brokerName",),
            ("queueId", "partition"),
            ("queueOffset", "offset"),
        )
    ]
    topic, properties, *place = names
    its_place = F.concat_ws("/", *place)
    key = F.coalesce(F.concat(F.lit("id:"), F.col(properties)[SPARK_ID]), its_place)
    keyed = rows.withColumn(_KEY, key)
    if within is None:
        return keyed.dropDuplicates([topic, _KEY]).drop(_KEY)
    watermarked = keyed.withWatermark(_found(rows, "storeTimestamp", "timestamp"), within)
    return watermarked.dropDuplicatesWithinWatermark([topic, _KEY]).drop(_KEY)


def _found(rows: DataFrame, *names: str) -> str:
    for name in names:
        if name in rows.columns:
            return name
    there = ", ".join(rows.columns)
    raise ConfigError(f"dedup needs column {names[0]}; the columns are {there}", key="columns")
