"""Harms a group with a controller in many ways while clients send, and checks its replicas.

    python -m tests.failover 200                                # 200 rounds of three replicas
    python -m tests.failover 50 --etcd                          # of two controllers with etcd
    python -m tests.failover --apache 3     # 3 of each of some kinds, of a group of Apache 5.4.0
    python -m tests.failover 50 --flush SYNC_FLUSH --seed 7
    python -m tests.failover 4 --only isolate_master slow_links

Processes are killed, stopped and frozen, links cut and slowed down, clocks set and run fast or
slow. After each round the group heals. All acknowledged messages (SEND_OK) must then be on all
replicas, in order and none twice, those of an epoch from one broker, and all logs must be equal
byte by byte. The table at the end has the longest time without an acknowledged message for each
fault. Links need root, or the right to make namespaces: `unshare --map-root-user --net ...`.
The directory of a run that fails is kept.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.failover import apache
from tests.failover.rounds import Plan, run, table


def main() -> None:
    """Run the rounds of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.failover", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("rounds", type=int, nargs="?", default=200)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--etcd", action="store_true")
    parser.add_argument("--only", nargs="+", default=(), metavar="KIND")
    parser.add_argument("--gaps", type=Path, help="file of the gaps, for the chart")
    parser.add_argument("--apache", type=int, metavar="N", help="rounds of each kind, of Apache's")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="rocketpy-failover-"))
    try:
        gaps = _apache(directory, options) if options.apache else _ours(directory, options)
    except BaseException:
        print(f"kept: {directory}", file=sys.stderr)
        raise
    shutil.rmtree(directory)
    if options.gaps is not None:
        options.gaps.write_text(json.dumps(gaps, indent=1) + "\n")


def _ours(directory: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    plan = Plan(options.rounds, options.flush, options.seed, options.etcd, options.only)
    result = run(directory, plan, _say)
    history = result.history
    print(
        f"{options.rounds} rounds: {history.count} acknowledged messages are on all replicas, "
        f"{history.uncertain} sends were answered otherwise; {len(result.masters)} epochs, "
        "one master each"
    )
    print(table(result.gaps))
    return result.gaps


def _apache(directory: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    result = apache.run(directory, options.apache, options.seed, _say, options.only)
    print(f"{result.acknowledged} acknowledged messages, lost of each round: {result.lost}")
    print(table(result.gaps))
    return result.gaps


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
