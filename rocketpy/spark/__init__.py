"""Topics and store directories as sources and sinks of PySpark (Python Data Source API).

Needs the extra `spark`. Spark finds the formats `rocketmq` and `rocketmq.store` by itself
through the packages `pyspark_rocketmq` and `pyspark_rocketmq_store`; `register` is for sessions
whose servers or executors have another Python path.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rocketpy.spark.lag import RocketMQLagListener, StreamLag

__all__ = ["dedup", "lag_listener", "register"]


def dedup(rows: "DataFrame", *, within: str | None = None) -> "DataFrame":
    """Drop the copies of rows that were written by Spark and stored more than once.

    The sink gives each message a property `_spark_id` (query/batch/partition/row), which is the
    same in every attempt to write the row. Of messages of one topic with the same one, one is kept;
    messages without it are all kept. That the same row has the same id again takes an upstream that
    gives the same rows in the same order again, as reads of topics and files do.

    Args:
        rows: read by the format `rocketmq` or `rocketmq.store`, with the columns `topic` and
            `properties`, and those that say where a message is: `brokerName`, `queueId` and
            `queueOffset` (or the names of the style `kafka`).
        within: for streams: copies this far apart, by `storeTimestamp`, are found (an interval as
            `10 minutes`); what is remembered of earlier rows is bounded by it. Without it, a stream
            remembers every id for ever.

    Returns:
        The same columns; which of the copies is kept is not said.

    Raises:
        ConfigError: a column is missing.

    Example:
        ::

            rows = spark.read.format("rocketmq").options(nameservers=..., subscribe="out").load()
            rocketpy.spark.dedup(rows).count()
    """
    # Imported here: options and plans are of use without PySpark.
    from rocketpy.spark.dedup import without_repeats  # noqa: PLC0415

    return without_repeats(rows, within)


def register(spark: "SparkSession") -> None:
    """Make the formats known to a session, classic or Connect.

    Args:
        spark: the session.
    """
    # Imported here: options and plans are of use without PySpark.
    import pyspark_rocketmq  # noqa: PLC0415
    import pyspark_rocketmq_store  # noqa: PLC0415

    spark.dataSource.register(pyspark_rocketmq.DefaultSource)
    spark.dataSource.register(pyspark_rocketmq_store.DefaultSource)


def lag_listener(on_lag: "Callable[[StreamLag], None] | None" = None) -> "RocketMQLagListener":
    """Return a listener that tells how far streams are behind, after each of their batches.

    Args:
        on_lag: called with each `rocketpy.spark.lag.StreamLag`; on a thread of Spark's.

    Example:
        ::

            listener = rocketpy.spark.lag_listener(lambda lag: print(lag.name, lag.total))
            spark.streams.addListener(listener)
    """
    from rocketpy.spark.lag import RocketMQLagListener  # noqa: PLC0415 - see above

    return RocketMQLagListener(on_lag)
