"""A controller under seeds: everything `ControllerWorld` can do to it and to its replicas.

`SEED=7` runs one seed, `SIM_SEEDS=500` that many. The checks of the check switch one rule off and
expect the failure that docs/failover.md says it prevents.
"""

from collections import Counter

import pytest

from tests.simulation.controller_world import Rules, run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(80)
CHUNKS = 4
TEST = "tests/simulation/test_controller.py::test_controller_keeps_its_promises_under_any_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 3 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_controller_keeps_its_promises_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


def test_seeds_meet_elections_restarts_and_refusals() -> None:
    met = Counter[str]()
    for seed in range(6):
        met += run_seed(seed).counts
    assert met["elected"] > 30
    assert met["acknowledged"] > 500
    assert met["controller started"] > 10
    assert met["handed over"] > 10
    assert met["SUCCESS"] > 20
    assert met["CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH"] > 0


def failure(seed: int, rules: Rules) -> str:
    """Return how a seed fails; empty if it does not."""
    try:
        run_seed(seed, rules)
    except AssertionError as error:
        return str(error)
    return ""


def first_failure(words: str, rules: Rules, first: int) -> None:
    """Find a seed, of every second one from `first` on, that fails with these words."""
    found = (failure(seed, rules) for seed in range(first, first + 400, 2))
    assert words in next(filter(None, found), "no seed fails")


def test_set_that_shrinks_before_it_is_stored_loses_messages() -> None:
    first_failure("acknowledged messages are lost", Rules(needed_union=False), 0)


def test_election_before_the_end_of_a_lease_is_found() -> None:
    first_failure("an old master acknowledges", Rules(lease=False), 1)


def test_election_without_a_wait_after_a_start_is_found() -> None:
    first_failure("an old master acknowledges", Rules(start_wait=False), 1)
