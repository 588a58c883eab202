"""Rounds of faults on broker groups of processes; `python -m tests.replication` runs hundreds."""

from pathlib import Path

import pytest

from tests.replication.rounds import FAULTS, run
from tests.sampling import part

# A round ends by its own limits; beside other work, ten of them take minutes.
pytestmark = [pytest.mark.crash, pytest.mark.timeout(600)]


def test_pair_under_faults_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    said: list[str] = []
    history = run(tmp_path, rounds=3, slaves=1, flush="ASYNC_FLUSH", seed=part(), say=said.append)
    assert len(said) == 3
    assert history.count > 20


@pytest.mark.long
@pytest.mark.parametrize(("slaves", "flush"), [(1, "SYNC_FLUSH"), (2, "ASYNC_FLUSH")])
def test_group_under_every_fault_keeps_what_was_acknowledged(
    tmp_path: Path, slaves: int, flush: str
) -> None:
    said: list[str] = []
    history = run(
        tmp_path, rounds=len(FAULTS), slaves=slaves, flush=flush, seed=part(), say=said.append
    )
    assert len(said) == len(FAULTS)
    assert history.count > 100
