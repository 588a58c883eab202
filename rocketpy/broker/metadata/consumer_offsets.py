"""Progress of consumer groups: consumerOffset.json, written every 5 s.

A group's progress is the last offset that its clients committed, which may be a smaller one. A
reset by an operator is kept in a separate table until a pull delivers it; until then, commits of
that queue are refused.

Each of the three tables (committed, pulled, resets) has a bounded number of offsets. Callers ensure
that topics, groups and queues exist. Offsets of deleted topics and groups are removed at once, on
disk too: a new topic of the same name must not be read from where the old one ended.

Source: ConsumerOffsetManager.java (5.4.0).
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import DataVersion, JsonDocument, as_int, as_table
from rocketpy.errors import DiskFullError, StoreError
from rocketpy.proto.topic_names import SYSTEM_GROUP_PREFIX
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

NO_OFFSET: Final = -1
MAX_OFFSETS: Final = 500_000
"""Bound of each table, for clients that invent names; Apache has no bound."""


class LocalCommits(Protocol):
    """Offsets that were committed at this broker, a slave: see `SlaveCommits`."""

    def get(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Return an offset; None without one."""
        ...

    def note(self, key: tuple[str, str], queue_id: int, offset: int) -> None:
        """Keep an offset for the master."""
        ...

    def drop(self, key: tuple[str, str], queue_id: int, offset: int) -> None:
        """Drop an offset that is not larger than the master's."""
        ...


