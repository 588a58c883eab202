"""Rounds of faults on a group with a controller; `python -m tests.failover` runs hundreds."""

from pathlib import Path

import pytest

from tests.failover.rounds import FAULTS, run
from tests.sampling import part

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_group_under_every_fault_keeps_what_was_acknowledged(tmp_path: Path, flush: str) -> None:
    said: list[str] = []
    result = run(tmp_path, rounds=len(FAULTS), flush=flush, seed=part(), say=said.append)
    assert len(said) == len(FAULTS)
    assert result.history.count > 100
    assert set(result.gaps) == {each.__name__ for each in FAULTS}
