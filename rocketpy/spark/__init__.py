"""Topics and store directories as sources and sinks of PySpark (Python Data Source API).

Needs the extra `rocketpy[spark]`. Spark finds the formats `rocketmq` and `rocketmq.store` by itself
through the packages `pyspark_rocketmq` and `pyspark_rocketmq_store`; `register` is for sessions
whose servers or executors have another Python path.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make the formats known to a session, classic or Connect.

    Args:
        spark: the session.
    """
    # Imported here: options and plans are of use without PySpark.
    from pyspark_rocketmq import DefaultSource  # noqa: PLC0415

    spark.dataSource.register(DefaultSource)
