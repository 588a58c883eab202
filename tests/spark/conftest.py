"""Spark session for all tests of this folder, and a RocketPy broker."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.settings import environment, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pyspark_sql = pytest.importorskip("pyspark.sql")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:  # a limit of the test takes precedence
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """Session with two cores, three attempts of a task, loopback only, one GB."""
    if shutil.which("java") is None:
        pytest.skip("needs a JDK")
    home = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for key, value in environment(home).items():
            patch.setenv(key, value)
        builder = pyspark_sql.SparkSession.builder.master("local[2,3]").appName("rocketpy-tests")
        for key, value in settings(home).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
