"""Counts of stored messages on their way to the statistics: cheap to add, handed on once a second.

The statistics keep windows and totals under several locks; a send adds two numbers under one.
"""

import threading

from rocketpy.broker.stats import BrokerStats


class PutCounter:
    """Gathers counts by topic. As a service it hands them on, then lets the statistics sample."""

    name = "BrokerStats"

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats
        self._lock = threading.Lock()
        self._topics: dict[str, list[int]] = {}

    def add(self, topic: str, count: int, size_bytes: int) -> None:
        """Count stored messages; any thread."""
        with self._lock:
            entry = self._topics.get(topic)
            if entry is None:
                self._topics[topic] = [count, size_bytes]
            else:
                entry[0] += count
                entry[1] += size_bytes

    def hand_on(self) -> None:
        """Give the statistics what was gathered."""
        with self._lock:
            gathered, self._topics = self._topics, {}
        for topic, (count, size_bytes) in gathered.items():
            self._stats.inc_topic_put(topic, count, size_bytes)
            self._stats.inc_broker_put(count)

    def step(self, now_ms: int) -> int:
        """Hand on, then sample; see `rocketpy.runtime.service.Service.step`."""
        self.hand_on()
        return self._stats.step(now_ms)
