"""Kills, stops and freezes the replicas of a group with a controller while clients send.

    python -m tests.failover 200                                # 200 rounds of three replicas
    python -m tests.failover 50 --flush SYNC_FLUSH --seed 7

After each round the group heals. All acknowledged messages (SEND_OK) must then be on all replicas,
in order and none twice, and all logs must be equal byte by byte. The table at the end has the
longest time without an acknowledged message for each fault.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.failover.rounds import run, table


def main() -> None:
    """Run the rounds of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.failover", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("rounds", type=int, nargs="?", default=200)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketpy-failover-") as directory:
        result = run(
            Path(directory),
            rounds=options.rounds,
            flush=options.flush,
            seed=options.seed,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    history = result.history
    print(
        f"{options.rounds} rounds: {history.count} acknowledged messages are on all replicas, "
        f"{history.uncertain} sends were answered otherwise"
    )
    print(table(result.gaps))


if __name__ == "__main__":
    main()
