"""Rows beyond the table: many connections, topics and keys, a long log, a consumer far behind."""

import argparse
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.driver import Drivers
from bench.further import behind, connections, idle, keys, log_length, topics, two_brokers
from bench.further.findings import Context, Finding, Further
from bench.report import commit, interpreter, machine, store

__all__ = ["ROWS", "main", "table"]

ROWS: tuple[Further, ...] = (
    Further("connections", "1, 10 and 100 connections", connections.run, 1.5),
    Further("64k", "bodies of 64 KB", connections.run_64k, 0.7),
    Further("topics", "1,000 and 10,000 topics", topics.run, 3.5),
    Further("idle", "5,000 idle connections", idle.run, 0.5),
    Further("behind", "a consumer far behind", behind.run, 2.0),
    Further("keys", "query by key, 10 million entries", keys.run, 2.0),
    Further("log", "a growing log", log_length.run, 3.0),
    Further("two", "two broker processes", two_brokers.run, 0.7),
)


def table(results: Mapping[str, Sequence[Finding]]) -> str:
    """Draw what was found; bold where a bound is kept."""
    names = {each.key: each.name for each in ROWS}
    lines = ["| row | measure | ours | Apache | bound |", "|---|---|---|---|---|"]
    for key, findings in results.items():
        for number, each in enumerate(findings):
            value = _shown(each.value)
            cells = [
                names[key] if number == 0 else "",
                each.what,
                (f"**{value}**" if each.is_kept else value) + f" {each.unit}",
                "" if each.beside is None else f"{_shown(each.beside)} {each.unit}",
                "" if each.bound is None else f"{each.bound:g} {each.unit}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def main(
    opts: argparse.Namespace, scratch: Path, drivers: Drivers, say: Callable[[str], None]
) -> int:
    """Run the rows that were asked for, print and store what they found."""
    wanted = [key for key in opts.rows.split(",") if key]
    known = {each.key for each in ROWS}
    if set(wanted) - known:
        raise SystemExit(f"no row {set(wanted) - known}; there are {', '.join(sorted(known))}")
    load = f"{os.getloadavg()[0]:.1f}"
    scale = 0.02 if opts.quick else 1.0
    context = Context(scratch, drivers, scale, opts.rounds, opts.seconds, opts.heap, say)
    results: dict[str, list[Finding]] = {}
    failures: dict[str, str] = {}
    for row in ROWS:
        if wanted and row.key not in wanted:
            continue
        say(f"{row.name} (about {row.minutes:g} minutes)")
        began_s = time.monotonic()
        try:
            results[row.key] = row.run(context)
        except Exception as error:  # noqa: BLE001 - the other rows are still measured
            failures[row.key] = repr(error)
            say(f"{row.name}: {error!r}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        say(f"{row.name}: {time.monotonic() - began_s:.0f} s")
    about = (
        f"Up to {opts.rounds} rounds of {opts.seconds} s where loads are compared; "
        f"commit {commit()}; "
        f"CPython {interpreter()}; {os.cpu_count()} cores, load of the machine before {load}."
    )
    text = f"{table(results)}\n\n{about}"
    print(text)
    for key, failure in failures.items():
        print(f"FAILED {key}: {failure}")
    if not (opts.no_store or opts.quick) and results:
        data = {
            "commit": commit(),
            "machine": machine(),
            "options": {"rounds": opts.rounds, "seconds": opts.seconds, "load": load},
            "findings": {key: [asdict(each) for each in found] for key, found in results.items()},
            "failures": failures,
            "about": about,
            "table": text,
        }
        say(f"stored as {store(data, text, '-further')}")
    return 1 if failures else 0
