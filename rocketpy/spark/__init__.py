"""Topics and store directories as sources and sinks of PySpark (Python Data Source API).

Needs the extra `spark`. Spark discovers the formats `rocketmq` and `rocketmq.store` through the
packages `pyspark_rocketmq` and `pyspark_rocketmq_store`; `register` is for sessions with servers
or executors that have another Python path.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.lag import RocketMQLagListener, StreamLag

__all__ = ["dedup", "lag_listener", "register"]


def dedup(rows: "DataFrame", *, within: str | None = None) -> "DataFrame":
    """Drop duplicates of rows that Spark wrote and brokers stored more than once.

    The sink gives each message a property `_spark_id` (query/batch/partition/row), which is the
    same in every attempt to write the row. One message of each topic and id is kept; messages
    without the property are all kept. The id of a row is stable only if the input of the write is:
    the same rows in the same order, as reads of topics and files return them.

    Args:
        rows: read by the format `rocketmq` or `rocketmq.store`, with the columns `topic` and
            `properties`, and those with the location of a message: `brokerName`, `queueId` and
            `queueOffset` (or the names of the style `kafka`).
        within: for streams: the largest distance of duplicates, by `storeTimestamp` (an interval
            as `10 minutes`). It bounds the state of the stream, which otherwise keeps every id
            forever.

    Returns:
        The same columns. Which of the duplicates is kept is undefined.

    Raises:
        ConfigError: a column is missing.

    Example:
        ::

            rows = spark.read.format("rocketmq").options(nameservers=..., subscribe="out").load()
            rocketpy.spark.dedup(rows).count()
    """
    # Imported here: options and plans work without PySpark.
    from rocketpy.spark.duplicates import without_repeats  # noqa: PLC0415

    return without_repeats(rows, within)


def register(spark: "SparkSession") -> None:
    """Register the formats with a session, classic or Connect.

    Args:
        spark: the session.
    """
    # Imported here: options and plans work without PySpark.
    import pyspark_rocketmq  # noqa: PLC0415
    import pyspark_rocketmq_store  # noqa: PLC0415

    spark.dataSource.register(pyspark_rocketmq.DefaultSource)
    spark.dataSource.register(pyspark_rocketmq_store.DefaultSource)


def lag_listener(on_lag: "Callable[[StreamLag], None] | None" = None) -> "RocketMQLagListener":
    """Return a listener that reports the lag of streams after each batch.

    Args:
        on_lag: called with each `rocketpy.spark.lag.StreamLag`, on a thread of Spark.

    Example:
        ::

            listener = rocketpy.spark.lag_listener(lambda lag: print(lag.name, lag.total))
            spark.streams.addListener(listener)
    """
    from rocketpy.spark.lag import RocketMQLagListener  # noqa: PLC0415 - see above

    return RocketMQLagListener(on_lag)
