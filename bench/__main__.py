"""Runs the benchmark: all sides warm, interleaved rounds; prints and stores medians and ratios.

python -m bench [--features|--further|--ceiling] [--rows NAME,...] [--rounds 3] [--seconds 4]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from bench import further
from bench.driver import Drivers
from bench.further.findings import Further
from bench.groups import GROUPS, start_apache_group, start_rocketpy_group
from bench.pairs import PAIRS, Pair, catch_up, start_apache_pair, start_rocketpy_pair
from bench.processes import (
    PEER,
    Side,
    compile_package,
    end_on_sigterm,
    start_apache,
    start_nothing,
    start_rocketpy,
)
from bench.report import Run, about, as_data, interpreter, is_known_as_plain, store, table
from bench.workloads import FEATURES, WORKLOADS, Workload, run_load
from rocketpy.broker.fast_path.compiled_path import compiled_sends

DRAIN_COUNT = 300_000
STARTS = 5
WARM_S = 8
START_ROW = "start"


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--features", action="store_true", help="transactions, delays, filters, order, pop"
    )
    which.add_argument(
        "--further", action="store_true", help="many connections, topics, keys, a long log, ..."
    )
    which.add_argument(
        "--ceiling", action="store_true", help="ours beside a broker that stores nothing"
    )
    which.add_argument("--pairs", action="store_true", help="a master with a slave on both sides")
    parser.add_argument("--rows", default="", help="only these, by key, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the keys of all rows")
    parser.add_argument("--rounds", type=int, default=3, help="rounds a side and row")
    parser.add_argument("--seconds", type=int, default=4, help="length of one send round")
    parser.add_argument(
        "--quick", action="store_true", help="one short round each: a first look, not a result"
    )
    parser.add_argument(
        "--no-pure", action="store_true", help="leave out ours without its compiled parts"
    )
    parser.add_argument("--heap", default="2g", help="heap of the Apache broker")
    parser.add_argument(
        "-D", action="append", default=[], dest="defines", help="key=value for our broker"
    )
    parser.add_argument("--no-store", action="store_true", help="do not write bench/results")
    return parser.parse_args()


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def chosen(workloads: Sequence[Workload], rows: str) -> list[Workload]:
    """Return the workloads with given keys, or all of them.

    Raises:
        SystemExit: a key is unknown.
    """
    keys = [key for key in rows.split(",") if key]
    known = {each.key for each in workloads} | {START_ROW}
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise SystemExit(f"no row {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [each for each in workloads if not keys or each.key in keys]


def _starters(
    opts: argparse.Namespace, defines: Sequence[str], scratch: Path
) -> dict[str, Callable[[], Side]]:
    """Return the start function of each side, by name.

    Raises:
        SystemExit: the compiled modules cannot be loaded.
    """
    if compiled_sends() is None:
        # Both of our sides would be the same, and the ratios those of pure Python.
        raise SystemExit("the compiled modules are missing or older than their sources: make setup")
    ours = [*defines, *opts.defines]
    if opts.pairs:
        has_controller = "enableControllerMode=true" in defines
        start_ours = start_rocketpy_group if has_controller else start_rocketpy_pair
        start_theirs = start_apache_group if has_controller else start_apache_pair
        return {
            "rocketpy": lambda: start_ours(scratch / "rocketpy", ours),
            "apache": lambda: start_theirs(scratch / "apache", opts.heap, defines),
        }
    starters: dict[str, Callable[[], Side]] = {
        "rocketpy": lambda: start_rocketpy(scratch / "rocketpy", ours)
    }
    if opts.ceiling:
        return starters | {"nothing": lambda: start_nothing(scratch / "nothing")}
    if not opts.no_pure:
        starters["pure"] = lambda: start_rocketpy(scratch / "pure", ours, pure=True)
    return starters | {"apache": lambda: start_apache(scratch / "apache", opts.heap, defines)}


def warm_up(drivers: Drivers, side: Side, workloads: list[Workload], seconds: int) -> None:
    """Start one side, fill the topics to drain, and warm it with each kind of load."""

    def run(topic: str, *args: str, seconds: int) -> int:
        load = Workload("warm", "warm", args)
        return run_load(drivers, side, topic, load, seconds, 0).messages

    run("bench-send", "send", "async", "256", "100", seconds=seconds)
    # A consumer finds a topic only once it exists.
    for topic in ("bench-e2e", "bench-delay"):
        run(topic, "send", "sync", "1", "100", seconds=1)
    for topic, workload in {each.topic_name: each for each in workloads if each.share}.items():
        if workload.driver == "FeatureLoad":
            fill = Workload("fill", "fill", ("fill",), workload.driver, share=1.0)
            run_load(drivers, side, topic, fill, 0, DRAIN_COUNT)
            continue
        filled = 0
        while filled < DRAIN_COUNT:
            filled += run(topic, "send", "batch", "4", "100", seconds=2)
    for workload in workloads:
        run_load(drivers, side, workload.topic_name, workload, min(2, seconds), DRAIN_COUNT)


def measure(
    drivers: Drivers, sides: list[Side], workloads: list[Workload], opts: argparse.Namespace
) -> Run:
    """Run every workload in interleaved rounds, with alternating order of the sides."""
    run = Run(workloads, {w.name: {side.name: [] for side in sides} for w in workloads})
    for number in range(opts.rounds):
        for workload in workloads:
            for side in sides if number % 2 == 0 else reversed(sides):
                result = run_load(
                    drivers, side, workload.topic_name, workload, opts.seconds, DRAIN_COUNT
                )
                run.rounds[workload.name][side.name].append(result)
                say(
                    f"round {number + 1}: {workload.name}: {side.name} "
                    f"{result.per_s:,.0f}/s, {result.cpu_us:.1f} us CPU"
                    + (f", {result.repeated} tries before" if result.repeated else "")
                )
    return run


def run_group(
    drivers: Drivers, opts: argparse.Namespace, workloads: list[Workload], scratch: Path
) -> Run:
    """Start all sides with the settings of these workloads, warm and measure them."""
    started: list[Side] = []
    warm_s = 3 if opts.quick else WARM_S
    try:
        for name, starter in _starters(opts, workloads[0].defines, scratch).items():
            say(f"starting {name}")
            started.append(starter())
        for side in started:
            say(f"warming {side.name}")
            warm_up(drivers, side, workloads, warm_s)
        run = measure(drivers, started, workloads, opts)
        for side in started:
            run.starts[side.name] = [side.ready_s]
            run.idle_mib[side.name] = sum(side.idle_rss_mib.values())
            run.rss_after_mib[side.name] = sum(side.rss_mib().values())
            run.sends[side.name] = side.sends
            if isinstance(side, Pair) and side.start_slave is not None:
                run.catch_ups.append(catch_up(side))
        return run
    finally:
        for side in started:
            side.stop()
        shutil.rmtree(scratch, ignore_errors=True)


def more_starts(run: Run, scratch: Path, count: int) -> None:
    """Start RocketPy repeatedly, each time on a new directory, and measure the time until ready."""
    for pure in (False, True):
        name = "pure" if pure else "rocketpy"
        run.starts[name] = []
        for number in range(count):
            home = scratch / f"start-{name}-{number}"
            is_last = number == count - 1
            side = start_rocketpy(home, pure=pure, settles_s=3.0 if is_last else 0.0)
            run.starts[name].append(side.ready_s)
            run.idle_mib[name] = sum(side.idle_rss_mib.values())
            run.sends[name] = side.sends
            side.stop()
            shutil.rmtree(home, ignore_errors=True)


def joined(runs: Sequence[Run], workloads: Sequence[Workload]) -> Run:
    """Merge the groups into one run; start times and memory are those of the first."""
    whole = Run(workloads, {})
    for run in runs:
        whole.rounds |= run.rounds
        whole.catch_ups += run.catch_ups
    if runs:
        first = runs[0]
        whole.starts, whole.idle_mib = first.starts, first.idle_mib
        whole.rss_after_mib, whole.sends = first.rss_after_mib, first.sends
    return whole


def run_rows(opts: argparse.Namespace, scratch: Path, drivers: Drivers) -> Run:
    """Run the selected rows, grouped by settings."""
    load = f"{os.getloadavg()[0]:.1f}"
    began_s = time.monotonic()
    rows = FEATURES if opts.features else (*PAIRS, *GROUPS) if opts.pairs else WORKLOADS
    workloads = chosen(rows, opts.rows)
    if opts.ceiling:
        workloads = [w for w in workloads if w.args[0] == "send" and not w.java_options]
        workloads = [w for w in workloads if not w.defines]
    groups = [list(group) for _, group in groupby(workloads, lambda each: each.defines)]
    runs = [
        run_group(drivers, opts, group, scratch / f"group-{number}")
        for number, group in enumerate(groups)
    ]
    run = joined(runs, workloads)
    if opts.ceiling:
        run.beside = "nothing"
    elif not (opts.features or opts.pairs) and (not opts.rows or START_ROW in opts.rows.split(",")):
        say(f"starting ours {STARTS} times")
        more_starts(run, scratch, 2 if opts.quick else STARTS)
    run.options = {
        "rounds": opts.rounds,
        "seconds": opts.seconds,
        "defines": opts.defines,
        "warm_s": WARM_S,
        "load": load,
        "minutes": round((time.monotonic() - began_s) / 60, 1),
    }
    run.about = about(run)
    return run


def main() -> int:
    """Run the benchmark."""
    opts = options()
    if opts.list:
        rows: Sequence[Workload | Further] = (
            further.ROWS if opts.further else FEATURES if opts.features else WORKLOADS
        )
        rows = (*PAIRS, *GROUPS) if opts.pairs else rows
        print("\n".join(f"{each.key:12} {each.name}" for each in rows))
        return 0
    end_on_sigterm()
    if opts.quick:
        opts.rounds, opts.seconds = 1, 2
    if is_known_as_plain():
        say(f"CPython {interpreter()}: what is Python costs a third more than in optimised builds")
        say("(Debian's, Docker's, python.org's); name one with: make bench PYTHON=... VENV=...")
    compile_package()
    subprocess.run(["bash", str(PEER), "fetch"], check=True)
    scratch = Path(tempfile.mkdtemp(prefix="rocketpy-bench-"))
    drivers = Drivers()
    try:
        if opts.further:
            return further.main(opts, scratch, drivers, say)
        run = run_rows(opts, scratch, drivers)
    finally:
        drivers.close()
        shutil.rmtree(scratch, ignore_errors=True)
    text = table(run)
    if run.catch_ups:
        text += "\n\nCatch-up of an empty slave: " + "; ".join(run.catch_ups) + "."
    print(text)
    say(f"took {run.options['minutes']} minutes")
    if not (opts.no_store or opts.quick):
        suffix = "-features" if opts.features else "-ceiling" if opts.ceiling else ""
        suffix = "-pairs" if opts.pairs else suffix
        say(f"stored as {store(as_data(run), text, suffix)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