class OffsetTable:
    """Offsets by topic and group, then queue; bounded. The caller locks.

    Attributes:
        count: number of offsets.
        max_count: maximal number of offsets.
        queues: the offsets.
    """

    __slots__ = ("count", "max_count", "queues")

    def __init__(self, max_count: int) -> None:
        self.max_count: int = max_count
        self.count: int = 0
        self.queues: dict[tuple[str, str], dict[int, int]] = {}

    def get(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Return an offset, or None."""
        queues = self.queues.get(key)
        return None if queues is None else queues.get(queue_id)

    def put(self, key: tuple[str, str], queue_id: int, offset: int) -> bool:
        """Set an offset; False when it is a new one and the table is full."""
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
        """Add the offsets of a file, regardless of the bound: no committed offset is dropped."""
        self.queues[key] = offsets
        self.count += len(offsets)

    def pop(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Remove and return an offset; None when there is none."""
        queues = self.queues.get(key)
        if queues is None or queue_id not in queues:
            return None
        self.count -= 1
        offset = queues.pop(queue_id)
        if not queues:
            del self.queues[key]
        return offset

    def remove_where(self, matches: Callable[[str, str], bool]) -> bool:
        """Remove pairs of topic and group; returns whether there were any."""
        gone = [key for key in self.queues if matches(*key)]
        for key in gone:
            self.count -= len(self.queues.pop(key))
        return bool(gone)


class ConsumerOffsets:
    """Committed offsets by topic, group and queue; safe from any thread.

    It is also the background service that writes the file; see `step`.

    Args:
        config: the broker's settings.
        file: consumerOffset.json.
        clock: time.
        max_offsets: bound of each table.

    Attributes:
        resets: resets that were not delivered yet; its count may be read without a lock.
        topic_exists: returns whether a topic exists; must not block. A topic is deleted before its
            offsets, so a thread that saw the topic before cannot leave an offset behind.
        write_failure: reason why the last periodic write failed; None after a success.
        on_reset: listeners, called with group, topic and queue id of each new reset.
        local_commits: receives each commit, at a slave; None at a master.
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
        # Pairs in the order of their last commits, with the number of commits then; None as long
        # as no slave asks for new commits only.
        self._committed_at: dict[tuple[str, str], int] | None = None
        self._process = f"{clock.time_ms():x}"
        self._dirty = False
        # One writer of the file at a time, so that no older content replaces a newer one.
        self._file_lock = threading.Lock()
        self._table = OffsetTable(max_offsets)
        self._pulled = OffsetTable(max_offsets)
        self.resets: OffsetTable = OffsetTable(max_offsets)
        self.topic_exists: Callable[[str], bool] = lambda _topic: True
        self.write_failure: str | None = None
        self.on_reset: list[Callable[[str, str, int], None]] = []
        self.local_commits: LocalCommits | None = None

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings (how often the version is incremented)."""
        self._version_step = config.consumer_offset_update_version_step

    def load(self) -> None:
        """Read consumerOffset.json."""
        value = as_table(self._file.load())
        with self._lock:
            for key, offsets in offsets_of(value).items():
                self._table.load(key, offsets)
            self._version.load(value.get("dataVersion"))

    def step(self, now_ms: int) -> int:
        """Write the file if an offset changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            try:
                self.persist()
            except (StoreError, OSError) as error:
                self.write_failure = str(error)
                _log.warning("consumer offsets not written", error=str(error))
        return now_ms + self._config.flush_consumer_offset_interval

    def persist(self) -> None:
        """Write consumerOffset.json.

        Raises:
            DiskFullError: it did not fit; the old file is unchanged, and the next step tries again.
        """
        with self._file_lock:
            self._dirty = False
            try:
                self._file.save(self.to_json())
                self.write_failure = None
            except BaseException:
                self._dirty = True
                raise

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store how far a group has consumed a queue.

        A negative offset changes nothing, so that it cannot undo an earlier commit. Apache stores
        it, and answers later queries as if there were no offset. Commits to deleted topics are
        ignored.

        Returns:
            False when the table is full and the offset was not stored.
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
        """Store how far a group has pulled a queue (for statistics), and consumed it.

        Args:
            group: consumer group.
            topic: topic of the queue.
            queue_id: queue within the topic.
            next_offset: where the group reads next.
            commit_offset: as for `commit`; None commits nothing. Ignored while a reset is pending.
        """
        key = (topic, group)
        with self._lock:
            pulled = self._pulled.queues.get(key)
            if pulled is not None and queue_id in pulled:  # the common case: `put`, inlined
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
        if committed is not None and queue_id in committed:  # the common case: `put`, inlined
            committed[queue_id] = offset
        elif not self.topic_exists(key[0]):
            return True
        elif not self._table.put(key, queue_id, offset):
            return False
        self._dirty = True
        self._commits += 1
        if (at := self._committed_at) is not None:
            at.pop(key, None)
            at[key] = self._commits
        if self._commits % self._version_step == 0:
            self._version.bump(self._clock)
        if self.local_commits is not None:
            self.local_commits.note(key, queue_id, offset)
        return True

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move an offset of the broker itself forward, at a slave; its master fetches it (43)."""
        self.follow({(topic, group): {queue_id: offset}}, None, None)

    def follow(
        self,
        master: Mapping[tuple[str, str], Mapping[int, int]],
        before: Mapping[tuple[str, str], Mapping[int, int]] | None,
        commits: LocalCommits | None,
        max_offset: Callable[[str, int], int] | None = None,
    ) -> None:
        """Take the offsets of the master, at a slave.

        An offset moves backwards (or is removed) only if a master that has run since the last call
        moved it back (a reset) or removed it (a deletion), and no client committed it here since. A
        master that was killed has lost its last commits: then the larger offset stays, unless it is
        beyond the end of its queue: the topic was created again.

        Args:
            master: its offsets, without those of the broker's own groups.
            before: those that it had at the last call; None if it was started since.
            commits: offsets that were committed here; None: offsets only move forward.
            max_offset: returns the end of a queue by topic and queue id; None: not compared.
        """
        for key, queues in master.items():
            if self.topic_exists(key[0]):
                was = None if before is None else before.get(key, {})
                with self._lock:  # not for the whole table: clients commit meanwhile
                    for queue_id, offset in queues.items():
                        self._follow(key, queue_id, offset, was, commits, max_offset)
        if commits is not None and (before is not None or max_offset is not None):
            self._follow_removed(master, {} if before is None else before, commits, max_offset)

    def _follow(
        self,
        key: tuple[str, str],
        queue_id: int,
        offset: int,
        was: Mapping[int, int] | None,
        commits: LocalCommits | None,
        max_offset: Callable[[str, int], int] | None,
    ) -> None:
        known = self._table.get(key, queue_id)
        if offset < 0 or offset == known:
            return
        if known is not None and offset < known:
            is_committed_here = commits is None or commits.get(key, queue_id) is not None
            is_moved_back = was is not None and was.get(queue_id, NO_OFFSET) > offset
            is_beyond = max_offset is not None and known > max_offset(key[0], queue_id)
            if is_committed_here or not (is_moved_back or is_beyond):
                return
        elif commits is not None:
            commits.drop(key, queue_id, offset)
        if self._table.put(key, queue_id, offset):
            self._dirty = True

    def _follow_removed(
        self,
        master: Mapping[tuple[str, str], Mapping[int, int]],
        before: Mapping[tuple[str, str], Mapping[int, int]],
        commits: LocalCommits,
        max_offset: Callable[[str, int], int] | None,
    ) -> None:
        with self._lock:
            pairs = list(self._table.queues.items())
        for key, queues in pairs:
            if key[1].startswith(SYSTEM_GROUP_PREFIX):
                continue
            had, has = before.get(key, {}), master.get(key, {})
            for queue_id in [each for each in list(queues) if each not in has]:
                with self._lock:  # a commit until here is in `commits`
                    known = self._table.get(key, queue_id)
                    if known is None or commits.get(key, queue_id) is not None:
                        continue
                    is_beyond = max_offset is not None and known > max_offset(key[0], queue_id)
                    if queue_id in had or is_beyond:
                        self._table.pop(key, queue_id)
                        self._dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed (or just reset) offset; `NO_OFFSET` when there is none."""
        key = (topic, group)
        found = self.resets.get(key, queue_id) if self.resets.count else None
        if found is None:
            found = self._table.get(key, queue_id)
        # Apache and older versions may have written negative offsets into the file.
        return NO_OFFSET if found is None or found < 0 else found

    def query_pull(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset that the group pulled last; `NO_OFFSET` when it never did."""
        found = self._pulled.get((topic, group), queue_id)
        return NO_OFFSET if found is None else found

    def query_all(self, group: str, topic: str) -> dict[int, int]:
        """Return the committed offsets of all queues of a topic; empty when there are none."""
        with self._lock:
            return dict(self._table.queues.get((topic, group), {}))

    def topics_of_group(self, group: str) -> set[str]:
        """Return the topics for which a group has a committed or reset offset.

        Apache leaves topics with only a reset out, so such a group seems to have no lag.
        """
        with self._lock:
            known = (*self._table.queues, *self.resets.queues)
            return {topic for topic, owner in known if owner == group}

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the groups that have a committed or reset offset of the topic."""
        with self._lock:
            known = (*self._table.queues, *self.resets.queues)
            return {group for name, group in known if name == topic}

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Copy the offsets of a topic from one group to another."""
        for queue_id, offset in self.query_all(source_group, topic).items():
            self.commit(target_group, topic, queue_id, offset)

    def groups_behind(
        self, first_kept: Callable[[str, int], int], min_offset: Callable[[str, int], int]
    ) -> set[str]:
        """Return the groups that lose unread messages when the start of queues is deleted.

        Args:
            first_kept: queue offset of the first message that stays, by topic and queue.
            min_offset: queue offset of the first message now.
        """
        with self._lock:
            pairs = [(key, dict(queues)) for key, queues in self._table.queues.items()]
        return {
            group
            for (topic, group), queues in pairs
            for queue_id, offset in queues.items()
            if first_kept(topic, queue_id) > max(offset, min_offset(topic, queue_id))
        }

    def remove_group(self, group: str) -> None:
        """Remove a group, on disk too."""
        self._remove_where(lambda _, owner: owner == group)

    def remove_topic(self, topic: str) -> None:
        """Remove a topic, on disk too."""
        self._remove_where(lambda name, _: name == topic)

    def remove_queue(self, topic: str, queue_id: int) -> None:
        """Remove the offsets of a queue, on disk with the next write; for a slave."""
        with self._lock:
            keys = [key for key in self._table.queues if key[0] == topic]
            removed = [self._table.pop(key, queue_id) for key in keys]
            self._dirty = self._dirty or any(each is not None for each in removed)

    def keep_topics(self, exists: Callable[[str], bool]) -> None:
        """Remove topics that do not exist: they were deleted just before a crash."""
        self._remove_where(lambda name, _: not exists(name))

    def cut_to(self, max_offset: Callable[[str, int], int]) -> None:
        """Move offsets beyond the end of their queue back to it, on disk too.

        A power cut may remove messages that were consumed before they were on disk, and an operator
        may restore an older log. The messages that get their queue offsets next would be skipped
        otherwise.

        Args:
            max_offset: returns the end of a queue by topic and queue id.
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
        _log.warning("consumer offsets beyond their queues corrected", count=cut_count)
        self._persist_now()

    def assign_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset for the next pull; commits are refused until it is delivered."""
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
        """Return whether a reset of this queue was not delivered yet."""
        return bool(self.resets.count) and self.resets.get((topic, group), queue_id) is not None

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Deliver a reset: return its offset once; None when there is none."""
        if not self.resets.count:
            return None
        with self._lock:
            return self.resets.pop((topic, group), queue_id)

    def mark(self) -> str:
        """Return the number of commits so far, from which a later `to_json` can continue.

        From the first call on, the order of commits is recorded.
        """
        with self._lock:
            if self._committed_at is None:
                self._committed_at = {}
            return f"{self._process}.{self._commits}"

    @property
    def data_version(self) -> dict[str, int]:
        """DataVersion of the table, as JSON."""
        return self._version.to_json()

    def to_json(self, since: str = "") -> dict[str, Any]:
        """Return the content of consumerOffset.json, which is also the body of request 43.

        Args:
            since: an earlier `mark`: only pairs of topic and group with a commit since; all of them
                if it is empty or of another process.
        """
        with self._lock:
            version = self._version.to_json()
            pairs = self._committed_since(since)
            if pairs is None:
                pairs = list(self._table.queues.items())
        # The lock is released: commits during the copy belong to this content or to the next.
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
            at = self._committed_at
            if at is not None:
                for key in [each for each in at if matches(*each)]:
                    del at[key]
            self._dirty = True
        self._persist_now()

    def _committed_since(self, mark: str) -> list[tuple[tuple[str, str], dict[int, int]]] | None:
        """Return the pairs with a commit since a mark; None if the mark says nothing here."""
        process, _, count = mark.partition(".")
        at, table = self._committed_at, self._table.queues
        if at is None or process != self._process or not (count.isascii() and count.isdecimal()):
            return None
        after = int(count[:19])
        # From the last commit on: a slave asks a few times a second.
        newer = itertools.takewhile(lambda entry: entry[1] > after, reversed(at.items()))
        return [(key, table[key]) for key, _ in newer if key in table]

    def _persist_now(self) -> None:
        try:
            self.persist()
        except DiskFullError:
            # Deleting makes room on the disk, so it must succeed; the next step writes the file.
            _log.warning("consumer offsets not written: disk full")


def offsets_of(document: Mapping[str, Any]) -> dict[tuple[str, str], dict[int, int]]:
    """Return the offsets in a consumerOffset.json, by topic and group.

    Args:
        document: the content of the file, or of the response to 43.
    """
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, queues in as_table(document.get("offsetTable")).items():
        topic, separator, group = key.partition("@")
        if separator:
            offsets = as_table(queues).items()
            found[topic, group] = {as_int(queue, 0): as_int(each, 0) for queue, each in offsets}
    return found
