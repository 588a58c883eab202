"""Statistics of the store, for GET_BROKER_RUNTIME_INFO and for operators.

Counting costs a few additions a put; rates are computed from samples taken every second.

Source: StoreStatsService (5.4.0).
"""

import threading
from collections import deque
from typing import Final, NamedTuple

from rocketpy.runtime.clock import Clock

_BUCKETS: Final = (
    (0, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1_000, "[500ms~1s]"),
    (2_000, "[1~2s]"),
    (3_000, "[2~3s]"),
    (4_000, "[3~4s]"),
    (5_000, "[4~5s]"),
    (10_000, "[5~10s]"),
)
_LAST_BUCKET: Final = "[10s~]"
_WINDOWS_S: Final = (10, 60, 600)


class _Sample(NamedTuple):
    time_ms: int
    put: int
    get_found: int
    get_missed: int
    transferred: int


class StoreStats:
    """Counters of one store. `put_*` change under the append lock, the others under a lock here.

    Attributes:
        put_count: messages put.
        put_bytes: bytes of their records.
        put_failed_count: rejected or failed puts.
        put_max_ms: longest put.
        put_buckets: puts by duration, see `put_distribution`.
        get_found_count: reads that found messages.
        get_missed_count: reads that found none.
        transferred_count: messages read.
        get_max_ms: longest read.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._started_ms = clock.monotonic_ms()
        self._samples: deque[_Sample] = deque(maxlen=_WINDOWS_S[-1] + 1)
        self.put_count = 0
        self.put_bytes = 0
        self.put_failed_count: int = 0
        self.put_max_ms: int = 0
        self.put_buckets: list[int] = [0] * (len(_BUCKETS) + 1)
        self.get_found_count: int = 0
        self.get_missed_count: int = 0
        self.transferred_count: int = 0
        self.get_max_ms: int = 0
        self.sample()

    def put_failed(self) -> None:
        """Count a rejected or failed put."""
        with self._mutex:
            self.put_failed_count += 1

    def put_took(self, elapsed_ms: int) -> None:
        """Count the duration of a put; called for puts of one millisecond or more."""
        with self._mutex:
            self.put_max_ms = max(self.put_max_ms, elapsed_ms)
            for index, (limit_ms, _) in enumerate(_BUCKETS):
                if elapsed_ms <= limit_ms:
                    self.put_buckets[index] += 1
                    return
            self.put_buckets[-1] += 1

    def got(self, count: int, elapsed_ms: int) -> None:
        """Count a read that returned some messages."""
        self.got_many(count > 0, count == 0, count, elapsed_ms)

    def got_many(self, found: int, missed: int, count: int, elapsed_ms: int) -> None:
        """Count several reads with an upper bound of their duration."""
        with self._mutex:
            self.get_found_count += found
            self.get_missed_count += missed
            self.transferred_count += count
            if elapsed_ms > self.get_max_ms:  # noqa: PLR1730 - quicker
                self.get_max_ms = elapsed_ms

    def sample(self) -> None:
        """Take a sample of the counters."""
        self._samples.append(
            _Sample(
                self._clock.monotonic_ms(),
                self.put_count,
                self.get_found_count,
                self.get_missed_count,
                self.transferred_count,
            )
        )

    def put_distribution(self) -> dict[str, int]:
        """Return the number of puts by duration, with Apache's names for the ranges."""
        slow = sum(self.put_buckets)
        counts = dict(zip((name for _, name in _BUCKETS), self.put_buckets, strict=False))
        counts["[<=0ms]"] += max(0, self.put_count - slow)
        counts[_LAST_BUCKET] = self.put_buckets[-1]
        return counts

    def rates(self, *fields: str) -> str:
        """Return "10s 60s 600s" rates of counters of `_Sample`, each per second."""
        newest = self._samples[-1]
        texts = []
        for window_s in _WINDOWS_S:
            oldest = self._samples[max(0, len(self._samples) - 1 - window_s)]
            elapsed_ms = newest.time_ms - oldest.time_ms
            change = sum(getattr(newest, each) - getattr(oldest, each) for each in fields)
            texts.append(str(change * 1_000 / elapsed_ms if elapsed_ms > 0 else 0.0))
        return " ".join(texts)

    def runtime_info(self) -> dict[str, str]:
        """Return the store's part of the broker's runtime table."""
        average = self.put_bytes / self.put_count if self.put_count else 0.0
        spans = " ".join(f"{name}:{count}" for name, count in self.put_distribution().items())
        return {
            "runtime": self._uptime(),
            "putMessageEntireTimeMax": str(self.put_max_ms),
            "putMessageTimesTotal": str(self.put_count),
            "putMessageFailedTimes": str(self.put_failed_count),
            "putMessageSizeTotal": str(self.put_bytes),
            "putMessageDistributeTime": spans,
            "putMessageAverageSize": str(average),
            "getMessageEntireTimeMax": str(self.get_max_ms),
            "dispatchMaxBuffer": "0",
            "putTps": self.rates("put"),
            "getFoundTps": self.rates("get_found"),
            "getMissTps": self.rates("get_missed"),
            "getTotalTps": self.rates("get_found", "get_missed"),
            "getTransferredTps": self.rates("transferred"),
            "putLatency99": str(self._percentile_ms(0.99)),
            "putLatency999": str(self._percentile_ms(0.999)),
        }

    def _percentile_ms(self, part: float) -> int:
        left = self.put_count * part
        for limit_ms, name in _BUCKETS:
            left -= self.put_distribution()[name]
            if left <= 0:
                return limit_ms
        return self.put_max_ms

    def _uptime(self) -> str:
        seconds = (self._clock.monotonic_ms() - self._started_ms) // 1_000
        days, seconds = divmod(seconds, 86_400)
        hours, seconds = divmod(seconds, 3_600)
        minutes, seconds = divmod(seconds, 60)
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


class SampleService:
    """Service that takes a sample every second."""

    name: Final = "StoreStatsService"

    def __init__(self, stats: StoreStats) -> None:
        self._stats = stats

    def step(self, now_ms: int) -> int:
        """Take a sample; see `rocketpy.runtime.service.Service.step`."""
        self._stats.sample()
        return now_ms + 1_000
