"""Cases that run unchanged on a simulated cluster and on a real one.

A test takes one of two fixtures and hands it a coroutine function of a `World`:

`run`             twice: simulated, and real with sockets and files;
`run_simulated`   simulated only: for cases in which much time passes.

Both take `brokers` and `properties` as keywords.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import worlds


@pytest.fixture(params=["simulated", "real"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Run a case; the test itself runs once on each kind of cluster."""
    if request.param == "simulated":
        return worlds.run_simulated
    return partial(worlds.run_real, tmp_path)


@pytest.fixture
def run_simulated() -> Callable[..., Any]:
    """Run a case on the simulated cluster only."""
    return worlds.run_simulated
