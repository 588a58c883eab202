"""Tests of the compiled path do not pass without it."""

import os

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.compiler import compiler

WANTED = os.environ.get("ROCKETPY_PURE") != "1"


def test_compiled_module_exists_where_it_can_be_built() -> None:
    assert is_compiled() or not WANTED or compiler() is None, (
        "there is a C compiler and no compiled module: python -m pip install --no-deps -e ."
    )
    assert WANTED or not is_compiled()


def test_compiled_module_is_used_by_simulated_brokers() -> None:
    async def path(cluster: SimCluster) -> str:
        return cluster.brokers[0].broker.send_path

    assert run_simulation(path) == ("compiled" if is_compiled() else "python")
