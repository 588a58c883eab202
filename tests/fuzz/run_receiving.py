"""The fuzzing process of received messages: as `run_cases`, with the client's module."""

import sys

from tests.fuzz.run_cases import run_seeds
from tests.fuzz.sanitized import MESSAGES, load
from tests.unit.client.received_cases import compare, random_case


def main() -> None:
    """Make messages of the records of each seed both ways."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    load(MESSAGES, path)
    run_seeds(lambda seed: compare(random_case(seed)), first, last, seconds)


if __name__ == "__main__":
    main()
