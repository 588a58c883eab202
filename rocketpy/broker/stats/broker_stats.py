"""Statistics of the broker: messages and bytes by topic and by group, and daily totals.

The `inc_*` methods are called once per request on any business thread; they cost one short lock and
a few integer additions. `step` takes samples: minute windows every 10 s, hour windows every 10 min,
day windows every hour.

Source: `org.apache.rocketmq.store.stats.BrokerStatsManager` and `BrokerStats` (5.4.0).
"""

import functools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketpy.broker.stats.counters import (
    HOUR_SAMPLE_MS,
    MINUTE_SAMPLE_MS,
    SECOND_SAMPLE_MS,
    CounterSet,
    Field,
    StatsData,
)
from rocketpy.runtime.clock import Clock

STEP_MS: Final = 1_000
# A step that is early by less than this still takes the sample, so that timer jitter skips no
# period.
SLACK_MS: Final = 100
_MAX_NAMES: Final = 1_024
"""Size of the cache of topic names; the most recently used ones are the busy ones."""

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
GROUP_GET_LATENCY: Final = "GROUP_GET_LATENCY"
SNDBCK_PUT_NUMS: Final = "SNDBCK_PUT_NUMS"
DLQ_PUT_NUMS: Final = "DLQ_PUT_NUMS"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"


@dataclass(frozen=True, slots=True)
class DayTotals:
    """Messages stored and delivered since the start, without system topics.

    Each as of now, of the last midnight, and of the one before.
    """

    put_now: int
    put_today_morning: int
    put_yesterday_morning: int
    get_now: int
    get_today_morning: int
    get_yesterday_morning: int


