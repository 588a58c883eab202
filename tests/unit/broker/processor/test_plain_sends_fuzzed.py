"""The first cases of the fuzz target (`python -m tests.fuzz`), without sanitizers."""

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from tests.fuzz.run_cases import run_case


@pytest.mark.skipif(not is_compiled(), reason="the compiled path is not installed, or switched off")
def test_fuzzed_cases_are_the_same_both_ways() -> None:
    served_bytes = {seed: run_case(seed) for seed in (*range(6), 33)}  # 33: pulls that are known
    assert sum(served_bytes.values()) > 10_000, served_bytes
