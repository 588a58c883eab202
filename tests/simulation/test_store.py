"""The whole store under seeds: everything `StoreWorld` can do to it, judged by its `History`.

`SEED=7` runs one seed, `SIM_SEEDS=5000` that many, and `SIM_FAULTS=-flip` leaves a kind of
fault out. What repeats a failure is the seed: the note under it is a command. `make test-long`
runs 20,000 of them.
"""

import os
from collections import Counter

import pytest

from rocketpy.store.message_store import MessageStore
from tests.simulation.seeds import CHUNKS, run_seeds, seed_count, seeds_of
from tests.simulation.store_world import FAULTS, StoreWorld

SEEDS = seed_count(300)
TEST = "tests/simulation/test_store.py::test_every_promise_holds_under_every_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    StoreWorld(seed).run()


@pytest.mark.timeout(60 + SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_under_every_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS), TEST)


def test_acknowledgement_before_the_flush_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the check: with that fault in it, one of the first seeds fails."""
    monkeypatch.setattr(MessageStore, "when_durable", lambda _, __, answer: answer(True))
    assert any(fails(seed) for seed in range(0, 80, 2))


def fails(seed: int) -> bool:
    try:
        run(seed)
    except AssertionError:
        return True
    return False


@pytest.mark.alternate
@pytest.mark.skipif("SEED" in os.environ, reason="one seed reaches only a part of it")
def test_seed_mix_reaches_what_it_is_about() -> None:
    """Every kind of end and of fault happens within a few seeds."""
    counts: Counter[str] = Counter()
    for seed in range(40):
        world = StoreWorld(seed)
        world.run()
        counts.update(world.counts)
    assert counts["put"] > 500
    assert counts["refused"] > 10
    ends = {"close", "kill", "cut", "end-in-open", "end-in-life"}
    assert ends <= counts.keys(), counts
    reached = FAULTS & counts.keys()
    assert reached == FAULTS - {"deleted-stay"}, counts
