"""Producers while a consumer reads a long log from its start; ours beside Apache."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.further.findings import Context, Finding
from bench.processes import Side, start_apache, start_rocketpy
from bench.workloads import Workload, run_load

__all__ = ["run"]

LOG_MIB = 1024
TIMES_MAX = 2.0
"""How many times their p99 alone producers may see while the consumer catches up."""
_PACED = Workload("paced", "2,000/s, 100 B", ("paced", "2000", "100"))
_FILL = Workload("fill", "fill", ("send", "batch", "4", "1024"))
_WARM_MIB = 64
_NEVER = 1_000_000_000
_SECOND_JVM = "-Drocketpy.bench=consumer"
_FINDS_QUEUES_S = 2.0


def run(context: Context) -> list[Finding]:
    """Sends at 2,000/s alone and beside the consumer, in turn; the log is on disk only at first."""
    ours = _side(context, start_rocketpy)
    apache = _side(context, lambda home: start_apache(home, context.heap))
    findings = []
    for what, unit in (("p50", "us"), ("p99", "us")):
        for when in ("alone", "beside"):
            name = f"{what} of sends at 2,000/s, " + (
                "alone" if when == "alone" else "beside the consumer"
            )
            findings.append(Finding(name, ours[when, what], unit, beside=apache[when, what]))
    times = [each["beside", "p99"] / each["alone", "p99"] for each in (ours, apache)]
    findings.append(Finding("p99 grows", times[0], "times", TIMES_MAX, times[1]))
    rates = [each["beside", "consumed"] for each in (ours, apache)]
    findings.append(Finding("consumed meanwhile", rates[0], "/s", beside=rates[1]))
    return findings


def _forget_pages(directory: Path) -> None:
    """Write the store's files out and let the system forget their pages."""
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_size:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _side(context: Context, start: Callable[[Path], Side]) -> dict[tuple[str, str], float]:
    home = context.scratch / "behind"
    with context.sides(partial(start, home)) as running:
        side = running[0]
        _fill(context, side, "bench-warm", _WARM_MIB)
        filled = _fill(context, side, "bench-behind", LOG_MIB)
        context.say(f"{side.name}: {filled:,} messages of 1 KB")
        side.stop()
        _forget_pages(home)
        running[0] = side = start(home)
        # Both drivers have met both loads: what they compile would take the processors otherwise.
        run_load(context.drivers, side, "bench-send", _PACED, context.seconds, 0)
        _consume(context, side, "bench-warm", context.seconds)
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(context.rounds):
            for when in ("alone", "beside"):
                result = _paced(context, side, with_consumer=when == "beside")
                for what, value in result.items():
                    found.setdefault((when, what), []).append(value)
                context.say(f"{side.name}, {when}: {result}")
        return {key: statistics.median(values) for key, values in found.items()}


def _fill(context: Context, side: Side, topic: str, mib: int) -> int:
    """Send messages of 1 KB in batches; returns their number."""
    filled, wanted = 0, context.scaled(mib * 1024)
    while filled < wanted:
        filled += run_load(context.drivers, side, topic, _FILL, 2, 0).messages
    return filled


def _consume(context: Context, side: Side, topic: str, seconds: int) -> float:
    """Read a topic from its start with a separate driver; returns messages a second."""
    words = ["Load", side.namesrv, topic, "drain", str(_NEVER), str(seconds)]
    return float(context.drivers.get(_SECOND_JVM).run(words, seconds)["per_s"])


def _paced(context: Context, side: Side, *, with_consumer: bool) -> dict[str, float]:
    consumed: list[float] = []

    def consume() -> None:
        seconds = int(context.seconds + _FINDS_QUEUES_S + 2)
        consumed.append(_consume(context, side, "bench-behind", seconds))

    context.drivers.get(_SECOND_JVM)
    thread = threading.Thread(target=consume)
    if with_consumer:
        thread.start()
        time.sleep(_FINDS_QUEUES_S)
    result = run_load(context.drivers, side, "bench-send", _PACED, context.seconds, 0)
    if with_consumer:
        thread.join()
    assert result.p50_us is not None
    assert result.p99_us is not None
    found = {"p50": result.p50_us, "p99": result.p99_us}
    return found | ({"consumed": consumed[0]} if with_consumer else {})
