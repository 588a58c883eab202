"""Classes of PySpark that older supported versions do not have, with substitutes.

| PySpark | missing |
|---|---|
| 4.0 | conditions that Spark pushes down, Arrow writers of streams, limits of streams |
| 4.1 | limits of streams (`latestOffset` has no arguments) and `Trigger.AvailableNow` |
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource

from rocketpy.errors import ConfigError

__all__ = [
    "HAS_LIMITS",
    "BatchWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamWriter",
    "SupportsTriggerAvailableNow",
    "need_filters",
    "warn_of_kept_conditions",
]

logger: logging.Logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter as BatchWriter
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
else:
    # Without an Arrow writer Spark passes rows; see `rocketpy.spark.sink.row_batches`.
    BatchWriter = getattr(datasource, "DataSourceArrowWriter", datasource.DataSourceWriter)
    StreamWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        HAS_LIMITS = True
    except ImportError:
        HAS_LIMITS = False

        class ReadLimit:
            """Limit of a trigger."""

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """Limit of rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """Reader that can stop at the messages present at its start."""


def need_filters() -> None:
    """Raise unless this PySpark pushes conditions down.

    Raises:
        ConfigError: it does not.
    """
    if not hasattr(datasource, "Filter"):
        reason = f"needs PySpark 4.1 or newer, this is {pyspark.__version__}"
        raise ConfigError(reason, key="pushdown")


def warn_of_kept_conditions(conditions: Sequence[object]) -> None:
    """Warn that Spark keeps the conditions of a frame's first query for all later ones.

    Spark caches the planned reader with the frame, and gives no sign of a second query: neither
    the planner nor a task can tell that the conditions are those of another one.
    """
    if conditions:
        logger.warning(
            "conditions kept for all queries of this DataFrame, call load() for each query: "
            "conditions=%s",
            ", ".join(map(str, conditions)),
        )
