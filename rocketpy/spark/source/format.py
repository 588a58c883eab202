"""Entry point of the format's batch reads for Spark: the reader for the given options."""

# ruff: noqa: PLC0415 - conditions do not exist in PySpark 4.0

from collections.abc import Mapping

from pyspark.sql.types import StructType

from rocketpy.spark.options import parse_options
from rocketpy.spark.read_options import BatchOptions
from rocketpy.spark.source.batch import BatchReader
from rocketpy.spark.spark_api import need_filters


def batch_reader(options: Mapping[str, str], schema: StructType) -> BatchReader:
    """Return the reader for the given options.

    Raises:
        ConfigError: an invalid option, or push-down in a version of PySpark without it.
    """
    if not parse_options(options, BatchOptions).pushdown:
        return BatchReader(options, schema)
    need_filters()
    from rocketpy.spark.source.pushdown import PushdownReader

    return PushdownReader(options, schema)
