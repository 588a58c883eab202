"""Two rates and the goal for their ratio: rounds of all of them, medians, where they are kept."""

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bench.processes import ROOT
from bench.spark import session, stores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = ROOT / "bench" / "results"


@dataclass
class Context:
    """What the measures share.

    Attributes:
        scratch: a directory that is deleted afterwards.
        scale: share of the usual number of messages.
    """

    scratch: Path
    scale: float = 1.0

    @cached_property
    def spark(self) -> "SparkSession":
        """A session with two cores, started when first used."""
        return session.start(self.scratch)

    def store(self, body_bytes: int) -> stores.Store:
        """Return a store with bodies of this size, made when first asked for."""
        return stores.store_of(self.scratch, body_bytes, self.scale)


@dataclass(frozen=True)
class Ratio:
    """One line of the table.

    Attributes:
        key: as the plan of the benchmark names it, `B1`.
        name: what is compared.
        unit: of both rates.
        goal: the least ratio wanted.
        ours: measures our rate once.
        theirs: measures the other.
    """

    key: str
    name: str
    unit: str
    goal: float
    ours: Callable[[Context], float]
    theirs: Callable[[Context], float]


@dataclass
class Result:
    """What was measured of a ratio, a rate a round."""

    ratio: Ratio
    ours: list[float]
    theirs: list[float]

    @property
    def value(self) -> float:
        """Ratio of the medians."""
        return statistics.median(self.ours) / statistics.median(self.theirs)


def measure(
    ratios: Iterable[Ratio], context: Context, rounds: int, say: Callable[[str], None]
) -> list[Result]:
    """Run every ratio in interleaved rounds; who is first alternates, the first does not count."""
    results = [Result(ratio, [], []) for ratio in ratios]
    for number in range(rounds + 1):
        for result in results:
            sides = [(result.ours, result.ratio.ours), (result.theirs, result.ratio.theirs)]
            for rates, run in sides if number % 2 else reversed(sides):
                rate = run(context)
                if number:
                    rates.append(rate)
            if number:
                say(f"round {number}: {result.ratio.key} {result.ratio.name}: {result.value:.2f}")
    return results


def table(results: Iterable[Result]) -> str:
    """Draw the results."""
    lines = [
        "| | compared | ours | theirs | unit | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        ours, theirs = (statistics.median(each) for each in (result.ours, result.theirs))
        ratio = result.ratio
        lines.append(
            f"| {ratio.key} | {ratio.name} | {ours:,.0f} | {theirs:,.0f} | {ratio.unit} "
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
