"""Buffer of message counts, forwarded to the statistics once per second.

The statistics keep windows and totals under several locks. The hot paths add a few numbers under
one lock instead.
"""

import threading
from collections.abc import Callable, Iterable

from rocketpy.broker.stats.broker_stats import BrokerStats


class MessageCounter:
    """Buffers counts by topic and group; as a service, forwards them and then takes samples.

    A message may be counted after another thread deleted its topic or group. That would create
    their counters again, so counts of deleted names enter the totals only.

    Args:
        stats: the statistics. They forward the buffer before they remove a topic or a group, as
            later forwarding would create its counters again.
        topic_exists: returns whether a topic exists; a topic is deleted before its counters.
        group_exists: likewise for groups.
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
        """Count stored messages; on any thread."""
        with self._lock:
            entry = self._stored.get(topic)
            if entry is None:
                self._stored[topic] = [count, size_bytes]
            else:
                entry[0] += count
                entry[1] += size_bytes

    def inc_get(self, group: str, topic: str, count: int, size_bytes: int, times: int = 1) -> None:
        """Count messages that requests, usually one, delivered to a group; on any thread."""
        with self._lock:
            entry = self._read.get((group, topic))
            if entry is None:
                self._read[group, topic] = [count, size_bytes, times]
            else:
                entry[0] += count
                entry[1] += size_bytes
                entry[2] += times

    def hand_on(self) -> None:
        """Forward the buffered counts to the statistics; complete on return."""
        # A second lock: a removal must wait for counts that another thread is forwarding.
        with self._hand_on_lock:
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
        """Forward, then sample; see `rocketpy.runtime.service.Service.step`."""
        self.hand_on()
        return self._stats.step(now_ms)
