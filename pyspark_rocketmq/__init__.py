"""The format `rocketmq`, found by Spark, which imports every package named `pyspark_*`.

Nothing but pyspark is imported at the top: an import that fails here would cost the user every
other Python data source.
"""

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Topics of a live cluster, RocketPy's or Apache's: batch and streaming, reads and writes."""

    @classmethod
    def name(cls) -> str:
        """Return what `format()` takes."""
        return "rocketmq"