class BrokerStats:
    """All counters of one broker; safe from any thread.

    Args:
        clock: wall time for midnight, monotonic time for the windows.
        cluster_name: key of the broker-wide counters.
        is_system_topic: topics that daily totals leave out.

    Attributes:
        before_removal: called before counters of a topic or a group are removed; must forward
            buffered counts.
    """

    name = "broker-stats"

    def __init__(
        self,
        clock: Clock,
        *,
        cluster_name: str = "DefaultCluster",
        is_system_topic: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self.before_removal: Callable[[], None] = lambda: None
        self._clock = clock
        self._cluster_name = cluster_name
        # Needed for each read and send; whether a topic is a system topic never changes.
        self._is_system_topic = functools.lru_cache(_MAX_NAMES)(is_system_topic)
        self._lock = threading.Lock()
        self._topic_put = CounterSet()
        self._group_get = CounterSet()
        self._latency = CounterSet()
        self._send_back = CounterSet()
        self._dead_letter = CounterSet()
        self._broker_put = CounterSet()
        self._broker_get = CounterSet()
        self._sets = (
            self._topic_put,
            self._group_get,
            self._latency,
            self._send_back,
            self._dead_letter,
            self._broker_put,
            self._broker_get,
        )
        self._views: dict[str, tuple[CounterSet, Field]] = {
            TOPIC_PUT_NUMS: (self._topic_put, "count"),
            TOPIC_PUT_SIZE: (self._topic_put, "size"),
            GROUP_GET_NUMS: (self._group_get, "count"),
            GROUP_GET_SIZE: (self._group_get, "size"),
            GROUP_GET_LATENCY: (self._latency, "size"),
            SNDBCK_PUT_NUMS: (self._send_back, "count"),
            DLQ_PUT_NUMS: (self._dead_letter, "count"),
            BROKER_PUT_NUMS: (self._broker_put, "count"),
            BROKER_GET_NUMS: (self._broker_get, "count"),
        }
        self._put_user = 0
        self._get_user = 0
        self._put_marks = [0, 0]
        self._get_marks = [0, 0]
        self._day = _local_day(clock.time_ms())
        now_ms = clock.monotonic_ms()
        self._due_ms = {"minute": now_ms, "hour": now_ms, "day": now_ms}

    # ---- counting

    def inc_topic_put(self, topic: str, count: int, size_bytes: int) -> None:
        """Count messages of `size_bytes` bytes in total that one request stored in `topic`."""
        self._topic_put.add(topic, count, size_bytes)
        if not self._is_system_topic(topic):
            with self._lock:
                self._put_user += count

    def inc_broker_put(self, count: int) -> None:
        """Count messages that one request stored in any topic."""
        self._broker_put.add(self._cluster_name, count)

    def inc_get(self, group: str, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count messages that requests, usually one, delivered to `group`."""
        self._group_get.add(f"{topic}@{group}", count, size_bytes, times)
        self._broker_get.add(self._cluster_name, count, 0, times)
        if not self._is_system_topic(topic):
            with self._lock:
                self._get_user += count

    def inc_group_get_latency(self, group: str, topic: str, queue_id: int, latency_ms: int) -> None:
        """Record the age of the last delivered message."""
        self._latency.add(f"{queue_id}@{topic}@{group}", 1, latency_ms)

    def inc_send_back(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages that `group` returned for redelivery."""
        self._send_back.add(f"{topic}@{group}", count)

    def inc_dead_letter(self, group: str, topic: str, count: int = 1) -> None:
        """Count messages that became dead letters of `group`."""
        self._dead_letter.add(f"{topic}@{group}", count)

    # ---- reading

    def stats_data(self, name: str, key: str) -> StatsData | None:
        """Return the windows of a counter for a key; None when either does not exist."""
        view = self._views.get(name)
        return None if view is None else view[0].data(key, view[1])

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages per second that `group` took from `topic` in the last minute."""
        data = self._group_get.data(f"{topic}@{group}", "count")
        return 0.0 if data is None else data.minute.tps

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages per second that were stored in `topic` in the last minute."""
        data = self._topic_put.data(topic, "count")
        return 0.0 if data is None else data.minute.tps

    def day_totals(self) -> DayTotals:
        """Return the totals for the runtime information."""
        with self._lock:
            return DayTotals(
                put_now=self._put_user,
                put_today_morning=self._put_marks[0],
                put_yesterday_morning=self._put_marks[1],
                get_now=self._get_user,
                get_today_morning=self._get_marks[0],
                get_yesterday_morning=self._get_marks[1],
            )

    # ---- upkeep

    def remove_topic(self, topic: str) -> None:
        """Remove the counters of a deleted topic, with buffered counts."""
        self.before_removal()
        self.forget_topic(topic)

    def forget_topic(self, topic: str) -> None:
        """Remove the counters of a topic."""
        prefix, middle = f"{topic}@", f"@{topic}@"
        self._topic_put.remove([topic])
        for counters in (self._group_get, self._send_back, self._dead_letter):
            counters.remove_if(lambda key: key.startswith(prefix))
        self._latency.remove_if(lambda key: middle in key)

    def remove_group(self, group: str) -> None:
        """Remove the counters of a deleted group, with buffered counts."""
        self.before_removal()
        self.forget_group(group)

    def forget_group(self, group: str) -> None:
        """Remove the counters of a group."""
        suffix = f"@{group}"
        for counters in (self._group_get, self._send_back, self._dead_letter, self._latency):
            counters.remove_if(lambda key: key.endswith(suffix))

    def step(self, now_ms: int) -> int:
        """Take the samples that are due.

        Args:
            now_ms: monotonic time.

        Returns:
            When to call again, on the same clock.
        """
        with self._lock:
            today = _local_day(self._clock.time_ms())
            if today != self._day:
                self._day = today
                self._put_marks = [self._put_user, self._put_marks[0]]
                self._get_marks = [self._get_user, self._get_marks[0]]
        minute = self._take("minute", now_ms, SECOND_SAMPLE_MS)
        hour = self._take("hour", now_ms, MINUTE_SAMPLE_MS)
        day = self._take("day", now_ms, HOUR_SAMPLE_MS)
        if minute or hour or day:
            for counters in self._sets:
                counters.sample(now_ms, minute=minute, hour=hour, day=day)
        return now_ms + STEP_MS

    def _take(self, window: str, now_ms: int, period_ms: int) -> bool:
        if now_ms + SLACK_MS < self._due_ms[window]:
            return False
        self._due_ms[window] = now_ms + period_ms
        return True


def _local_day(time_ms: int) -> tuple[int, int]:
    """Return the year and the day of the year in the machine's time zone.

    A day of the statistics ends at local midnight.
    """
    local = time.localtime(time_ms // 1000)
    return local.tm_year, local.tm_yday
