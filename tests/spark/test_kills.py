"""Kills of driver and executors during a stream into Parquet: no message missing or duplicated.

`python -m tests.spark.kills 20` is the long run.
"""

from pathlib import Path

import pytest

from tests.spark.kills import run


@pytest.mark.long
@pytest.mark.timeout(900)
def test_kills_of_driver_and_executor_lose_and_repeat_nothing(tmp_path: Path) -> None:
    found = run(["executor", "driver"], tmp_path)

    assert found.startswith("1 driver, 1 executor killed: ")
