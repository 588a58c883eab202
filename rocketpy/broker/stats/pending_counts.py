"""How many messages of each topic wait for something, in a file of Apache's form.

    {"dataVersion": {...}, "timingCount": {"T": {"count": 3, "timeStamp": 1700000000000}}}

Written every 10 s when something changed, and at the end. A kill costs what was counted since;
numbers never fall below 0.

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
    """The number of one topic.

    Attributes:
        count: messages.
        changed_ms: wall time of the last change.
    """

    __slots__ = ("changed_ms", "count")

    def __init__(self, count: int, changed_ms: int) -> None:
        self.count: int = count
        self.changed_ms: int = changed_ms


class PendingCounts:
    """Numbers of messages by topic; safe from any thread.

    It is also the background service that writes them: see `step`. It keeps a number for each topic
    that the broker has, no more.

    Args:
        name: of the service.
        key: of the numbers in the file.
        file: where they are kept.
        topic_exists: whether the broker has a topic; what waits for others is forgotten.
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
        """Count messages of a topic that wait from now on, or (below 0) wait no more."""
        with self._lock:
            found = self._counts.get(topic)
            if found is None:
                found = self._counts[topic] = TopicCount(0, 0)
            found.count = max(0, found.count + number)
            found.changed_ms = self._clock.time_ms()
            self._version.bump(self._clock)

    def of(self, topic: str) -> int:
        """How many messages of a topic wait."""
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
        """Write the file when it is time; see `rocketpy.runtime.service.Service.step`."""
        if self._next_ms is not None and now_ms >= self._next_ms:
            try:
                self.persist()
            except (StoreError, OSError) as error:
                _log.warning("numbers of messages are not written", of=self._key, why=str(error))
            self._next_ms = None
        if self._next_ms is None:
            self._next_ms = now_ms + WRITE_INTERVAL_MS
        return self._next_ms

    def persist(self) -> None:
        """Write the file, if anything changed.

        Raises:
            StoreError: it cannot be written; the old file is untouched.
        """
        counter = self._version.counter
        if counter != self._written:
            self._file.save(self.to_json())
            self._written = counter

    def to_json(self) -> dict[str, Any]:
        """The content of the file."""
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
