"""Popping under seeds: kills, power cuts, parted hosts; judged by what was delivered and acked.

``SEED=7`` runs one seed, ``SIM_SEEDS=500`` that many.
"""

from typing import Any

import pytest

from rocketpy.broker.pop.ack import Acked, AckOperation
from rocketpy.broker.pop.revive import Reviver
from tests.simulation.pop_world import run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(12)
CHUNKS = 4
TEST = "tests/simulation/test_pop.py::test_popped_messages_are_acked_or_come_back_under_any_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 20 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_popped_messages_are_acked_or_come_back_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


@pytest.mark.parametrize("seed", [43, 9910057])
def test_the_check_knows_what_it_was_once_wrong_about(seed: int) -> None:
    """A broker served, and ended before its start was complete; an ack too late to be asked for."""
    run_seed(seed)


def test_the_check_notices_a_message_that_does_not_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Reviver, "revive", lambda *_: True)
    with pytest.raises(AssertionError, match="is lost"):
        run_seed(1)


def test_the_check_notices_an_ack_that_was_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(*_: Any, **__: Any) -> Acked:
        return Acked()

    monkeypatch.setattr(AckOperation, "_store_ack", forgotten)
    with pytest.raises(AssertionError, match="a confirmed ack is lost"):
        run_seed(1)
