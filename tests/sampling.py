"""Samples of seeds and parameters, chosen by the commit.

`make test` sets TEST_SAMPLE: tests then run a sample of their seeds and parameter sets. Which ones
depends on the commit's hash, so that consecutive commits together run all of them. TEST_PART=n
takes the place of the hash and repeats another run's choice; the head of each run prints it.
Without TEST_SAMPLE, as in `make test-all`, everything runs.
"""

import os
import subprocess
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def thinning() -> int:
    """Return the factor by which samples are thinned further; 0 when everything runs.

    The pure Python pass of `make test` repeats tests that ran compiled: it takes a smaller sample.
    """
    return int(os.environ.get("TEST_SAMPLE") or 0)


@cache
def part() -> int:
    """Return the number that chooses samples: TEST_PART, or the first digits of the commit."""
    if "TEST_PART" not in os.environ:
        command = ["git", "rev-parse", "HEAD"]
        root = Path(__file__).parent
        try:
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
            found = int(done.stdout[:6], 16)
        except (OSError, subprocess.CalledProcessError):  # not a git checkout
            found = 0
        os.environ["TEST_PART"] = str(found)  # for the workers of pytest-xdist
    return int(os.environ["TEST_PART"])


def leaves_out(name: str, one_in: int) -> bool:
    """Return whether a run of one in so many files or tests leaves this one to other commits."""
    return one_in > 1 and zlib.crc32(name.encode()) % one_in != part() % one_in


def sample(values: Iterable[T], one_in: int) -> list[T]:
    """Return one in so many of the values, at least one; all of them without TEST_SAMPLE."""
    all_of_them = list(values)
    if not thinning():
        return all_of_them
    step = max(1, min(one_in * thinning(), len(all_of_them)))
    return all_of_them[part() % step :: step]
