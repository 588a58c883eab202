"""How far each group has read each queue: consumerOffset.json, written every 5 s.

A group's progress is whatever its clients commit last; going back is allowed (that is how
a reset works). A reset asked for by an administrator is kept in a table of its own until a
pull delivers it; until then commits of that queue are refused.

Source: ConsumerOffsetManager.java (5.4.0).
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.runtime.clock import Clock

NO_OFFSET: Final = -1
MAX_PAIRS: Final = 200_000
"""Pairs of topic and group with progress; Apache knows no bound."""
MAX_QUEUES: Final = 65_536
"""Queues of one pair."""


class ConsumerOffsets:
    """Committed offsets by (topic, group, queue); safe from any thread.

    It is also the background service that writes the file: see `step`.
    """

    name = "ConsumerOffsets"

    def __init__(self, config: BrokerConfig, file: JsonDocument, clock: Clock) -> None:
        self._config = config
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._version = DataVersion(clock.time_ms())
        self._version_step = config.consumer_offset_update_version_step
        self._commits = 0
        self._dirty = False
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str], dict[int, int]] = {}

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings (how often the version counts up)."""
        self._version_step = config.consumer_offset_update_version_step

    def load(self) -> None:
        """Read consumerOffset.json."""
        value = as_table(self._file.load())
        with self._lock:
            for key, queues in as_table(value.get("offsetTable")).items():
                topic, separator, group = key.partition("@")
                if separator:
                    self._table[topic, group] = {
                        as_int(queue, 0): as_int(offset, 0)
                        for queue, offset in as_table(queues).items()
                    }
            self._version.load(value.get("dataVersion"))

    def step(self, now_ms: int) -> int:
        """Write the file when something changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            self.persist()
        return now_ms + self._config.flush_consumer_offset_interval

    def persist(self) -> None:
        """Write consumerOffset.json.

        Raises:
            DiskFullError: it did not fit; the old file is untouched, the next step tries again.
        """
        with self._lock:
            self._dirty = False
            value = self._to_json()
        try:
            self._file.save(value)
        except BaseException:
            self._dirty = True
            raise

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Remember how far a group has consumed a queue; any offset is accepted.

        Returns:
            False when the group has committed `MAX_QUEUES` other queues of the topic, or there
            are `MAX_PAIRS` pairs of topic and group: it is not remembered then.
        """
        key = (topic, group)
        with self._lock:
            queues = self._table.get(key)
            if queues is None:
                if len(self._table) >= MAX_PAIRS:
                    return False
                queues = self._table[key] = {}
            if queue_id not in queues and len(queues) >= MAX_QUEUES:
                return False
            queues[queue_id] = offset
            self._dirty = True
            self._commits += 1
            if self._commits % self._version_step == 0:
                self._version.bump(self._clock)
        return True

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Remember how far a group has pulled a queue (for statistics only)."""
        queues = self._pulled.get((topic, group))
        if queues is None:
            with self._lock:
                if len(self._pulled) >= MAX_PAIRS:
                    return
                queues = self._pulled.setdefault((topic, group), {})
        if queue_id in queues or len(queues) < MAX_QUEUES:
            queues[queue_id] = offset

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed (or just reset) offset, `NO_OFFSET` when there is none."""
        key = (topic, group)
        if self._resets:
            wanted = self._resets.get(key, {}).get(queue_id)
            if wanted is not None:
                return wanted
        return self._table.get(key, {}).get(queue_id, NO_OFFSET)

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """The offset that the group pulled last, `NO_OFFSET` when it never did."""
        return self._pulled.get((topic, group), {}).get(queue_id, NO_OFFSET)

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets of every queue of a topic; empty when there are none."""
        return dict(self._table.get((topic, group), {}))

    def topics_of_group(self, group: str) -> set[str]:
        """Topics that the group has committed an offset of."""
        with self._lock:
            return {topic for topic, owner in self._table if owner == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups that have committed an offset of the topic."""
        with self._lock:
            return {group for name, group in self._table if name == topic}

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy the offsets of a topic from one group to another."""
        with self._lock:
            offsets = self._table.get((topic, source_group))
            if offsets is not None:
                self._table[topic, target_group] = dict(offsets)
                self._dirty = True

    def remove_group(self, group: str) -> None:
        """Forget a group."""
        self._remove_where(lambda _, owner: owner == group)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic."""
        self._remove_where(lambda name, _: name == topic)

    def remove(self, group: str, topic: str) -> None:
        """Forget one group's progress in one topic."""
        self._remove_where(lambda name, owner: name == topic and owner == group)

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep a wished offset for the next pull; commits are refused until then."""
        key = (topic, group)
        with self._lock:
            self._resets.setdefault(key, {})[queue_id] = offset
            committed = self._table.get(key)
            if committed is not None:
                committed[queue_id] = offset
                self._dirty = True

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of this queue waits to be delivered."""
        return bool(self._resets) and queue_id in self._resets.get((topic, group), ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Deliver a waiting reset: its offset, once; None when there is none."""
        if not self._resets:
            return None
        key = (topic, group)
        with self._lock:
            queues = self._resets.get(key)
            if queues is None:
                return None
            offset = queues.pop(queue_id, None)
            if not queues:
                del self._resets[key]
        return offset

    @property
    def data_version(self) -> dict[str, int]:
        """The table's DataVersion as JSON."""
        return self._version.to_json()

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOffset.json, which is also the body of request 43."""
        with self._lock:
            return self._to_json()

    def _to_json(self) -> dict[str, Any]:
        topics_by_group: dict[str, list[str]] = {}
        for topic, group in self._table:
            topics_by_group.setdefault(group, []).append(topic)
        return {
            "dataVersion": self._version.to_json(),
            "groupTopicMap": topics_by_group,
            "offsetTable": {
                f"{topic}@{group}": dict(queues) for (topic, group), queues in self._table.items()
            },
        }

    def _remove_where(self, matches: Callable[[str, str], bool]) -> None:
        with self._lock:
            for table in (self._table, self._pulled, self._resets):
                for key in [key for key in table if matches(*key)]:
                    del table[key]
                    self._dirty = True
