"""Brokers and clients under seeds: everything `ClusterWorld` can do to them, judged at the end.

``SEED=7`` runs one seed, ``SIM_SEEDS=500`` that many; `make test-long` runs many of them.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from rocketpy.store.message_store import MessageStore
from tests.simulation.cluster_world import run_seed
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(16)
CHUNKS = 4
TEST = "tests/simulation/test_cluster.py::test_nothing_acknowledged_is_lost_under_any_seed"


def run(seed: int) -> None:
    """Run one seed; also what `make test-long` runs."""
    run_seed(seed)


@pytest.mark.timeout(60 + 10 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_acknowledged_is_lost_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


def test_a_seed_repeats_exactly() -> None:
    assert run_seed(6) == run_seed(6)


def test_a_seed_repeats_exactly_in_another_process() -> None:
    """Neither the seed of hashes, addresses of objects nor the process's number take part."""
    program = f"from {__name__} import history_of; print(history_of(4))"
    histories = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[-1]
        for hash_seed in ("1", "2")
    ]
    assert histories[0] == histories[1]


def history_of(seed: int) -> str:
    """What happened under a seed, callback by callback, in a few digits."""
    digest = hashlib.sha256()
    run_handle = asyncio.Handle._run

    def noted(self: asyncio.Handle) -> None:
        loop = self._loop  # type: ignore[attr-defined]
        callback = getattr(self._callback, "__qualname__", "")  # type: ignore[attr-defined]
        digest.update(f"{loop.time()} {callback} {loop.rng.getstate()[1][-1]}\n".encode())
        run_handle(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", noted)
        counts = run_seed(seed)
    return f"{sorted(counts.items())} {digest.hexdigest()}"


def test_an_acknowledgement_before_the_flush_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the check: with that fault in it, one of the first seeds fails."""
    monkeypatch.setattr(MessageStore, "when_durable", lambda _, __, answer: answer(True))
    assert any(fails(seed) for seed in range(0, 80, 2))


def fails(seed: int) -> bool:
    try:
        run_seed(seed)
    except (AssertionError, TimeoutError):  # a lost message is also one that never arrives
        return True
    return False


@pytest.mark.skipif("SEED" in os.environ, reason="one seed reaches only a part of it")
def test_the_seed_mix_reaches_what_it_is_about() -> None:
    """Within a few seeds brokers end in every way, and messages flow meanwhile."""
    wanted = {"_kill", "_lose_power", "_cut", "_part", "send failed"}
    counts: Counter[str] = Counter()
    for seed in range(20, 100, 2):
        counts += run_seed(seed)
        if counts["sent"] > 1_000 and wanted <= counts.keys():
            break
    assert counts["sent"] > 1_000
    assert counts["consumed"] >= counts["sent"]
    assert wanted <= counts.keys(), counts
