"""Ratios of two rates with a goal: interleaved rounds, medians, and stored results.

A measure that several ratios share runs once a round.
"""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import ROOT
from bench.spark import kafka, live, session, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = ROOT / "bench" / "results"


class UnavailableError(Exception):
    """Measure that is not possible here, with the reason."""


@dataclass
class Context:
    """Shared resources of the measures.

    Attributes:
        scratch: a directory that is deleted afterwards.
        scale: share of the usual number of messages.
        closing: stops started services.
    """

    scratch: Path
    scale: float = 1.0
    closing: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def spark(self) -> "SparkSession":
        """Spark session with two cores, started on first use."""
        jars = self._kafka_jars
        return session.start(self.scratch, [] if isinstance(jars, str) else jars.connector)

    @cached_property
    def _kafka_jars(self) -> kafka.Jars | str:
        try:
            return kafka.resolve()
        except kafka.NotResolvedError as error:
            return str(error)

    @cached_property
    def kafka(self) -> kafka.Broker:
        """Kafka broker, started on first use.

        Raises:
            UnavailableError: its jars cannot be resolved.
        """
        jars = self._kafka_jars
        if isinstance(jars, str):
            raise UnavailableError(jars)
        return self.closing.enter_context(kafka.running(jars, self.scratch / "kafka"))

    def live(self, body_bytes: int) -> str:
        """Return the name server of a RocketPy broker with the messages of that store."""
        if body_bytes not in self._live:
            home = self.scratch / f"live-{body_bytes}"
            started = live.serving(home, self.store(body_bytes) if body_bytes else None)
            self._live[body_bytes] = self.closing.enter_context(started)
        return self._live[body_bytes]

    @cached_property
    def _live(self) -> dict[int, str]:
        return {}

    def store(self, body_bytes: int) -> stores.Store:
        """Return a store with bodies of this size, created on first use."""
        return stores.store_of(self.scratch, body_bytes, self.scale)


@dataclass(frozen=True)
class Measure:
    """Function that measures a rate.

    Attributes:
        run: performs one measurement.
        body_bytes: of each message.
    """

    run: Callable[[Context, int], float]
    body_bytes: int


@dataclass(frozen=True)
class Ratio:
    """Ratio of two rates, a line of the table.

    Attributes:
        key: name in the benchmark plan, `B1`.
        name: description of the comparison.
        unit: of both rates.
        goal: the least ratio wanted.
        ours: our rate.
        theirs: the other.
    """

    key: str
    name: str
    unit: str
    goal: float
    ours: Measure
    theirs: Measure


@dataclass
class Result:
    """Measured rates of a ratio, one a round; or the reason why there are none."""

    ratio: Ratio
    ours: list[float]
    theirs: list[float]
    missing: str = ""

    @property
    def value(self) -> float:
        """Ratio of the medians."""
        return statistics.median(self.ours) / statistics.median(self.theirs)


def measure(
    ratios: Iterable[Ratio], context: Context, rounds: int, say: Callable[[str], None]
) -> list[Result]:
    """Run all measures in interleaved rounds, alternating the order, after a warm-up round."""
    wanted = list(ratios)
    rates: dict[Measure, list[float]] = {}
    for ratio in wanted:
        rates |= {ratio.ours: [], ratio.theirs: []}
    missing: dict[Measure, str] = {}
    for number in range(rounds + 1):
        for each in list(rates) if number % 2 else reversed(rates):
            if each in missing:
                continue
            try:
                rate = each.run(context, each.body_bytes)
            except UnavailableError as error:
                missing[each] = str(error)
                say(f"cannot be measured: {each.run.__name__}: {error}")
                continue
            say(f"round {number}: {each.run.__name__} {each.body_bytes} B: {rate:,.0f}")
            if number:
                rates[each].append(rate)
    return [
        Result(
            ratio,
            rates[ratio.ours],
            rates[ratio.theirs],
            missing.get(ratio.ours) or missing.get(ratio.theirs, ""),
        )
        for ratio in wanted
    ]


def table(results: Iterable[Result]) -> str:
    """Format the results."""
    lines = [
        "| | compared | ours | theirs | unit | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        ratio = result.ratio
        head = f"| {ratio.key} | {ratio.name}"
        if result.missing:
            lines.append(
                f"{head} | | | {ratio.unit} | not measured: {result.missing} | {ratio.goal} |"
            )
            continue
        ours, theirs = (statistics.median(each) for each in (result.ours, result.theirs))
        lines.append(
            f"{head} | {ours:,.0f} | {theirs:,.0f} | {ratio.unit} "
            f"| **{result.value:.2f}** | {ratio.goal} |"
        )
    return "\n".join(lines)


def keep(results: Iterable[Result], text: str, options: dict[str, object]) -> Path:
    """Write the run as JSON and as the table."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    stem = RESULTS / f"{time.strftime('%Y-%m-%d-%H%M')}-{found.stdout.strip() or 'unknown'}-spark"
    data = {
        "commit": found.stdout.strip(),
        "machine": {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
        },
        "options": options,
        "rates": {
            f"{each.ratio.key} {each.ratio.name}": {"ours": each.ours, "theirs": each.theirs}
            for each in results
        },
    }
    RESULTS.mkdir(exist_ok=True)
    Path(f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    Path(f"{stem}.md").write_text(text + "\n")
    return Path(f"{stem}.md")
