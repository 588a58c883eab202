"""What the planner of a query loads: a new process each time, which the query waits for."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "rocketpy.spark.store_source.reader",
        "rocketpy.spark.source.batch",
        "rocketpy.spark.source.stream",
    ],
)
def test_planners_load_nothing_that_decodes(module: str) -> None:
    heavy = {"pyarrow.compute", "rocketpy.arrow.decoder", "rocketpy.arrow.compiled_rows"}
    told = f"import sys, {module}; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
