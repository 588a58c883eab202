"""Figures of a run: counts and latencies in constant memory."""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Figures", "Latencies"]

_EXACT: Final = 128
_BITS: Final = 7
_HALF: Final = 64
_MIB: Final = 1 << 20
_PERIODS_MAX: Final = 2_000


class Latencies:
    """Histogram of latencies, in buckets that are at most 1/64 of their value wide.

    It has about 4,000 buckets at most, which suffices for a month in microseconds.

    Example:
        >>> latencies = Latencies()
        >>> latencies.add(100, 3)
        >>> latencies.percentile(0.5), latencies.count, latencies.largest
        (100, 3, 100)
    """

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count: int = 0
        self.largest: int = 0

    def add(self, value: int, count: int = 1) -> None:
        """Count a value `count` times; negative values count as 0."""
        value = max(0, value)
        shift = max(0, value.bit_length() - _BITS)
        bucket = shift * _HALF + (value >> shift)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += count
        self.largest = max(self.largest, value)

    def percentile(self, share: float) -> int:
        """Return a quantile, at most 1/64 too large; 0 without values."""
        wanted = max(1, -int(-share * self.count // 1))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(self.largest, _edges(bucket)[1])
        return self.largest

    def spread(self) -> list[tuple[int, int]]:
        """Return the upper end and the count of each power of two, without gaps."""
        counts: dict[int, int] = {}
        for bucket, count in self._buckets.items():
            power = max(0, _edges(bucket)[1].bit_length())
            counts[power] = counts.get(power, 0) + count
        if not counts:
            return []
        return [(1 << each, counts.get(each, 0)) for each in range(min(counts), max(counts) + 1)]


def _edges(bucket: int) -> tuple[int, int]:
    """Return the least and the largest value of a bucket."""
    if bucket < _EXACT:
        return bucket, bucket
    shift, mantissa = divmod(bucket - _HALF, _HALF)
    least = (mantissa + _HALF) << shift
    return least, least + (1 << shift) - 1


class Figures:
    """Figures of a run.

    Args:
        clock: seconds, for the length of the run.

    Attributes:
        latencies: in microseconds.
        failed: number of failed messages.
        failure: the first error.
        body_bytes: of successful messages.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.latencies: Latencies = Latencies()
        self.failed: int = 0
        self.failure: BaseException | None = None
        self.body_bytes: int = 0
        self._clock = clock
        self._began_s = clock()
        self._ended_s = self._began_s
        self._period_s = 0.1
        self._periods: list[int] = [0]

    @property
    def messages(self) -> int:
        """Number of successful messages."""
        return self.latencies.count

    @property
    def seconds(self) -> float:
        """Seconds from the start to the last added message, never 0."""
        return max(1e-9, self._ended_s - self._began_s)

    def begin(self) -> None:
        """Start the clock."""
        self._began_s = self._ended_s = self._clock()

    def add(self, time_us: int, body_bytes: int, count: int = 1) -> None:
        """Count messages that took a time together; `body_bytes` is their sum."""
        self.latencies.add(time_us, count)
        self.body_bytes += body_bytes
        self._ended_s = self._clock()
        period = int((self._ended_s - self._began_s) / self._period_s)
        while period >= _PERIODS_MAX:
            pairs = [*self._periods, 0]
            self._periods = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=False)]
            self._period_s *= 2
            period //= 2
        if period >= len(self._periods):
            self._periods += [0] * (period + 1 - len(self._periods))
        self._periods[period] += count

    def fail(self, error: BaseException, count: int = 1) -> None:
        """Count messages that failed."""
        self.failed += count
        self.failure = self.failure or error

    def rates(self, most: int) -> list[tuple[float, float]]:
        """Return messages a second over time, in at most `parts` equal parts.

        Returns:
            The end of each part, in seconds from the start, and its rate.
        """
        each = -(-len(self._periods) // most)
        found = []
        for at in range(0, len(self._periods), each):
            begin_s = at * self._period_s
            end_s = min((at + each) * self._period_s, max(self.seconds, begin_s + 1e-9))
            found.append((end_s, sum(self._periods[at : at + each]) / (end_s - begin_s)))
        return found

    def row(self) -> dict[str, object]:
        """Return the figures by their printed names."""
        at = self.latencies.percentile
        return {
            "messages": self.messages,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "messages_per_s": round(self.messages / self.seconds, 1),
            "mib_per_s": round(self.body_bytes / self.seconds / _MIB, 3),
            "p50_ms": at(0.5) / 1000,
            "p90_ms": at(0.9) / 1000,
            "p99_ms": at(0.99) / 1000,
            "p999_ms": at(0.999) / 1000,
            "max_ms": self.latencies.largest / 1000,
        }
