"""A group under seeds: everything `ConsumeWorld` can do to its members and brokers, judged.

`SEED=7` runs one seed, `SIM_SEEDS=500` that many; `make test-long` runs many of them.
"""

from collections import Counter

import pytest

from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from tests.simulation.consume_world import run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(12)
CHUNKS = 4
TEST = "tests/simulation/test_consumption.py::test_every_message_is_handled_or_dead"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 10 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_message_is_handled_or_dead(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


def test_offsets_that_pass_unfinished_messages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the check: with that fault in it, one of the first seeds fails."""
    monkeypatch.setattr(
        ProcessQueue, "commit_offset", property(lambda queue: max(queue.next_pull_offset, 0))
    )
    assert any(fails(seed) for seed in range(0, 30, 3))


def fails(seed: int) -> bool:
    try:
        run_seed(seed)
    except (AssertionError, TimeoutError):
        return True
    return False


@pytest.mark.alternate
def test_seed_mix_reaches_what_it_is_about() -> None:
    wanted = {"_kill_member", "_close_member", "_kill_broker", "_part", "failed", "nack", "hangs"}
    counts: Counter[str] = Counter()
    for seed in range(30):
        counts += run_seed(seed)
        if wanted <= counts.keys() and counts["dead"] > 20:
            break
    assert wanted <= counts.keys(), counts
    assert counts["dead"] > 20
