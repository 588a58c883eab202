"""Driver and executors are killed while a topic streams into Parquet: nothing missing or twice.

`python -m tests.spark.kills 20` is the long run.
"""

from pathlib import Path

import pytest

from tests.spark.kills import run


@pytest.mark.timeout(900)
def test_killed_driver_and_executor_lose_and_repeat_nothing(tmp_path: Path) -> None:
    found = run(["executor", "driver"], tmp_path)

    assert found.startswith("1 driver, 1 executor killed: ")
