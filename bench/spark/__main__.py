"""Runs the benchmarks of the data pipeline; prints the table, and stores it in bench/results.

python -m bench.spark [--quick] [--rounds 5] [--only B1]
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench.processes import compile_package
from bench.spark import archive, decoding, memory, reads, sink
from bench.spark.frame import Context, keep, measure, table

MODULES = (reads, decoding, archive, sink)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> int:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark")
    parser.add_argument(
        "--rounds", type=int, default=5, help="counted rounds, after one for warm-up"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one round of few messages; not stored"
    )
    parser.add_argument("--only", default="", help="only ratios whose key or name contains this")
    parser.add_argument("--no-store", action="store_true", help="do not write bench/results")
    opts = parser.parse_args()
    ratios = [
        each
        for module in MODULES
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
