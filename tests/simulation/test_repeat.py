"""A seed repeats callback by callback, in any process and after any earlier run.

Neither the seed of hashes, addresses of objects, the process's number nor anything that the process
counts (numbers of requests, for example) take part.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.sampling import sample
from tests.simulation import (
    cluster_world,
    consume_world,
    pop_world,
    test_later,
    transaction_world,
)
from tests.simulation.__main__ import total_of

WORLDS: Final[dict[str, Callable[[int], Any]]] = {
    "cluster": cluster_world.run_seed,
    "consumption": consume_world.run_seed,
    "later": test_later.run,
    "pop": pop_world.run_seed,
    "transactions": transaction_world.run_seed,
}
NAMES: Final = sample(WORLDS, 2)


def history_of(name: str, seed: int) -> str:
    """Digest of all callbacks of a seed."""
    digest = hashlib.sha256()
    run_handle = asyncio.Handle._run

    def noted(self: asyncio.Handle) -> None:
        loop = self._loop  # type: ignore[attr-defined]
        callback = getattr(self._callback, "__qualname__", "")  # type: ignore[attr-defined]
        digest.update(f"{loop.time()} {callback} {loop.rng.getstate()[1][-1]}\n".encode())
        run_handle(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", noted)
        counts = WORLDS[name](seed)
    return f"{name} {sorted(counts.items())} {digest.hexdigest()}"


def _start(hash_seed: str, before: tuple[int, ...]) -> "subprocess.Popen[str]":
    program = (
        f"from {__name__} import WORLDS, history_of\n"
        f"for name in {NAMES}:\n"
        f"    for seed in {before}: WORLDS[name](seed)\n"
        f"    print('HISTORY', history_of(name, 5))"
    )
    environ = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def test_seed_repeats_exactly_in_another_process_and_after_other_seeds() -> None:
    processes = [_start("1", ()), _start("2", (1, 2))]
    histories = []
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        histories.append([line for line in output.splitlines() if line.startswith("HISTORY")])
    assert len(histories[0]) == len(NAMES)
    assert histories[0] == histories[1]


def test_single_seed_option_runs_one_seed_of_any_world() -> None:
    assert [total_of("store", each) for each in (1, 20)] == [1, 20]
    assert [total_of("pop", each) for each in (1, 19, 20, 45)] == [1, 1, 1, 2]
