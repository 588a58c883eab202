"""Tables and stored files of a run."""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import ROOT
from bench.workloads import Goal, Round, Workload

__all__ = [
    "RESULTS",
    "Run",
    "about",
    "as_data",
    "commit",
    "from_data",
    "interpreter",
    "is_known_as_plain",
    "machine",
    "short_table",
    "store",
    "table",
]

RESULTS = ROOT / "bench" / "results"
Rounds = dict[str, dict[str, list[Round]]]
OURS, PURE = "rocketpy", "pure"
_SHORT_ROWS = ("async",)


@dataclass
class Run:
    """Results of a run.

    Attributes:
        workloads: the rows.
        rounds: by row's name and side.
        beside: the side that ours is compared with.
        starts: seconds until ready, by side, one for each start.
        idle_mib: resident memory when idle, by side, all its processes.
        rss_after_mib: the same after all loads.
        options: what the run was asked for, and how long sides were warmed.
        sends: what serves plain sends, by side.
        catch_ups: how fast an empty slave caught up, a sentence for each side.
        about: where the numbers come from, in one paragraph.
    """

    workloads: Sequence[Workload]
    rounds: Rounds
    beside: str = "apache"
    starts: dict[str, list[float]] = field(default_factory=dict)
    idle_mib: dict[str, float] = field(default_factory=dict)
    rss_after_mib: dict[str, float] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    sends: dict[str, str] = field(default_factory=dict)
    catch_ups: list[str] = field(default_factory=list)
    about: str = ""


def median(rounds: Sequence[Round], what: str) -> float | None:
    """Return the median of a figure over the rounds that have it."""
    values = [value for r in rounds if (value := getattr(r, what)) is not None]
    return statistics.median(values) if values else None


def ratio(
    by_side: Mapping[str, Sequence[Round]], side: str, beside: str, what: str
) -> float | None:
    """Return the ratio of two sides' medians of a figure."""
    a, b = median(by_side.get(side, ()), what), median(by_side.get(beside, ()), what)
    return a / b if a is not None and b else None


def judged(value: float | None, goal: float | None, *, at_most: bool = False) -> str:
    """Return a ratio and its goal, in bold if it is reached."""
    if value is None:
        return ""
    text = f"{value:.2f}"
    if goal is None:
        return text
    reached = round(value, 2) <= goal if at_most else round(value, 2) >= goal
    return (f"**{text}**" if reached else text) + f" ({goal:g})"


def _shown(value: float | None, form: str, scale: float = 1.0) -> str:
    return "" if value is None else format(value / scale, form)


def _row(workload: Workload, by_side: Mapping[str, Sequence[Round]], beside: str) -> str:
    what = "p99_us" if workload.is_latency else "per_s"
    goal = workload.goal if beside == "apache" else None
    cells = [workload.name]
    cells += [_shown(median(by_side[side], "per_s"), ",.0f") for side in (OURS, beside)]
    if workload.is_latency:
        both = [ratio(by_side, OURS, beside, each) for each in ("p50_us", "p99_us")]
        limit = goal.rate if goal else None
        cells.append(
            " / ".join(judged(each, limit, at_most=True) for each in both) + " of its time"
        )
    else:
        cells.append(judged(ratio(by_side, OURS, beside, "per_s"), goal.rate if goal else None))
    cells += [_shown(median(by_side[side], "cpu_us"), ".1f") for side in (OURS, beside)]
    cpu = ratio(by_side, OURS, beside, "cpu_us")
    cells.append(judged(cpu, goal.cpu if goal else None, at_most=True))
    pure = ratio(by_side, PURE, beside, what)
    cells.append(judged(pure, goal.pure if goal else None, at_most=workload.is_latency))
    cells.append(_shown(ratio(by_side, PURE, beside, "cpu_us"), ".2f"))
    for each in ("p50_us", "p99_us"):
        shown = [_shown(median(by_side[side], each), ".2f", 1000) for side in (OURS, beside)]
        cells.append(" / ".join(shown) if any(shown) else "")
    failed = sum(r.failed for side in (OURS, PURE) for r in by_side.get(side, ()))
    return "| " + " | ".join(cells) + " |" + (f" {failed} FAILED" if failed else "")


