"""Topics of this broker: topics.json, the topics that every broker has, and auto-creation.

A send to an unknown topic may create it from a template topic with the inherit permission, TBW102
unless the client names another. The new topic has the smaller one of both queue counts, and the
template's permissions without the inherit bit.

Source: TopicConfigManager.java, TopicConfig.java (5.4.0).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import JsonDocument, as_table
from rocketpy.broker.metadata.persistent_table import PersistentTable, Settled
from rocketpy.errors import StoreError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import PERM_INHERIT, PERM_READ, PERM_WRITE
from rocketpy.proto.pop import revive_topic
from rocketpy.proto.topic_names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    NOT_ALLOWED_SEND_TOPICS,
    OFFSET_MOVED_TOPIC,
    ROCKSDB_TRANS_HALF_TOPIC,
    ROCKSDB_TRANS_OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

SCHEDULE_QUEUE_NUMS: Final = 18
NOT_SENDABLE_TOPICS: Final = NOT_ALLOWED_SEND_TOPICS | {
    ROCKSDB_TRANS_HALF_TOPIC,
    ROCKSDB_TRANS_OP_HALF_TOPIC,
}


class TopicTable(PersistentTable[TopicConfig]):
    """Topics of this broker; safe from any thread, reads take no lock.

    Attributes:
        on_written: called with each created or changed topic after it was written to disk.
        on_delete: called with each deleted topic, as it was, after it was removed from the disk.
    """

    entries: Mapping[str, TopicConfig]
    written: Mapping[str, TopicConfig]
    _table_key: ClassVar[str] = "topicConfigTable"

    def __init__(self, config: BrokerConfig, file: JsonDocument, clock: Clock) -> None:
        self.on_written: Callable[[TopicConfig], None] | None = None
        self.on_delete: Callable[[TopicConfig], None] | None = None
        self._config = config
        self._is_full_logged = False
        self._being_deleted: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        self._has_file = True
        self._is_lost = False
        self._system = {one.topic_name: one for one in system_topics(config)}
        super().__init__(file, clock, self._system)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings (auto-creation)."""
        self._config = config
        # A broker that started without auto-creation has no topic to inherit from yet.
        for topic in system_topics(config):
            if topic.topic_name == AUTO_CREATE_TOPIC and topic.topic_name not in self.entries:
                with self.one_write():
                    self._put_if_absent(topic)

    def load(self) -> None:
        """Read topics.json, and add the topics that every broker has."""
        found = self._file.load()
        self._has_file = found is not None
        value = as_table(found)
        with self._lock:
            self.entries = {
                **self._system,
                **{
                    name: _named(TopicConfig.from_json(entry), name)
                    for name, entry in as_table(value.get("topicConfigTable")).items()
                },
            }
            self.written = self.entries
            self._version.load(value.get("dataVersion"))

    def get(self, topic: str) -> TopicConfig | None:
        """Return a topic, or None."""
        return self.entries.get(topic)

    def exists(self, topic: str) -> bool:
        """Return whether a topic exists; every system topic does."""
        return topic in self.entries or self.is_system(topic)

    def queue_of(self, topic: str, queue_id: int) -> int | None:
        """Return the queue that consumers read instead of a queue; None for a deleted topic.

        A topic that is missing because its file was lost keeps its messages until the file is
        restored. A topic may have fewer queues than when a delayed message was sent. Apache stores
        the message in the removed queue, which no consumer reads.

        Args:
            topic: the topic.
            queue_id: queue of the message.
        """
        found = self.entries.get(topic)
        if found is None:
            return queue_id if topic in self._missing or self._is_lost else None
        count = found.read_queue_nums
        return queue_id if queue_id < count or count <= 0 else queue_id % count

    def note_stored(self, topics: Iterable[str]) -> list[str]:
        """Take the topics that have messages, and return those that topics.json lacks, sorted.

        They, or their file, were lost. Without a file, topics of which only delayed messages are
        stored are missing as well.

        Args:
            topics: names of the topics that have messages, the broker's own included.
        """
        stored = frozenset(topics)
        self._is_lost = bool(stored) and not self._has_file
        self._missing = frozenset(
            each for each in stored if each not in self.entries and not self.is_system(each)
        )
        return sorted(self._missing)

    def all(self) -> dict[str, TopicConfig]:
        """Return a copy of the table."""
        return dict(self.entries)

    def is_system(self, topic: str) -> bool:
        """Return whether a name is that of a system topic."""
        return topic in self._system or topic.startswith("rmq_sys_")

    def to_json(self) -> dict[str, Any]:
        """Return the content of topics.json."""
        return {
            "dataVersion": self._version.to_json(),
            "topicConfigTable": {name: one.to_json() for name, one in self.all().items()},
        }

    def put(self, topic: TopicConfig) -> None:
        """Create or replace a topic, write the file, and report the change.

        Raises:
            StoreError: the file cannot be written; the table is unchanged.
        """
        with self.one_write(), self._changing(topic.topic_name) as topics:
            self._put(topics, topic)

    def delete(self, topic: str) -> TopicConfig | None:
        """Delete a topic; returns the deleted one, or None.

        Raises:
            StoreError: the file cannot be written; the topic still exists.
        """
        with self.one_write():
            old = self._delete_entry(topic)
            self._missing -= {topic}
            if old is not None and self.on_delete is not None:
                self._written_callbacks.append(partial(self.on_delete, old))
        return old

    def follow(self, wanted: Mapping[str, TopicConfig]) -> list[str]:
        """Take the topics of the master, at a slave; what does not differ is not written.

        Args:
            wanted: all topics of the master. System topics that it lacks stay.

        Returns:
            The names of removed topics; `on_delete` is called when the file lacks them.
        """
        with self.write_soon():
            now = self._current()
            changed = {name: each for name, each in wanted.items() if now.get(name) != each}
            gone = [name for name in now if name not in wanted and not self.is_system(name)]
            if changed or gone:
                with self._changing(*changed, *gone) as topics:
                    for name, topic in changed.items():
                        self._put(topics, _named(topic, name))
                    for name in gone:
                        old = topics.pop(name)
                        if self.on_delete is not None:
                            self._written_callbacks.append(partial(self.on_delete, old))
        return gone

    @contextmanager
    def deleting(self, topics: Iterable[str]) -> Iterator[None]:
        """Prevent sends from creating topics again before all their data is deleted.

        The queues of a topic that is created meanwhile would be deleted with the old ones, although
        its sender got a success.

        Args:
            topics: the topics that the block deletes.
        """
        with self._lock:
            before, self._being_deleted = self._being_deleted, self._being_deleted.union(topics)
            added = self._being_deleted - before
        try:
            yield
        finally:
            with self._lock:
                self._being_deleted -= added

    def when_created(self, topics: Sequence[str], done: Settled) -> None:
        """Call back once new topics are in the file, or their creation has failed.

        Args:
            topics: topics that were just looked up or created.
            done: called once, perhaps at once, on any thread.
        """

        def settled(failure: Exception | None) -> None:
            missing = [topic for topic in topics if not self.is_written(topic)]
            if failure is None and missing:
                # A failed write has undone the creation, or the topic was deleted since.
                reason = f"topic[{missing[0]}] does not exist any more: it was deleted meanwhile"
                failure = self.failure or StoreError(reason)
            done(failure)

        self.when_settled(topics, settled)

    def create_on_send(
        self, topic: str, template: str, client_queue_nums: int, topic_sys_flag: int = 0
    ) -> TopicConfig | None:
        """Create a topic for a send; it is written like any change inside `write_soon`.

        Args:
            topic: the unknown topic.
            template: topic to inherit from; TBW102 for nearly all clients.
            client_queue_nums: upper limit for the number of queues.
            topic_sys_flag: unit bits of the new topic.

        Returns:
            The topic (perhaps created by another thread meanwhile), or None when it may not be
            created.

        Raises:
            StoreError: the file cannot be written, now or at the last attempt.
        """
        source = self.get(template)
        if source is None or not source.perm & PERM_INHERIT:
            return self.get(topic)
        if template == AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            return self.get(topic)
        if self._is_full():
            return self.get(topic)
        nums = max(0, min(client_queue_nums, source.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=nums,
            write_queue_nums=nums,
            perm=source.perm & ~PERM_INHERIT,
            topic_filter_type=source.topic_filter_type,
            topic_sys_flag=topic_sys_flag,
        )
        return self._put_if_absent(created)

    def _is_full(self) -> bool:
        """Return whether sends may create no more topics; operators may. Apache has no bound."""
        limit = self._config.max_topics_for_auto_create
        if len(self.entries) < limit:
            self._is_full_logged = False
            return False
        if not self._is_full_logged:
            self._is_full_logged = True
            _log.warning("topic creation stopped: limit reached", maxTopicsForAutoCreate=limit)
        return True

    def absence(self, topic: str) -> str:
        """Return the remark for a producer of a missing topic, and why it was not created."""
        remark = f"topic[{topic}] not exist, apply first please!"
        if self._config.auto_create_topic_enable and self._is_full():
            limit = self._config.max_topics_for_auto_create
            remark += f" No more are created: there are {limit} (maxTopicsForAutoCreate)."
        return remark

    def create_on_send_back(
        self,
        topic: str,
        queue_nums: int,
        perm: int = PERM_READ | PERM_WRITE,
        topic_sys_flag: int = 0,
    ) -> TopicConfig:
        """Create a retry or dead-letter topic, or one found in the log, unless it exists.

        It is written like any change inside `write_soon`; inside `one_write` it is on disk when
        that block ends.

        Raises:
            StoreError: the file cannot be written, now or at the last attempt.
        """
        found = self.get(topic)
        if found is not None:
            return found
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=topic_sys_flag,
        )
        return self._put_if_absent(created)

    def _put_if_absent(self, topic: TopicConfig) -> TopicConfig:
        self._check_is_writable()
        with self.write_soon():
            found = self._current().get(topic.topic_name)
            if found is not None:
                return found
            # Only for single changes: a heartbeat creates its topics in one block (depth > 1) and
            # stores no message that could be deleted with an old queue.
            if topic.topic_name in self._being_deleted and self._depth == 1:
                raise StoreError(f"topic[{topic.topic_name}] is being deleted: retry later")
            with self._changing(topic.topic_name) as topics:
                return self._put(topics, topic)

    def _put(self, topics: dict[str, TopicConfig], topic: TopicConfig) -> TopicConfig:
        own = topics[topic.topic_name] = replace(topic, attributes=dict(topic.attributes))
        self._written_callbacks.append(partial(self._notify_written, own.topic_name))
        return own

    def _notify_written(self, name: str) -> None:
        found = self.written.get(name)
        # It may have been deleted meanwhile; then there is nothing to report.
        if found is not None and self.on_written is not None:
            self.on_written(found)


