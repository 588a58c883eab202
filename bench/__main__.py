"""Both sides up and warm, rounds interleaved; medians and ratios, printed and stored.

python -m bench [--features] [--quick] [--rounds 3] [--seconds 6] [--only async] [-D key=value ...]
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from bench.processes import PEER, ROOT, Side, start_apache, start_rocketpy
from bench.workloads import FEATURES, WORKLOADS, Round, Workload, run_load

RESULTS = ROOT / "bench" / "results"
DRAIN_COUNT = 300_000
COLUMNS = (
    "ours /s",
    "Apache /s",
    "ratio",
    "ours CPU us",
    "Apache CPU us",
    "ratio",
    "ours p99 ms",
    "Apache p99 ms",
)
Rounds = dict[str, dict[str, list[Round]]]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument(
        "--features", action="store_true", help="transactions, delays, filters, order, pop"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds a side and workload")
    parser.add_argument("--seconds", type=int, default=6, help="length of one send round")
    parser.add_argument(
        "--quick", action="store_true", help="one short round each: a first look, not a result"
    )
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    parser.add_argument("--heap", default="2g", help="heap of the Apache broker")
    parser.add_argument(
        "-D", action="append", default=[], dest="defines", help="key=value for our broker"
    )
    parser.add_argument("--no-store", action="store_true", help="do not write bench/results")
    return parser.parse_args()


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def warm_up(side: Side, workloads: list[Workload], seconds: int) -> None:
    """Let one side run, and make and fill the topics that are drained."""
    run_load(side, "bench-send", Workload("warm", ("send", "async", "256", "100")), seconds, 0)
    # A consumer finds a topic only once it exists.
    for topic in ("bench-e2e", "bench-delay"):
        run_load(side, topic, Workload("create", ("send", "sync", "1", "100")), 1, 0)
    topics = {workload.topic_name: workload for workload in workloads if workload.share}
    for topic, workload in topics.items():
        if workload.driver == "FeatureLoad":
            fill = Workload("fill", ("fill",), workload.driver, share=1.0)
            run_load(side, topic, fill, 0, DRAIN_COUNT)
            continue
        filled = 0
        while filled < DRAIN_COUNT:
            fill = Workload("fill", ("send", "batch", "4", "100"))
            filled += run_load(side, topic, fill, 4, 0).messages


def measure(sides: list[Side], workloads: list[Workload], opts: argparse.Namespace) -> Rounds:
    """Run every workload in interleaved rounds; who goes first alternates."""
    rounds: Rounds = {w.name: {side.name: [] for side in sides} for w in workloads}
    for number in range(opts.rounds):
        for workload in workloads:
            for side in sides if number % 2 == 0 else reversed(sides):
                result = run_load(side, workload.topic_name, workload, opts.seconds, DRAIN_COUNT)
                rounds[workload.name][side.name].append(result)
                say(
                    f"round {number + 1}: {workload.name}: {side.name} "
                    f"{result.per_s:,.0f}/s, {result.cpu_us:.1f} us CPU"
                    + (f", {result.repeated} tries before" if result.repeated else "")
                )
    return rounds


def median(rounds: list[Round], what: str) -> float | None:
    """Median of one figure over rounds that have it."""
    values = [value for r in rounds if (value := getattr(r, what)) is not None]
    return statistics.median(values) if values else None


def total(mib_by_role: Mapping[str, float]) -> str:
    """Sum over the processes of one side."""
    return f"{sum(mib_by_role.values()):.0f}"


def table(sides: dict[str, Side], rounds: Rounds) -> str:
    """Draw the results; ratios are ours / Apache's."""
    ours, apache = sides["rocketpy"], sides["apache"]
    lines = [
        "| load | " + " | ".join(COLUMNS) + " |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, by_side in rounds.items():
        cells = [name]
        for what, form in (("per_s", ",.0f"), ("cpu_us", ".1f")):
            a, b = median(by_side["rocketpy"], what), median(by_side["apache"], what)
            assert a is not None
            assert b is not None
            cells += [format(a, form), format(b, form), f"**{a / b:.2f}**" if b else "-"]
        for side in ("rocketpy", "apache"):
            p99 = median(by_side[side], "p99_us")
            cells.append("" if p99 is None else f"{p99 / 1000:.2f}")
        failed = sum(r.failed for r in by_side["rocketpy"])
        lines.append("| " + " | ".join(cells) + " |" + (f" {failed} FAILED" if failed else ""))
    lines.append("")
    lines.append(
        f"ready in {ours.ready_s:.2f} s (Apache {apache.ready_s:.2f} s); resident when idle "
        f"{total(ours.idle_rss_mib)} MiB (Apache {total(apache.idle_rss_mib)} MiB); "
        f"resident after the load, mapped store pages included, {total(ours.rss_mib())} MiB "
        f"(Apache {total(apache.rss_mib())} MiB)"
    )
    return "\n".join(lines)


def store(
    opts: argparse.Namespace,
    sides: dict[str, Side],
    rounds: Rounds,
    text: str,
) -> Path:
    """Write the run as JSON and as the table it printed."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    ).stdout.strip()
    stem = RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}-{commit or 'unknown'}"
    RESULTS.mkdir(exist_ok=True)
    data = {
        "commit": commit,
        "machine": {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "options": {"rounds": opts.rounds, "seconds": opts.seconds, "defines": opts.defines},
        "sides": {
            n: {
                "ready_s": s.ready_s,
                "idle_rss_mib": dict(s.idle_rss_mib),
                "rss_after_mib": s.rss_mib(),
            }
            for n, s in sides.items()
        },
        "rounds": {
            w: {side: [asdict(r) for r in rs] for side, rs in by.items()}
            for w, by in rounds.items()
        },
    }
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text + "\n")
    return stem.with_suffix(".md")


def main() -> int:
    """Run the benchmark."""
    opts = options()
    if opts.quick:
        opts.rounds, opts.seconds = 1, 3
    all_of_them = FEATURES if opts.features else WORKLOADS
    workloads = [w for w in all_of_them if opts.only in w.name]
    subprocess.run(["bash", str(PEER), "fetch"], check=True)
    scratch = Path(tempfile.mkdtemp(prefix="rocketpy-bench-"))
    started: list[Side] = []
    try:
        say("starting the Apache name server and broker")
        started.append(start_apache(scratch / "apache", opts.heap))
        say("starting rocketpy standalone")
        started.append(
            start_rocketpy(scratch / "rocketpy", [x for d in opts.defines for x in ("-D", d)])
        )
        sides = {side.name: side for side in started}
        for side in started:
            say(f"warming {side.name}")
            warm_up(side, workloads, 3 if opts.quick else 12)
        rounds = measure(started, workloads, opts)
        text = table(sides, rounds)
        print(text)
        if not (opts.no_store or opts.quick):
            say(f"stored as {store(opts, sides, rounds, text)}")
    finally:
        for side in started:
            side.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
