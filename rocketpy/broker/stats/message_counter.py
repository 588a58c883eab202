"""Counts of messages on their way to the statistics: cheap to add, handed on once a second.

The statistics keep windows and totals under several locks; who stores or hands out messages adds a
few numbers under one.
"""

import threading
from collections.abc import Callable, Iterable

from rocketpy.broker.stats.broker_stats import BrokerStats


class MessageCounter:
    """Gathers counts by topic, and by group. As a service it hands them on, then has samples taken.

    Who stores or hands out a message may count it after another thread deleted its topic or group.
    That would bring back their counters, so what is gone is in the totals only.

    Args:
        stats: gets them, also before it forgets a topic or a group: what is handed on later would
            bring it back.
        topic_exists: whether there is a topic; one that is deleted goes before its counters do.
        group_exists: the same of a group.
    """

    name = "BrokerStats"

    def __init__(
        self,
        stats: BrokerStats,
        *,
        topic_exists: Callable[[str], bool] = lambda _topic: True,
        group_exists: Callable[[str], bool] = lambda _group: True,
    ) -> None:
        self._stats = stats
        self._topic_exists = topic_exists
        self._group_exists = group_exists
        self._lock = threading.Lock()
        self._hand_on_lock = threading.Lock()
        self._stored: dict[str, list[int]] = {}
        self._read: dict[tuple[str, str], list[int]] = {}
        stats.before_removal = self.hand_on

    def add(self, topic: str, count: int, size_bytes: int) -> None:
        """Count stored messages; any thread."""
        with self._lock:
            entry = self._stored.get(topic)
            if entry is None:
                self._stored[topic] = [count, size_bytes]
            else:
                entry[0] += count
                entry[1] += size_bytes

    def inc_get(self, group: str, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count messages that requests, one as a rule, handed to a group; any thread."""
        with self._lock:
            entry = self._read.get((group, topic))
            if entry is None:
                self._read[group, topic] = [count, size_bytes, times]
            else:
                entry[0] += count
                entry[1] += size_bytes
                entry[2] += times

    def hand_on(self) -> None:
        """Give the statistics what was gathered; all of it when this returns."""
        with self._hand_on_lock:  # a removal waits for what another thread has in hand
            with self._lock:
                stored, self._stored = self._stored, {}
                read, self._read = self._read, {}
            for topic, (count, size_bytes) in stored.items():
                self._stats.inc_topic_put(topic, count, size_bytes)
                self._stats.inc_broker_put(count)
            for (group, topic), (count, size_bytes, times) in read.items():
                self._stats.inc_get(group, topic, count, size_bytes, times)
            self._forget_gone(
                {*stored, *(topic for _, topic in read)}, {group for group, _ in read}
            )

    def _forget_gone(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        for topic in topics:
            if not self._topic_exists(topic):
                self._stats.forget_topic(topic)
        for group in groups:
            if not self._group_exists(group):
                self._stats.forget_group(group)

    def step(self, now_ms: int) -> int:
        """Hand on, then sample; see `rocketpy.runtime.service.Service.step`."""
        self.hand_on()
        return self._stats.step(now_ms)
