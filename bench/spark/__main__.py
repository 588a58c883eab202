"""Runs the benchmarks of the data pipeline; prints the table, and stores it in bench/results.

python -m bench.spark [--quick] [--rounds 5] [--only B1]
"""

import argparse
import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import compile_package, end_on_sigterm

MODULES = {
    "reads": "B1 to B4   store and live sources beside the ceiling and Kafka's source",
    "decoding": "B5, B6     records to Arrow",
    "archive": "B7         archive job beside the writing of Parquet",
    "sink": "B8         sink beside the asyncio producer",
}
"""Modules with a function `ratios`, and what they measure; imported when they are run."""


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument(
        "--rounds", type=int, default=5, help="counted rounds, after one for warm-up"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of few messages; not stored"
    )
    parser.add_argument("--only", default="", help="only ratios whose key or name contains this")
    parser.add_argument("--list", action="store_true", help="print the keys of all ratios")
    parser.add_argument("--no-store", action="store_true", help="do not write bench/results")
    return parser.parse_args()


def main() -> int:
    """Run the benchmarks."""
    opts = options()
    if opts.list:
        print("\n".join(MODULES.values()))
        return 0
    end_on_sigterm()
    try:
        from bench.spark import memory  # noqa: PLC0415 - --list needs none of these
        from bench.spark.frame import Context, keep, measure, table  # noqa: PLC0415

        modules = [importlib.import_module(f"bench.spark.{name}") for name in MODULES]
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is not installed: make setup-spark installs it") from error
    ratios = [
        each
        for module in modules
        for each in module.ratios()
        if opts.only in f"{each.key} {each.name}"
    ]
    scratch = Path(tempfile.mkdtemp(prefix="rocketpy-bench-spark-"))
    context = Context(scratch, 0.05 if opts.quick else 1.0)
    began = time.monotonic()
    rounds = 1 if opts.quick else opts.rounds
    compile_package()
    say(f"load of the machine: {os.getloadavg()[0]:.1f}")
    try:
        with context.closing:
            results = measure(ratios, context, rounds, say)
            peak = memory.worker_peak_mb(os.getpid())
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = table(results)
    if peak:
        text += f"\n\nMost memory of a Python worker: {peak:,.0f} MB (limit {memory.LIMIT_MB} MB)."
    print(text)
    say(f"took {time.monotonic() - began:.0f} s")
    if not (opts.no_store or opts.quick):
        say(f"stored as {keep(results, text, {'rounds': rounds, 'only': opts.only})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
