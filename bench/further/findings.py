"""Common parts of the further rows: findings with bounds, and the environment of a row."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.driver import Drivers
from bench.processes import Side

__all__ = ["Context", "Finding", "Further"]


@dataclass(frozen=True)
class Finding:
    """Measured number with its bound.

    Attributes:
        what: what it is.
        value: ours.
        unit: of both values.
        bound: what ours must not exceed, or reach where `at_least` is set.
        beside: Apache's, where it was measured in the same run.
        at_least: the bound is a least value.
    """

    what: str
    value: float
    unit: str
    bound: float | None = None
    beside: float | None = None
    at_least: bool = False

    @property
    def is_kept(self) -> bool | None:
        """Return whether the bound holds; None without one."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass
class Context:
    """Environment of a row.

    Attributes:
        scratch: for stores; emptied after each row.
        drivers: of the official Java client.
        scale: 1, or a part of it for a first look.
        rounds: how often what alternates is measured.
        seconds: how long one load lasts.
        heap: of Apache's broker.
        say: prints progress.
    """

    scratch: Path
    drivers: Drivers
    scale: float
    rounds: int
    seconds: int
    heap: str
    say: Callable[[str], None]

    def scaled(self, count: int, least: int = 1) -> int:
        """A count, less of it for a first look."""
        return max(least, int(count * self.scale))

    @contextmanager
    def sides(self, *starters: Callable[[], Side]) -> Iterator[list[Side]]:
        """Sides that run for a while; their directories are removed."""
        running: list[Side] = []
        try:
            for starter in starters:
                running.append(starter())  # noqa: PERF401 - those started so far are stopped
            yield running
        finally:
            for side in running:
                side.stop()
            for side in running:
                shutil.rmtree(side.home, ignore_errors=True)


@dataclass(frozen=True)
class Further:
    """Further row.

    Attributes:
        key: how it is named on the command line.
        name: shown in the table.
        run: measures it.
        minutes: about how long that takes.
    """

    key: str
    name: str
    run: Callable[[Context], list[Finding]]
    minutes: float
