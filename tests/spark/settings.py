"""Settings of Spark in tests, for sessions and programs: loopback, one GB."""

import sys
from pathlib import Path

from tests.peer.apache import JVM


def settings(home: Path) -> dict[str, str]:
    """Return the configuration of a session or a program; `home` has its warehouse."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": JVM,
        "spark.executor.extraJavaOptions": JVM,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",  # busy machines exceed 15 s
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
    }


def environment(home: Path) -> dict[str, str]:
    """Return environment variables for Spark; `home` is for its scratch files."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
    }
