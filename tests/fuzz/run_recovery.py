"""The fuzzing process of recovery: as `run_cases`, with the module of `rocketpy.store`."""

import logging
import sys

from tests.fuzz.run_cases import run_seeds
from tests.fuzz.sanitized import RECORDS, load
from tests.unit.store.recovery_cases import compare


def main() -> None:
    """Start the damaged store of each seed both ways."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    logging.disable(logging.CRITICAL)  # of the damage
    load(RECORDS, path)
    run_seeds(compare, first, last, seconds)


if __name__ == "__main__":
    main()
