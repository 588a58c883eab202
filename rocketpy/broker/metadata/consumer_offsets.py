"""How far each group has read each queue: consumerOffset.json, written every 5 s.

A group's progress is whatever its clients commit last; going back is allowed (that is how
a reset works). A reset asked for by an administrator is kept in a table of its own until a
pull delivers it; until then commits of that queue are refused.

Each of the three tables (committed, pulled, resets) is bounded in the number of its offsets. Its
callers see to it that topics, groups and queues exist; what is deleted goes at once, on disk too:
a topic of the same name that is made later must not be read from where the old one ended.

Source: ConsumerOffsetManager.java (5.4.0).
"""

import threading
from collections.abc import Callable
from typing import Any, Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.errors import DiskFullError, StoreError
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

NO_OFFSET: Final = -1
MAX_OFFSETS: Final = 500_000
"""Offsets in each table; Apache knows no bound."""


class OffsetTable:
    """Offsets by topic and group, then queue; bounded. Locking is the caller's.

    Attributes:
        count: of offsets.
        max_count: of offsets.
        queues: the offsets.
    """

    __slots__ = ("count", "max_count", "queues")

    def __init__(self, max_count: int) -> None:
        self.max_count: int = max_count
        self.count: int = 0
        self.queues: dict[tuple[str, str], dict[int, int]] = {}

    def get(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Return an offset; None when there is none."""
        queues = self.queues.get(key)
        return None if queues is None else queues.get(queue_id)

    def put(self, key: tuple[str, str], queue_id: int, offset: int) -> bool:
        """Set an offset; False when it is a new one and there is no room."""
        queues = self.queues.get(key)
        if queues is None or queue_id not in queues:
            if self.count >= self.max_count:
                return False
            self.count += 1
            if queues is None:
                queues = self.queues[key] = {}
        queues[queue_id] = offset
        return True

    def load(self, key: tuple[str, str], offsets: dict[int, int]) -> None:
        """Take what a file holds, whatever the bound: nothing that was committed is dropped."""
        self.queues[key] = offsets
        self.count += len(offsets)

    def pop(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Remove an offset, and return it; None when there is none."""
        queues = self.queues.get(key)
        if queues is None or queue_id not in queues:
            return None
        self.count -= 1
        offset = queues.pop(queue_id)
        if not queues:
            del self.queues[key]
        return offset

    def remove_where(self, matches: Callable[[str, str], bool]) -> bool:
        """Remove pairs of topic and group; whether there were any."""
        gone = [key for key in self.queues if matches(*key)]
        for key in gone:
            self.count -= len(self.queues.pop(key))
        return bool(gone)


class ConsumerOffsets:
    """Committed offsets by (topic, group, queue); safe from any thread.

    It is also the background service that writes the file: see `step`.

    Args:
        config: the broker's settings.
        file: consumerOffset.json.
        clock: time.
        max_offsets: how many offsets each of its tables keeps.

    Attributes:
        resets: those that wait to be delivered; its count may be read without a lock.
        topic_exists: says whether there is a topic; must not block. A topic that is deleted goes
            first and then its offsets, so that nobody who found it there before leaves one behind.
        on_reset: each is called with group, topic and queue id once an offset waits there.
    """

    name = "ConsumerOffsets"

    def __init__(
        self,
        config: BrokerConfig,
        file: JsonDocument,
        clock: Clock,
        max_offsets: int = MAX_OFFSETS,
    ) -> None:
        self._config = config
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._version = DataVersion(clock.time_ms())
        self._version_step = config.consumer_offset_update_version_step
        self._commits = 0
        self._dirty = False
        # One writer of the file at a time, so that no older content replaces a newer one.
        self._file_lock = threading.Lock()
        self._table = OffsetTable(max_offsets)
        self._pulled = OffsetTable(max_offsets)
        self.resets: OffsetTable = OffsetTable(max_offsets)
        self.topic_exists: Callable[[str], bool] = lambda _topic: True
        self.on_reset: list[Callable[[str, str, int], None]] = []

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings (how often the version counts up)."""
        self._version_step = config.consumer_offset_update_version_step

    def load(self) -> None:
        """Read consumerOffset.json."""
        value = as_table(self._file.load())
        with self._lock:
            for key, queues in as_table(value.get("offsetTable")).items():
                topic, separator, group = key.partition("@")
                if not separator:
                    continue
                offsets = {
                    as_int(queue, 0): as_int(offset, 0)
                    for queue, offset in as_table(queues).items()
                }
                self._table.load((topic, group), offsets)
            self._version.load(value.get("dataVersion"))

    def step(self, now_ms: int) -> int:
        """Write the file when something changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            try:
                self.persist()
            except (StoreError, OSError) as error:
                _log.warning("consumer offsets cannot be written now", error=str(error))
        return now_ms + self._config.flush_consumer_offset_interval

    def persist(self) -> None:
        """Write consumerOffset.json.

        Raises:
            DiskFullError: it did not fit; the old file is untouched, the next step tries again.
        """
        with self._file_lock:
            self._dirty = False
            try:
                self._file.save(self.to_json())
            except BaseException:
                self._dirty = True
                raise

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Remember how far a group has consumed a queue.

        A negative offset is no progress: Apache stores it and then answers as if there were none.
        Here it changes nothing, so that it cannot undo what was committed before.

        Nor is there anything to remember of a topic that is gone.

        Returns:
            False when there is no room for another offset: it is not remembered then.
        """
        if offset < 0:
            return True
        with self._lock:
            return self._put((topic, group), queue_id, offset)

    def commit_read(
        self,
        group: str,
        topic: str,
        queue_id: int,
        next_offset: int,
        commit_offset: int | None = None,
    ) -> None:
        """Remember how far a group has pulled a queue (for statistics only), and consumed it.

        Args:
            group: consumer group.
            topic: of the queue.
            queue_id: of the queue.
            next_offset: where it reads next.
            commit_offset: as for `commit`; None commits nothing, nor a negative one, nor does any
                while a reset waits.
        """
        key = (topic, group)
        with self._lock:
            pulled = self._pulled.queues.get(key)
            if pulled is not None and queue_id in pulled:  # as mostly: `put`, inlined
                pulled[queue_id] = next_offset
            elif self.topic_exists(topic):
                self._pulled.put(key, queue_id, next_offset)
            if (
                commit_offset is not None
                and commit_offset >= 0
                and not (self.resets.count and self.has_reset(group, topic, queue_id))
            ):
                self._put(key, queue_id, commit_offset)

    def _put(self, key: tuple[str, str], queue_id: int, offset: int) -> bool:
        committed = self._table.queues.get(key)
        if committed is not None and queue_id in committed:  # as mostly: `put`, inlined
            committed[queue_id] = offset
        elif not self.topic_exists(key[0]):
            return True
        elif not self._table.put(key, queue_id, offset):
            return False
        self._dirty = True
        self._commits += 1
        if self._commits % self._version_step == 0:
            self._version.bump(self._clock)
        return True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed (or just reset) offset, `NO_OFFSET` when there is none."""
        key = (topic, group)
        found = self.resets.get(key, queue_id) if self.resets.count else None
        if found is None:
            found = self._table.get(key, queue_id)
        # An older version, or Apache, may have written a negative one into the file.
        return NO_OFFSET if found is None or found < 0 else found

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """The offset that the group pulled last, `NO_OFFSET` when it never did."""
        found = self._pulled.get((topic, group), queue_id)
        return NO_OFFSET if found is None else found

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Committed offsets of every queue of a topic; empty when there are none."""
        with self._lock:
            return dict(self._table.queues.get((topic, group), {}))

    def topics_of_group(self, group: str) -> set[str]:
        """Topics that the group has committed an offset of, or will read from a reset one.

        Apache's broker leaves the latter out: such a group seems to have read all there is.
        """
        with self._lock:
            known = (*self._table.queues, *self.resets.queues)
            return {topic for topic, owner in known if owner == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        """Groups that have committed an offset of the topic."""
        with self._lock:
            return {group for name, group in self._table.queues if name == topic}

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy the offsets of a topic from one group to another."""
        for queue_id, offset in self.query_all(source_group, topic).items():
            self.commit(target_group, topic, queue_id, offset)

    def remove_group(self, group: str) -> None:
        """Forget a group, on disk too."""
        self._remove_where(lambda _, owner: owner == group)

    def remove_topic(self, topic: str) -> None:
        """Forget a topic, on disk too."""
        self._remove_where(lambda name, _: name == topic)

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Forget the topics that do not exist: they were deleted just before a crash."""
        self._remove_where(lambda name, _: not exists(name))

    def cut_to(self, max_offset: Callable[[str, int], int]) -> None:
        """Let no offset lie behind the end of its queue, on disk too.

        A power cut takes messages that were consumed, but not on disk; those that get their places
        next are others, and would be passed over.

        Args:
            max_offset: end of a queue by topic and queue id.
        """
        cut_count = 0
        with self._lock:
            for (topic, _), queues in self._table.queues.items():
                for queue_id, offset in queues.items():
                    end = max_offset(topic, queue_id)
                    if offset > end:
                        queues[queue_id] = end
                        cut_count += 1
            if not cut_count:
                return
            self._dirty = True
        _log.warning("consumer offsets behind the end of their queues are corrected", n=cut_count)
        self._persist_now()

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Keep a wished offset for the next pull; commits are refused until then."""
        key = (topic, group)
        with self._lock:
            if not self.topic_exists(topic):
                return
            self.resets.put(key, queue_id, offset)
            if key in self._table.queues and self._table.put(key, queue_id, offset):
                self._dirty = True
        for tell in self.on_reset:
            tell(group, topic, queue_id)

    def has_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset of this queue waits to be delivered."""
        return bool(self.resets.count) and self.resets.get((topic, group), queue_id) is not None

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Deliver a waiting reset: its offset, once; None when there is none."""
        if not self.resets.count:
            return None
        with self._lock:
            return self.resets.pop((topic, group), queue_id)

    @property
    def data_version(self) -> dict[str, int]:
        """The table's DataVersion as JSON."""
        return self._version.to_json()

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOffset.json, which is also the body of request 43."""
        with self._lock:
            pairs = list(self._table.queues.items())
            version = self._version.to_json()
        # Commits go on meanwhile: what they change belongs to this content or to the next.
        topics_by_group: dict[str, list[str]] = {}
        for (topic, group), _ in pairs:
            topics_by_group.setdefault(group, []).append(topic)
        return {
            "dataVersion": version,
            "groupTopicMap": topics_by_group,
            "offsetTable": {f"{topic}@{group}": dict(queues) for (topic, group), queues in pairs},
        }

    def _remove_where(self, matches: Callable[[str, str], bool]) -> None:
        with self._lock:
            for table in (self._pulled, self.resets):
                table.remove_where(matches)
            if not self._table.remove_where(matches):
                return
            self._dirty = True
        self._persist_now()

    def _persist_now(self) -> None:
        try:
            self.persist()
        except DiskFullError:
            # Deleting is what makes room: it goes on, and the next step writes the file.
            _log.warning("no space to write what was forgotten, it will be tried again")
