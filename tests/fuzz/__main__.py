"""Fuzzing of compiled modules under sanitizers: `python -m tests.fuzz [--decoder | ...]`.

Frames of every kind, damaged in every way, go to two simulated brokers, one of them with the module
built under AddressSanitizer and UBSan; a read or write out of bounds, undefined behaviour, or any
difference between the two ends it, with the seed that repeats it: `--seed N`. With `--decoder`
the same for records that are decoded into Arrow columns, beside numpy; with `--client` for what a
client sends and is answered, beside the codec in Python. With `--messages` for
the records that a client receives, with `--recovery` for the start of a damaged store. With
`--all` every target runs, as many side by side as there are processors: the frames for the given
time, the others for a part of it. The commit chooses its first seed (`tests.sampling`).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.compiler import compiler
from tests.fuzz.sanitized import (
    CLIENT_SENDS,
    MESSAGES,
    RECORDS,
    ROOT,
    ROWS,
    SENDS,
    build,
    environment,
    runs_here,
)
from tests.sampling import part

_CASE_LIMIT_S = 300.0
"""A case takes a second; one that takes this long hangs."""
_TELL_EVERY_S = 10.0
_NO_LAST = 1 << 60
_SEEDS_OF_A_COMMIT = 1_000
_PARTS = {"": 1.0, "--decoder": 1 / 3, "--client": 1 / 3, "--messages": 1 / 6, "--recovery": 1 / 3}
"""What `--all` runs: the option of each target, and its part of the time."""


class Progress(NamedTuple):
    """Progress of the fuzzing process."""

    seed: int
    cases: int
    served: int


def run(command: list[str], env: dict[str, str], first: int, last: int, seconds: float) -> int:
    """Run the fuzzing process and tell of it; return the exit code."""
    command = [*command, str(first), str(last), str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    try:
        progress = _watch(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    print(f"fuzz: {progress.cases} cases, {progress.served:,} bytes or rows served", flush=True)
    if process.returncode:
        print(
            f"fuzz: FAILED at seed {progress.seed} (exit code {process.returncode}); "
            f"again with --seed {progress.seed}",
            file=sys.stderr,
        )
        return 1
    if not progress.served:
        print("fuzz: FAILED: the compiled path served nothing", file=sys.stderr)
        return 1
    return 0


def _watch(process: "subprocess.Popen[str]") -> Progress:
    progress, told_s = Progress(-1, 0, 0), time.monotonic()
    assert process.stdout is not None
    hangs = threading.Timer(_CASE_LIMIT_S, process.kill)
    hangs.start()
    try:
        for line in process.stdout:
            word, _, number = line.partition(" ")
            if word == "case":
                progress = progress._replace(seed=int(number))
                hangs.cancel()
                hangs = threading.Timer(_CASE_LIMIT_S, process.kill)
                hangs.start()
            elif word == "done":
                _, cases, served = progress
                progress = Progress(progress.seed, cases + 1, served + int(number))
            else:
                print(line, end="")
            if time.monotonic() - told_s > _TELL_EVERY_S:
                print(f"fuzz: {progress.cases} cases", flush=True)
                told_s = time.monotonic()
    finally:
        hangs.cancel()
    return progress


def run_all(seconds: float, others: list[str]) -> int:
    """Run each target in a separate process; print its output when it ends."""

    def run_target(target: str) -> int:
        command = [sys.executable, "-m", "tests.fuzz", *([target] if target else []), *others]
        command += ["--seconds", str(seconds * _PARTS[target])]
        command += ["--first", str(part() * _SEEDS_OF_A_COMMIT)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        lines = f"fuzz {target.removeprefix('--') or 'frames'}:\n{done.stdout}{done.stderr}"
        print(lines.rstrip(), flush=True)
        return done.returncode

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return int(any(list(pool.map(run_target, _PARTS))))


def main() -> int:
    """Build, fuzz, return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--decoder", action="store_true", help="records instead of frames")
    parser.add_argument("--client", action="store_true", help="a client's sends instead of frames")
    parser.add_argument("--messages", action="store_true", help="a client's pulls instead")
    parser.add_argument("--recovery", action="store_true", help="starts of damaged stores instead")
    parser.add_argument("--all", action="store_true", help="every target, side by side")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument(
        "--where-possible", action="store_true", help="no failure where it cannot be run"
    )
    options = parser.parse_args()
    if options.all:
        return run_all(options.seconds, ["--where-possible"] if options.where_possible else [])
    command = compiler()
    trouble = "there is no C compiler, or none of Python's headers"
    env: dict[str, str] = {}
    if command is not None:
        env = environment(command)
        trouble = runs_here(env)
    if trouble:
        print(f"fuzz: NOT RUN: {trouble}", file=sys.stderr)
        return 0 if options.where_possible else 1
    assert command is not None
    with tempfile.TemporaryDirectory(prefix="rocketpy-fuzz-") as directory:
        print("fuzz: compiling with -fsanitize=address,undefined", flush=True)
        name, cases = (ROWS, "run_decoding") if options.decoder else (SENDS, "run_cases")
        if options.client:
            name, cases = CLIENT_SENDS, "run_sends"
        if options.messages:
            name, cases = MESSAGES, "run_receiving"
        if options.recovery:
            name, cases = RECORDS, "run_recovery"
        module = build(command, Path(directory), name)
        running = [sys.executable, "-m", f"tests.fuzz.{cases}", str(module)]
        first, last = options.first, _NO_LAST
        if options.seed is not None:
            first, last = options.seed, options.seed + 1
        return run(running, env, first, last, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
