"""Running seeds: a share of them a test, and the command that repeats one."""

import os
from collections.abc import Callable, Sequence

from tests.sampling import sample

CHUNKS = 8


def seed_count(default: int) -> int:
    """Number of seeds of this run; `SIM_SEEDS` overrides it."""
    return int(os.environ.get("SIM_SEEDS", default))


def seeds_of(chunk: int, count: int, chunks: int = CHUNKS) -> Sequence[int]:
    """Return the seeds of one of the tests that share them; `SEED` picks a single one."""
    if "SEED" in os.environ:
        seed = int(os.environ["SEED"])
        return range(seed, seed + 1) if chunk == 0 else range(0)
    return sample(range(chunk, count, chunks), 3)


def run_seeds(run: Callable[[int], object], seeds: Sequence[int], test: str) -> None:
    """Run seeds; a failure carries the command that repeats it.

    Args:
        run: runs one seed.
        seeds: which.
        test: file and name of the test that runs them.
    """
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:
            error.add_note(f"seed {seed} failed; repeat it with: {command(seed, test)}")
            raise


def command(seed: int, test: str) -> str:
    """The command that runs one seed of one test again."""
    faults = os.environ.get("SIM_FAULTS")
    switches = f"SIM_FAULTS={faults} " if faults else ""
    return f"SEED={seed} {switches}.venv/bin/python -m pytest {test}"
