"""The same load over 1, 10 and 100 connections, and bodies of 64 KB; ours beside Apache."""

import statistics
from collections.abc import Sequence
from functools import partial

from bench.further.findings import Context, Finding
from bench.processes import Side, start_apache, start_rocketpy
from bench.workloads import Round, Workload, run_load

__all__ = ["run", "run_64k"]


def run(context: Context) -> list[Finding]:
    """Async sends of 100 B, 256 in flight, spread over the connections."""
    return _compare(
        context,
        [
            Workload(
                str(count),
                f"{count} connections" if count > 1 else "1 connection",
                ("send", "async", "256", "100"),
                after=(str(count),),
            )
            for count in (1, 10, 100)
        ],
        context.seconds,
    )


def run_64k(context: Context) -> list[Finding]:
    """Async sends of 64 KB, 32 in flight; short rounds, since they fill the disk."""
    load = Workload("64k", "64 KB, 32 in flight", ("send", "async", "32", "65536"))
    return _compare(context, [load], min(2, context.seconds))


def _compare(context: Context, loads: Sequence[Workload], seconds: int) -> list[Finding]:
    findings = []
    with context.sides(
        partial(start_rocketpy, context.scratch / "ours"),
        partial(start_apache, context.scratch / "apache", context.heap),
    ) as sides:
        rounds: dict[tuple[str, str], list[Round]] = {}
        for number in range(context.rounds + 1):  # the first one warms
            for load in loads:
                for side in sides if number % 2 == 0 else reversed(sides):
                    result = _once(context, side, load, seconds)
                    if number:
                        rounds.setdefault((load.key, side.name), []).append(result)
                    context.say(
                        f"{load.name}: {side.name} {result.per_s:,.0f}/s, "
                        f"{result.cpu_us:.1f} us CPU"
                    )
    for load in loads:
        ours, apache = rounds[load.key, "rocketpy"], rounds[load.key, "apache"]
        for what, figure, unit in (
            ("rate", "per_s", "/s"),
            ("CPU a message", "cpu_us", "us"),
            ("p99", "p99_us", "us"),
        ):
            values = [
                statistics.median(getattr(r, figure) for r in each) for each in (ours, apache)
            ]
            findings.append(Finding(f"{load.name}: {what}", values[0], unit, beside=values[1]))
    return findings


def _once(context: Context, side: Side, load: Workload, seconds: int) -> Round:
    return run_load(context.drivers, side, "bench-send", load, seconds, 0)
