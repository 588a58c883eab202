"""Imports of planners, which are new processes that the query waits for."""

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
def test_planners_do_not_import_the_decoder(module: str) -> None:
    heavy = {"pyarrow.compute", "rocketpy.arrow.decoder", "rocketpy.arrow.compiled_rows"}
    told = f"import sys, {module}; print(sorted({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
