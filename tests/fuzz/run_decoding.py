"""The fuzzing process of the decoder: as `run_cases`, with the module of `rocketpy.arrow`."""

import sys

from tests.fuzz.run_cases import run_seeds
from tests.fuzz.sanitized import ROWS, load
from tests.unit.arrow.decoding_cases import compare, random_case


def main() -> None:
    """Decode the records of each seed both ways."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    load(ROWS, path)
    run_seeds(lambda seed: compare(random_case(seed)), first, last, seconds)


if __name__ == "__main__":
    main()
