"""The first cases of the fuzz target (`python -m tests.fuzz`), without sanitizers."""

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from tests.fuzz.run_cases import run_case
from tests.sampling import sample


@pytest.mark.skipif(not is_compiled(), reason="the compiled path is not installed, or switched off")
def test_compiled_sends_fuzzed_cases_equal_python() -> None:
    seeds = (*sample(range(6), 3), 33)  # 33: pulls that are known
    served_bytes = {seed: run_case(seed) for seed in seeds}
    assert sum(served_bytes.values()) > 10_000, served_bytes
