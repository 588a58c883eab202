"""The fuzzing process: `python -m tests.fuzz.run_cases MODULE FIRST_SEED LAST_SEED SECONDS`.

Loads the compiled module from a file, then says `case N` before each case, `done N` behind it.
"""

import logging
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest
import structlog

from tests.fuzz.cases import case_of, ends_of
from tests.fuzz.sanitized import SENDS, load
from tests.unit.broker.processor import plain_send_kit
from tests.unit.broker.processor.plain_send_kit import (
    assert_same,
    both_ways,
    outcome_of,
    pure_python,
)
from tests.unit.remoting.fakes import FakeTransport


def run_case(seed: int) -> int:
    """Feed one case both ways; return how many bytes the compiled path served.

    Raises:
        AssertionError: the two differ.
    """
    case = case_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 5 == 1:
            six = partial(FakeTransport, ("fd00::7", 4321))
            patch.setattr(plain_send_kit, "FakeTransport", six)
        if seed % 2 == 0:  # ends have to name what is stored
            with pure_python(patch):
                stored = outcome_of(case.segments, case.properties, case.prepare)
            case.segments.append(ends_of(seed, stored.responses))
        # Level 1 becomes due: one level, so that its order among others says nothing.
        later_s = 1.5 if seed % 3 == 0 else 0.0
        pure, compiled = both_ways(patch, case.segments, case.properties, case.prepare, later_s)
    assert_same(pure, compiled)
    return compiled.served_bytes


def main() -> None:
    """Run the seeds from the first to before the last, as long as there is time."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    load(SENDS, path)
    run_seeds(run_case, first, last, seconds)


def run_seeds(run: Callable[[int], int], first: int, last: int, seconds: float) -> None:
    """Run seeds from the first to before the last, as long as there is time; tell of each."""
    end = time.monotonic() + seconds
    seed = first
    while seed < last and time.monotonic() < end:
        print("case", seed, flush=True)
        print("done", run(seed), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
