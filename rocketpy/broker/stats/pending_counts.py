"""Numbers of waiting messages by topic, in a file of Apache's format.

    {"dataVersion": {...}, "timingCount": {"T": {"count": 3, "timeStamp": 1700000000000}}}

The file is written every 10 s if a number changed, and at the end. A kill loses the changes since
the last write, so a number may be too high or too low; it never falls below 0.

Source: TimerMetrics, TransactionMetrics, TransactionMetricsFlushService (5.4.0).
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import structlog

from rocketpy.broker.metadata.json_document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.errors import StoreError
from rocketpy.runtime.clock import Clock

WRITE_INTERVAL_MS: Final = 10_000

_log = structlog.get_logger(__name__)


class TopicCount:
    """Number of waiting messages of one topic.

    Attributes:
        count: number of messages.
        changed_ms: wall time of the last change.
    """

    __slots__ = ("changed_ms", "count")

    def __init__(self, count: int, changed_ms: int) -> None:
        self.count: int = count
        self.changed_ms: int = changed_ms


class PendingCounts:
    """Numbers of messages by topic; safe from any thread.

    It is also the background service that writes them; see `step`. It has a number for each topic
    of the broker, and no more.

    Args:
        name: name of the service.
        key: key of the numbers in the file.
        file: the file.
        topic_exists: returns whether a topic exists; numbers of other topics are dropped.
        clock: time.
    """

    def __init__(
        self,
        name: str,
        key: str,
        file: JsonDocument,
        *,
        topic_exists: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self.name = name
        self._key = key
        self._file = file
        self._topic_exists = topic_exists
        self._clock = clock
        self._lock = threading.Lock()
        self._version = DataVersion(clock.time_ms())
        self._counts: dict[str, TopicCount] = {}
        self._written = self._version.counter
        self._next_ms: int | None = None

    def add(self, topic: str, number: int) -> None:
        """Add a number of messages that wait from now on, or (below 0) no longer wait."""
        with self._lock:
            found = self._counts.get(topic)
            if found is None:
                found = self._counts[topic] = TopicCount(0, 0)
            found.count = max(0, found.count + number)
            found.changed_ms = self._clock.time_ms()
            self._version.bump(self._clock)

    def of(self, topic: str) -> int:
        """Return the number of waiting messages of a topic."""
        found = self._counts.get(topic)
        return 0 if found is None else found.count

    def load(self) -> None:
        """Read the file."""
        document = as_table(self._file.load())
        with self._lock:
            for topic, entry in as_table(document.get(self._key)).items():
                numbers = as_table(entry)
                count = max(0, as_int(numbers.get("count"), 0))
                self._counts[topic] = TopicCount(count, as_int(numbers.get("timeStamp"), 0))
            self._version.load(document.get("dataVersion"))
            self._written = self._version.counter

    def step(self, now_ms: int) -> int:
        """Write the file when it is due; see `rocketpy.runtime.service.Service.step`."""
        if self._next_ms is not None and now_ms >= self._next_ms:
            try:
                self.persist()
            except (StoreError, OSError) as error:
                _log.warning("message counts not written", table=self._key, error=str(error))
            self._next_ms = None
        if self._next_ms is None:
            self._next_ms = now_ms + WRITE_INTERVAL_MS
        return self._next_ms

    def persist(self) -> None:
        """Write the file if a number changed.

        Raises:
            StoreError: it cannot be written; the old file is unchanged.
        """
        counter = self._version.counter
        if counter != self._written:
            self._file.save(self.to_json())
            self._written = counter

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        with self._lock:
            for topic in [each for each in self._counts if not self._topic_exists(each)]:
                del self._counts[topic]
            return {
                "dataVersion": self._version.to_json(),
                self._key: {
                    topic: {"count": found.count, "timeStamp": found.changed_ms}
                    for topic, found in self._counts.items()
                },
            }
