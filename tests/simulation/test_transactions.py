"""Transactions under seeds; see `TransactionWorld`.

`SEED=7` runs one seed, `SIM_SEEDS=500` that many.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.broker.transaction.check_back import CheckBack
from rocketpy.broker.transaction.fast_path import BulkTransactions
from rocketpy.broker.transaction.ledger import HalfLedger
from tests.simulation.seeds import run_seeds, seed_count, seeds_of
from tests.simulation.transaction_world import run_seed

SEEDS = seed_count(8)
TEST = (
    "tests/simulation/test_transactions.py::test_committed_transactions_are_the_only_visible_ones"
)


def run(seed: int) -> None:
    """Run one seed."""
    run_seed(seed)


@pytest.mark.timeout(60 + 20 * SEEDS)
@pytest.mark.parametrize("chunk", range(2))
def test_committed_transactions_are_the_only_visible_ones(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, 2), TEST)


def test_seeds_reach_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"committed", "rolled back", "forgotten", "checked", "never began", "_kill"}
    counts: Counter[str] = Counter()
    claim = BulkTransactions.claim

    def counted(runs: BulkTransactions, places: Sequence[int]) -> int:
        claimed_count = claim(runs, places)
        counts["compiled commits"] += claimed_count
        return claimed_count

    monkeypatch.setattr(BulkTransactions, "claim", counted)
    if is_compiled():
        wanted.add("compiled commits")
    for seed in range(100, 130):
        counts += run_seed(seed)
        if wanted <= counts.keys():
            break
    assert wanted <= counts.keys(), counts


def test_check_that_forgets_open_transactions_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the check: with that fault in it, one of the first seeds fails."""
    monkeypatch.setattr(CheckBack, "_check_half", lambda *_: None)
    monkeypatch.setattr(HalfLedger, "limit_progress", lambda _, place: place)
    assert any(_fails(seed) for seed in range(6))


def _fails(seed: int) -> bool:
    try:
        run_seed(seed)
    except (AssertionError, TimeoutError):
        return True
    return False