def table(run: Run) -> str:
    """Draw the results; ratios are ours / the other side's, goals in brackets."""
    name = {"apache": "Apache", "nothing": "nothing stored"}[run.beside]
    heads = ["load", "ours /s", f"{name} /s", "rate", "ours CPU us", f"{name} CPU us", "CPU"]
    heads += ["pure Python: rate", "pure: CPU", "p50 ms", "p99 ms"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += [_row(each, run.rounds[each.name], run.beside) for each in run.workloads]
    lines += ["", *_starts(run), "", run.about]
    return "\n".join(lines)


def short_table(run: Run) -> str:
    """Draw the short table of the README: one load, start and memory."""
    lines = ["| | RocketPy | Apache 5.4.0 | ratio |", "|---|---|---|---|"]
    for each in run.workloads:
        if each.key not in _SHORT_ROWS:
            continue
        by_side = run.rounds[each.name]
        for what, form, unit in (("per_s", ",.0f", "/s"), ("cpu_us", ".1f", " us of CPU each")):
            sides = [_shown(median(by_side[side], what), form) for side in (OURS, "apache")]
            cells = [f"{side}{unit}" for side in sides]
            cells.append(_shown(ratio(by_side, OURS, "apache", what), ".2f"))
            lines.append(f"| {each.name} | " + " | ".join(cells) + " |")
    ready = [_shown(_middle(run.starts.get(side)), ".2f") for side in (OURS, "apache")]
    idle = [_shown(run.idle_mib.get(side), ".0f") for side in (OURS, "apache")]
    lines.append(f"| ready after start | {ready[0]} s | {ready[1]} s | |")
    lines.append(f"| memory when idle | {idle[0]} MiB | {idle[1]} MiB | |")
    return "\n".join(lines)


def _starts(run: Run) -> list[str]:
    if run.beside != "apache" or not run.starts:
        return []
    lines = ["| | ours | pure Python | Apache |", "|---|---|---|---|"]
    sides = (OURS, PURE, "apache")
    ready = [_shown(_middle(run.starts.get(side)), ".2f") for side in sides]
    idle = [_shown(run.idle_mib.get(side), ".1f") for side in sides]
    after = [_shown(run.rss_after_mib.get(side), ".0f") for side in sides]
    return [
        *lines,
        "| ready after start, s (0.3) | " + " | ".join(ready) + " |",
        "| resident when idle, MiB (25) | " + " | ".join(idle) + " |",
        "| resident after the loads, mapped pages of the store included, MiB | "
        + " | ".join(after)
        + " |",
    ]


def _middle(values: Sequence[float] | None) -> float | None:
    return statistics.median(values) if values else None


def about(run: Run) -> str:
    """Return a paragraph on the origin of the numbers."""
    up = [r.up_s for by in run.rounds.values() for r in by.get("apache", ())]
    parts = [
        f"{run.options.get('rounds')} rounds of {run.options.get('seconds')} s a side and load"
    ]
    if up:
        parts.append(
            f"Apache's JVM up and under loads of the same kinds for {min(up):.0f} s before its "
            f"first round (for {max(up):.0f} s before its last)"
        )
    sends = run.sends.get(OURS, "") or "unknown"
    made_for = f" for {abi()}" if sends == "compiled" else ""
    parts.append(f"our build: {sends}{made_for}, commit {commit()}")
    parts.append(f"CPython {interpreter()}")
    parts.append(f"{os.cpu_count()} cores, load of the machine before {run.options.get('load')}")
    return "; ".join(parts) + "."


def abi() -> str:
    """Return the Python versions of the compiled modules."""
    found = importlib.util.find_spec("rocketpy.broker.fast_path._plain_sends")
    is_stable = found is not None and (found.origin or "").endswith(".abi3.so")
    return "every later CPython" if is_stable else "this interpreter"


def interpreter() -> str:
    """Return version, compiler and optimisation of the interpreter."""
    return f"{platform.python_version()} ({platform.python_compiler()}, {_build()})"


def is_known_as_plain() -> bool:
    """Return whether the interpreter was built without profile-guided optimisation."""
    return not _is_optimised() and not _package()


def _build() -> str:
    if not _is_optimised() and (package := _package()):
        return f"Debian's package {package}"
    lto = "with" if "--with-lto" in _configured() else "without"
    return f"{'with' if _is_optimised() else 'without'} PGO, {lto} LTO"


def _configured() -> str:
    return sysconfig.get_config_var("CONFIG_ARGS") or ""


def _is_optimised() -> bool:
    return "--enable-optimizations" in _configured()


def _package() -> str:
    """Name and version of the Debian package that the interpreter came with; empty without one.

    Debian's are built with a profile (`profile-opt` in their rules), which their settings do not
    tell.
    """
    try:
        found = subprocess.run(
            ["dpkg-query", "--search", os.path.realpath(sys.executable)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        shown = subprocess.run(
            ["dpkg-query", "--show", found.partition(":")[0]],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return " ".join(shown.split())


def commit() -> str:
    """Return the short commit of the tree, with a plus if files differ."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run(
        [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    edits = subprocess.run(
        [*git, "status", "--porcelain", "--untracked-files=no"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return (head or "unknown") + ("+" if edits else "")


def machine() -> dict[str, Any]:
    """Return the environment of the run."""
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": interpreter(),
    }


def store(data: Mapping[str, Any], text: str, suffix: str = "") -> Path:
    """Write a run as JSON and as the table it printed, named by time and commit."""
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}-{commit().rstrip('+')}{suffix}"
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    stem.with_suffix(".md").write_text(text + "\n")
    return stem.with_suffix(".md")


def as_data(run: Run) -> dict[str, Any]:
    """The run as it is stored."""
    return {
        "commit": commit(),
        "machine": machine(),
        "beside": run.beside,
        "options": run.options,
        "sends": run.sends,
        "catch_ups": run.catch_ups,
        "starts_s": run.starts,
        "idle_rss_mib": run.idle_mib,
        "rss_after_mib": run.rss_after_mib,
        "about": run.about,
        "rows": {
            each.key: {
                "name": each.name,
                "goal": asdict(each.goal) if each.goal else None,
                "is_latency": each.is_latency,
            }
            for each in run.workloads
        },
        "rounds": {
            row: {side: [asdict(r) for r in rs] for side, rs in by.items()}
            for row, by in run.rounds.items()
        },
        "table": table(run),
    }


def from_data(data: Mapping[str, Any]) -> Run:
    """A stored run."""
    workloads = [
        Workload(
            key,
            row["name"],
            (),
            goal=Goal(**row["goal"]) if row["goal"] else None,
            is_latency=row["is_latency"],
        )
        for key, row in data["rows"].items()
    ]
    rounds = {
        row: {side: [Round(**r) for r in rs] for side, rs in by.items()}
        for row, by in data["rounds"].items()
    }
    return Run(
        workloads,
        rounds,
        data["beside"],
        data["starts_s"],
        data["idle_rss_mib"],
        data["rss_after_mib"],
        data["options"],
        data["sends"],
        data.get("catch_ups", []),
        data["about"],
    )
