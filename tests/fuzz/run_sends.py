"""The fuzzing process of a client's sends: as `run_cases`, with the module of `rocketpy.proto`."""

import sys

from rocketpy.proto.wire.compiled_requests import compiled_sends
from tests.fuzz.run_cases import run_seeds
from tests.fuzz.sanitized import CLIENT_SENDS, load
from tests.unit.proto.sends_cases import compare


def main() -> None:
    """Draw and read the frames of each seed both ways."""
    path, first, last, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    load(CLIENT_SENDS, path)
    compiled = compiled_sends()
    assert compiled is not None
    run_seeds(lambda seed: compare(compiled, seed), first, last, seconds)


if __name__ == "__main__":
    main()