def _named(topic: TopicConfig, name: str) -> TopicConfig:
    """Return a topic with the name of its table entry, which wins over the one inside."""
    return topic if topic.topic_name == name else replace(topic, topic_name=name)


def system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that a 5.4.0 broker has from its first start."""

    def topic(name: str, queue_nums: int, perm: int = PERM_READ | PERM_WRITE) -> TopicConfig:
        return TopicConfig(name, queue_nums, queue_nums, perm)

    cluster, broker = config.broker_cluster_name, config.broker_name
    inherit = PERM_INHERIT
    cluster_perm = inherit | (PERM_READ | PERM_WRITE if config.cluster_topic_enable else 0)
    broker_perm = inherit | (PERM_READ | PERM_WRITE if config.broker_topic_enable else 0)
    found = [
        topic(SELF_TEST_TOPIC, 1),
        topic(BENCHMARK_TOPIC, 1024),
        topic(cluster, 16, cluster_perm),
        topic(broker, 1, broker_perm),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, SCHEDULE_QUEUE_NUMS),
        topic(f"{cluster}_REPLY_TOPIC", 1),
        topic(revive_topic(cluster), config.revive_queue_num),
        topic(f"rmq_sys_SYNC_BROKER_MEMBER_{broker}", 1, inherit),
        topic(TRANS_HALF_TOPIC, 1),
        topic(TRANS_OP_HALF_TOPIC, 1),
        topic(ROCKSDB_TRANS_HALF_TOPIC, 1),
        topic(ROCKSDB_TRANS_OP_HALF_TOPIC, 1),
        topic(TIMER_TOPIC, 1),
    ]
    if config.auto_create_topic_enable:
        nums = config.default_topic_queue_nums
        found.append(topic(AUTO_CREATE_TOPIC, nums, inherit | PERM_READ | PERM_WRITE))
    if config.trace_topic_enable:
        found.append(topic(config.msg_trace_topic_name, 1))
    return found
