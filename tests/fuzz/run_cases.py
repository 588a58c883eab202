"""The fuzzing process: ``python -m tests.fuzz.run_cases MODULE FIRST_SEED LAST_SEED SECONDS``.

Loads the compiled module from a file, then says ``case N`` before each case, ``done N`` behind it.
"""

import importlib.machinery
import importlib.util
import logging
import sys
import time

import pytest
import structlog

from tests.fuzz.cases import case_of, ends_of
from tests.unit.broker.processor.plain_send_kit import assert_same, both_ways, outcome_of

_MODULE = "rocketpy.broker.processor._plain_sends"


def load(path: str) -> None:
    """Make the module of a file the one that brokers find."""
    loader = importlib.machinery.ExtensionFileLoader(_MODULE, path)
    spec = importlib.util.spec_from_file_location(_MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[_MODULE] = module


def run_case(seed: int) -> int:
    """Feed one case both ways; return how many bytes the compiled path served.

    Raises:
        AssertionError: the two differ.
    """
    case = case_of(seed)
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2 == 0:  # ends have to name what is stored
            patch.setenv("ROCKETPY_PURE", "1")
            stored = outcome_of(case.segments, case.properties, case.prepare)
            case.segments.append(ends_of(seed, stored.responses))
        pure, compiled = both_ways(patch, case.segments, case.properties, case.prepare)
    assert_same(pure, compiled)
    return compiled.served_bytes


def main() -> None:
    """Run the seeds from the first to before the last, as long as there is time."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    load(path)
    end = time.monotonic() + seconds
    seed = first
    while seed < last and time.monotonic() < end:
        print("case", seed, flush=True)
        print("done", run_case(seed), flush=True)
        seed += 1


if __name__ == "__main__":
    main()
