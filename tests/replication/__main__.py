"""Kills, freezes, cuts and fills a broker group while clients send, and checks its stores.

    python -m tests.replication 200                    # 200 rounds of a pair
    python -m tests.replication 200 --slaves 2         # of a trio
    python -m tests.replication 50 --flush SYNC_FLUSH --seed 7

Wall clocks are set an hour back or forward, too. After each round the group heals. All acknowledged
messages (SEND_OK with inSyncReplicas=2) must then be on all brokers, in order and none twice, and
all logs must be equal byte by byte.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.replication.rounds import run


def main() -> None:
    """Run the rounds of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replication", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("rounds", type=int, nargs="?", default=200)
    parser.add_argument("--slaves", type=int, default=1)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketpy-replication-") as directory:
        history = run(
            Path(directory),
            rounds=options.rounds,
            slaves=options.slaves,
            flush=options.flush,
            seed=options.seed,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    print(
        f"{options.rounds} rounds: {history.count} acknowledged messages are on all brokers, "
        f"{history.uncertain} sends were answered otherwise"
    )


if __name__ == "__main__":
    main()
