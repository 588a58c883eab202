"""Rates of the last 10, 60 and 600 seconds, for `putTps` and its kin.

Source: `org.apache.rocketmq.store.StoreStatsService` (5.4.0): a sample a second, 601 kept.
"""

from collections import deque
from typing import Final

__all__ = ["RateRing", "format_rates"]

SAMPLE_MS: Final = 1_000
WINDOWS_S: Final = (10, 60, 600)


class RateRing:
    """A running total, sampled once a second."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=WINDOWS_S[-1] + 1)

    def sample(self, now_ms: int, total: int) -> None:
        """Note `total` at `now_ms` (monotonic)."""
        self._samples.append((now_ms, total))

    def rates(self) -> tuple[float, float, float]:
        """Events a second over the last 10, 60 and 600 samples (as many as there are)."""
        samples = self._samples
        if len(samples) < 2:
            return (0.0, 0.0, 0.0)
        last_ms, last_total = samples[-1]
        found = []
        for window in WINDOWS_S:
            first_ms, first_total = samples[max(0, len(samples) - 1 - window)]
            elapsed_ms = last_ms - first_ms
            found.append(
                (last_total - first_total) * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0
            )
        return (found[0], found[1], found[2])


def format_rates(rates: tuple[float, float, float]) -> str:
    """The three numbers in one string, blank between them, as admin tools split it."""
    return " ".join(repr(float(rate)) for rate in rates)
