"""A slave that acts as master under seeds: everything `ActingWorld` does to it, judged at the end.

`SEED=7` runs one seed, `SIM_SEEDS=100` that many; `make test-long` runs many of them. The checks of
the check switch one rule off and expect the failure that docs/replication.md says it prevents.
"""

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.broker.timer.service import TimerService
from rocketpy.broker.transaction.half_escape import HalfEscape
from rocketpy.proto.record.message import MessageExt
from tests.simulation.acting_world import run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(4)
CHUNKS = 2
TEST = "tests/simulation/test_acting.py::test_acting_master_keeps_its_promises_under_any_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 30 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_acting_master_keeps_its_promises_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


def test_check_notices_messages_that_a_killed_acting_slave_repeated() -> None:
    """It was killed while its timer read the queue again."""
    run_seed(9)


def first_failure(seeds: Iterable[int], words: str) -> None:
    """Find a seed that fails with these words."""
    for seed in seeds:
        try:
            run_seed(seed)
        except AssertionError as error:
            if words in str(error):
                return
    raise AssertionError(f"no seed of {seeds} fails with {words!r}")


@pytest.mark.alternate
def test_half_that_is_passed_without_being_sent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def passed(_self: HalfEscape, _half: MessageExt) -> bool:
        return True

    monkeypatch.setattr(HalfEscape, "_send", passed)
    first_failure(range(1, 9), "halves")


@pytest.mark.alternate
def test_check_points_that_the_master_does_not_take_back_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReviveSink, "unrevived_ms", (1 << 63) - 1)
    monkeypatch.setattr(TimerService, "take_unrevived", lambda *_: None)
    first_failure([75, 79, 88, *range(60)], "popped")


@pytest.mark.alternate
@pytest.mark.skipif("SEED" in os.environ, reason="one seed reaches only a part of it")
def test_seed_mix_of_acting_masters_reaches_what_it_is_about() -> None:
    wanted = {"_kill_master", "_stop_master", "_kill_acting", "_kill_other", "_part_master"}
    wanted |= {"_kill_both", "_end_in_operation", "redelivered", "delivered", "twice"}
    counts: Counter[str] = Counter()
    for seed in range(20):
        counts += run_seed(seed)
        if wanted <= counts.keys():
            break
    assert wanted <= counts.keys(), counts
