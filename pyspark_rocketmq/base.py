"""Base class of data sources, or an error that names the versions of PySpark that have it.

Not in `rocketpy`: a broken installation of that would disable all other
Python data sources of Spark.
"""

try:
    from pyspark.sql.datasource import DataSource
except ImportError as error:
    raise ImportError(
        "the formats rocketmq and rocketmq.store need PySpark 4.0 or newer; with an older one read "
        "the Parquet files of `rocketpy spark archive`"
    ) from error

__all__ = ["DataSource"]
