"""Counters by key, sampled into minute, hour and day rings.

Apache has separate items for the number and the size of the same event; here one `Counter` has
both, so that the hot path looks up one key. Adds and samples are made under the lock of the set,
because a lost update would make a total wrong for ever.

Source: `org.apache.rocketmq.common.stats.StatsItem` and `StatsItemSet` (5.4.0).
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

SECOND_SAMPLE_MS: Final = 10_000
MINUTE_SAMPLE_MS: Final = 600_000
HOUR_SAMPLE_MS: Final = 3_600_000
MINUTE_RING: Final = 7
HOUR_RING: Final = 7
DAY_RING: Final = 25
MAX_KEYS: Final = 100_000
"""Bound on the keys of one set, which contain names chosen by clients."""

Field = Literal["count", "size"]
_Sample = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class StatsSnapshot:
    """Figures of one window: `sum` in total, `tps` per second, `avgpt` per event."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@dataclass(frozen=True, slots=True)
class StatsData:
    """The three windows of one counter, as in the response to `VIEW_BROKER_STATS_DATA`."""

    minute: StatsSnapshot
    hour: StatsSnapshot
    day: StatsSnapshot


class Counter:
    """Running totals of one key and their samples.

    `times` counts events (requests), `count` messages, `size_bytes` bytes (or, for a latency,
    milliseconds).
    """

    __slots__ = ("count", "day", "hour", "minute", "size_bytes", "times", "used_ms")

    def __init__(self) -> None:
        self.times: int = 0
        self.count: int = 0
        self.size_bytes: int = 0
        self.used_ms: int = 0
        self.minute: deque[_Sample] = deque(maxlen=MINUTE_RING)
        self.hour: deque[_Sample] = deque(maxlen=HOUR_RING)
        self.day: deque[_Sample] = deque(maxlen=DAY_RING)

    def sample(self, ring: deque[_Sample], period_ms: int, now_ms: int) -> None:
        """Append the totals to `ring`; the first sample starts from zero one period ago."""
        if not ring:
            ring.append((now_ms - period_ms, 0, 0, 0))
        ring.append((now_ms, self.times, self.count, self.size_bytes))

    def data(self, field: Field) -> StatsData:
        """Return the three windows of `count` or `size`."""
        at = 2 if field == "count" else 3
        return StatsData(_window(self.minute, at), _window(self.hour, at), _window(self.day, at))


def _window(ring: deque[_Sample], at: int) -> StatsSnapshot:
    if not ring:
        return StatsSnapshot()
    first, last = ring[0], ring[-1]
    total = last[at] - first[at]
    elapsed_ms = last[0] - first[0]
    times = last[1] - first[1]
    return StatsSnapshot(
        sum=total,
        tps=total * 1000.0 / elapsed_ms if elapsed_ms > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


class CounterSet:
    """Counters of one kind of event.

    Args:
        max_keys: maximal number of keys. Events of further keys are not counted here (totals kept
            elsewhere include them), so that names made up by clients cannot fill the memory.
    """

    __slots__ = ("_counters", "_lock", "_max_keys")

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._counters: dict[str, Counter] = {}
        self._lock = threading.Lock()
        self._max_keys = max_keys

    def add(self, key: str, count: int, size_bytes: int = 0, times: int = 1) -> None:
        """Count events, usually one, with `count` messages and `size_bytes` bytes in total."""
        with self._lock:
            counter = self._counters.get(key)
            if counter is None:
                if len(self._counters) >= self._max_keys:
                    return
                counter = self._counters[key] = Counter()
            counter.times += times
            counter.count += count
            counter.size_bytes += size_bytes

    def data(self, key: str, field: Field) -> StatsData | None:
        """Return the windows of a key, or None when it was never counted."""
        with self._lock:
            counter = self._counters.get(key)
            return None if counter is None else counter.data(field)

    def totals(self, key: str) -> tuple[int, int]:
        """Return the messages and bytes counted for a key since the start."""
        with self._lock:
            counter = self._counters.get(key)
            return (0, 0) if counter is None else (counter.count, counter.size_bytes)

    def keys(self) -> list[str]:
        """Return all counted keys."""
        with self._lock:
            return list(self._counters)

    def sample(self, now_ms: int, *, minute: bool, hour: bool, day: bool) -> None:
        """Take the samples that are due at `now_ms` (monotonic)."""
        with self._lock:
            for counter in self._counters.values():
                if minute:
                    counter.sample(counter.minute, SECOND_SAMPLE_MS, now_ms)
                if hour:
                    counter.sample(counter.hour, MINUTE_SAMPLE_MS, now_ms)
                if day:
                    counter.sample(counter.day, HOUR_SAMPLE_MS, now_ms)

    def remove(self, keys: Iterable[str]) -> None:
        """Remove keys."""
        with self._lock:
            for key in keys:
                self._counters.pop(key, None)

    def remove_if(self, matches: Callable[[str], bool]) -> None:
        """Remove the keys for which `matches` is true."""
        with self._lock:
            for key in [key for key in self._counters if matches(key)]:
                del self._counters[key]
