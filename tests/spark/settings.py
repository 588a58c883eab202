"""What Spark is told in tests, in a session of the test and in a program: loopback, one GB."""

import sys
from pathlib import Path


def settings(home: Path) -> dict[str, str]:
    """Return the configuration of a session or a program; `home` has its warehouse."""
    return {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",  # 15 s are short on a busy machine
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.streaming.metricsEnabled": "false",
    }


def environment(home: Path) -> dict[str, str]:
    """Return what Spark reads from the environment; `home` has its scratch files."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
    }
