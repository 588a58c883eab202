"""Progress of the delay levels: delayOffset.json, written every 10 s.

An offset enters the file after everything delivered before it is on disk, and in a group with a
controller on the replicas. A kill, a power cut or an election therefore loses no message; messages
delivered since the last write are delivered again.

Source: ScheduleMessageService (load, persist, correctDelayOffset) (5.4.0).
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from rocketpy.broker.metadata.json_document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.broker.system_topics.durable_progress import DurableProgress
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

_MAX_LEVEL: Final = 1 << 20  # a damaged file must not create a service for billions of levels


class DelayOffsets:
    """Progress of all levels; safe from any thread.

    It is also the background service that writes the file; see `step`.

    Args:
        file: delayOffset.json.
        clock: time.
        interval_ms: pause between two writes.
        version_step: number of deliveries that increment the version.
        kept_phy_offset: returns the end of the commit log that stays.
        flush_log: flushes the commit log before the last write.
    """

    name = "DelayOffsets"

    def __init__(
        self,
        file: JsonDocument,
        clock: Clock,
        *,
        interval_ms: int,
        version_step: int,
        kept_phy_offset: Callable[[], int],
        flush_log: Callable[[], object],
    ) -> None:
        self.interval_ms = interval_ms
        self.version_step = version_step
        self._file = file
        self._clock = clock
        self._kept = kept_phy_offset
        self._flush_log = flush_log
        self._lock = threading.Lock()
        self._version = DataVersion(clock.time_ms())
        self._updates = 0
        self._levels: dict[int, DurableProgress] = {}
        self._written: dict[int, int] = {}
        self._next_ms: int | None = None

    def load(self) -> None:
        """Read delayOffset.json."""
        value = as_table(self._file.load())
        with self._lock:
            for key, entry in as_table(value.get("offsetTable")).items():
                level, offset = as_int(key, 0), as_int(entry, -1)
                if not 1 <= level <= _MAX_LEVEL or offset < 0:
                    _log.error("delayOffset.json entry skipped", level=key, offset=entry)
                    continue
                self._levels[level] = DurableProgress(offset, self._kept)
                self._written[level] = offset
            self._version.load(value.get("dataVersion"))

    @property
    def levels(self) -> list[int]:
        """Levels that have an offset."""
        with self._lock:
            return sorted(self._levels)

    def of_level(self, level: int) -> DurableProgress:
        """Return the progress of a level; a new level starts at 0."""
        with self._lock:
            found = self._levels.get(level)
            if found is None:
                found = self._levels[level] = DurableProgress(0, self._kept)
            return found

    def follow(self, levels: Mapping[int, int]) -> None:
        """Take the offsets of the master, at a slave; none moves backwards.

        Args:
            levels: offsets by level; what was delivered before them is in this log.
        """
        for level, offset in levels.items():
            if 1 <= level <= _MAX_LEVEL and offset > self.of_level(level).position:
                self.of_level(level).reset(offset)

    def count(self, deliveries: int) -> None:
        """Count deliveries, from which the version is derived."""
        with self._lock:
            before, self._updates = self._updates, self._updates + deliveries
            if before // self.version_step != self._updates // self.version_step:
                self._version.bump(self._clock)

    def step(self, now_ms: int) -> int:
        """Write the file if an offset changed; see `rocketpy.runtime.service.Service.step`."""
        if self._next_ms is not None and now_ms >= self._next_ms:
            self._save()
            self._next_ms = None
        if self._next_ms is None:
            self._next_ms = now_ms + self.interval_ms
        return self._next_ms

    def persist(self) -> None:
        """Write the file at the end, with everything that was delivered.

        Raises:
            DiskFullError: the file did not fit; the old one is unchanged.
        """
        self._flush_log()
        self._save()

    def _save(self) -> None:
        offsets = self._durable()
        if offsets != self._written:
            self._file.save(self._content(offsets))
            self._written = offsets

    def _durable(self) -> dict[int, int]:
        with self._lock:
            levels = sorted(self._levels.items())
        return {level: progress.durable for level, progress in levels}

    def _content(self, offsets: dict[int, int]) -> dict[str, Any]:
        return {"dataVersion": self._version.to_json(), "offsetTable": offsets}

    def to_json(self) -> dict[str, Any]:
        """Return the content of delayOffset.json, which is also the body of request 45."""
        return self._content(self._durable())
