"""Offsets that clients commit at a slave, sent back to the master: config/slaveCommits.json.

While the master is away, clients commit at a slave. Those commits would be lost with the master's
return, because it has the older offsets: its consumers would receive messages again
(apache/rocketmq 1094). A slave therefore keeps the offsets that were committed here, across its own
restarts, and sends each one to the master that is larger than the master's (15
UPDATE_CONSUMER_OFFSET).

The file also names the process of the master whose offsets were followed last (its boot time). An
offset that was not committed here is then the master's, also after a restart of the slave, so that
a reset or deletion that the same process made meanwhile is recognized.

It also names the end of the master's log when the master's topic table was read last, which a slave
without its master needs to tell new topics from deleted ones (`metadata.found_topics`).

The file is written with the interval of consumerOffset.json: a slave that is killed loses the
commits of the last `flushConsumerOffsetInterval` in both. That end is written at once.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import structlog

from rocketpy.broker.metadata.consumer_offsets import MAX_OFFSETS, OffsetTable, offsets_of
from rocketpy.broker.metadata.json_document import JsonDocument, as_table
from rocketpy.errors import StoreError
from rocketpy.proto.headers.offset import UpdateConsumerOffsetRequestHeader
from rocketpy.proto.topic_names import SYSTEM_GROUP_PREFIX
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request

_log = structlog.get_logger(__name__)

GroupOffsets: TypeAlias = Mapping[tuple[str, str], Mapping[int, int]]
"""Offsets by topic and group, then queue."""

_NONE: Final[Mapping[int, int]] = {}
_MOST_IN_ROUND: Final = 1_000
"""Limit of one round, so that the tables of the next round are not late."""


class SlaveCommits:
    """Offsets that were committed at this broker; safe from any thread.

    It is also the background service that writes the file; see `step`.

    Args:
        file: slaveCommits.json.
        interval_ms: pause between two writes.
    """

    name = "SlaveCommits"

    def __init__(self, file: JsonDocument, interval_ms: int) -> None:
        self._file = file
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._table = OffsetTable(MAX_OFFSETS)
        self._master_boot = ""
        self._tables_end: int | None = None
        self._wake: Callable[[], None] = _nothing
        self._dirty = False

    def __len__(self) -> int:
        """Number of offsets that the master does not have yet."""
        return self._table.count

    def load(self) -> None:
        """Read the file."""
        with self._lock:
            document = as_table(self._file.load())
            for key, offsets in offsets_of(document).items():
                self._table.load(key, dict(offsets))
            boot = document.get("masterBootTimestamp")
            self._master_boot = boot if isinstance(boot, str) else ""
            end = document.get("masterTablesEnd")
            self._tables_end = end if isinstance(end, int) and end >= 0 else None

    def persist(self) -> None:
        """Write the file, also an empty one: it marks the directory as a slave's.

        Raises:
            StoreError: it cannot be written; the old file is unchanged.
        """
        with self._lock:
            self._dirty = False
            content = {key: dict(offsets) for key, offsets in self._table.queues.items()}
            boot, end = self._master_boot, self._tables_end
        document: dict[str, Any] = {
            "masterBootTimestamp": boot,
            "offsetTable": {f"{topic}@{group}": each for (topic, group), each in content.items()},
        }
        if end is not None:
            document["masterTablesEnd"] = end
        try:
            self._file.save(document)
        except BaseException:
            self._dirty = True
            raise

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        self._wake = wake

    def step(self, now_ms: int) -> int:
        """Write the file if an offset changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            try:
                self.persist()
            except (StoreError, OSError) as error:
                _log.warning("slave commits not written", error=str(error))
        return now_ms + self._interval_ms

    @property
    def master_boot(self) -> str:
        """Boot time of the master that was followed last; empty if it is unknown."""
        return self._master_boot

    def note_master(self, boot: str) -> None:
        """Store the boot time of the master whose offsets are followed."""
        with self._lock:
            if boot != self._master_boot:
                self._master_boot = boot
                self._dirty = True

    @property
    def tables_end(self) -> int | None:
        """End of the master's log when its topic table was read last; None if it is unknown."""
        return self._tables_end

    def note_tables(self, phy_end: int | None) -> None:
        """Store the end of the master's log when its topic table was read; None: not known."""
        with self._lock:
            if phy_end == self._tables_end:
                return
            self._tables_end = phy_end
            self._dirty = True
        # Written at once: with an older end, a deleted topic could return after a kill.
        self._wake()

    def note(self, key: tuple[str, str], queue_id: int, offset: int) -> None:
        """Keep an offset for the master.

        Args:
            key: topic and group.
            queue_id: queue within the topic.
            offset: the committed offset.
        """
        if key[1].startswith(SYSTEM_GROUP_PREFIX):
            return  # progress of the broker itself, which belongs to its log
        with self._lock:
            self._table.put(key, queue_id, offset)
            self._dirty = True

    def get(self, key: tuple[str, str], queue_id: int) -> int | None:
        """Return the offset that was committed here; None without one."""
        return self._table.get(key, queue_id)

    def drop(self, key: tuple[str, str], queue_id: int, offset: int) -> None:
        """Drop an offset that the master has, unless a larger one was committed meanwhile."""
        with self._lock:
            known = self._table.get(key, queue_id)
            if known is not None and known <= offset:
                self._table.pop(key, queue_id)
                self._dirty = True

    def drop_topic(self, topic: str) -> None:
        """Drop a deleted topic."""
        with self._lock:
            if self._table.remove_where(lambda name, _: name == topic):
                self._dirty = True

    def drop_queue(self, topic: str, queue_id: int) -> None:
        """Drop a queue that begins again."""
        with self._lock:
            for key in [each for each in self._table.queues if each[0] == topic]:
                self._dirty = self._table.pop(key, queue_id) is not None or self._dirty

    def ahead_of(self, master: GroupOffsets) -> list[tuple[tuple[str, str], int, int]]:
        """Return topic and group, queue and offset of the commits that the master lacks.

        Offsets that it has are dropped.

        Args:
            master: the master's offsets.
        """
        found = list(self._entries())
        for key, queue_id, offset in found:
            if master.get(key, _NONE).get(queue_id, -1) >= offset:
                self.drop(key, queue_id, master[key][queue_id])
        return list(self._entries()) if found else []

    def _entries(self) -> Iterator[tuple[tuple[str, str], int, int]]:
        with self._lock:
            for key, queues in self._table.queues.items():
                for queue_id, offset in queues.items():
                    yield key, queue_id, offset


def _nothing() -> None:
    """Do nothing: no service runs yet."""


AskMaster: TypeAlias = Callable[[RemotingCommand], Awaitable[RemotingCommand]]
"""Sends a request to the master; raises RocketPyError when it does not answer."""

_GONE: Final = frozenset(
    {int(ResponseCode.TOPIC_NOT_EXIST), int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)}
)
"""Responses for an offset that the master cannot have: its topic or group was deleted."""


class OffsetHandback:
    """Sends commits to the master, with the tables that were just fetched from it.

    Args:
        commits: offsets that were committed here.
    """

    def __init__(self, commits: SlaveCommits) -> None:
        self._commits = commits

    async def send(self, ask: AskMaster, master: GroupOffsets) -> int:
        """Send the offsets that the master lacks; returns their number.

        A RocketPy master takes an offset only if it is larger than its own, even if a consumer has
        committed another one since it answered. Apache's takes it in any case.

        Args:
            ask: sends a request to the master.
            master: its offsets.

        Raises:
            RocketPyError: the master does not answer; the rest is sent later.
        """
        sent = 0
        for key, queue_id, offset in self._commits.ahead_of(master)[:_MOST_IN_ROUND]:
            topic, group = key
            header = UpdateConsumerOffsetRequestHeader(
                consumer_group=group,
                topic=topic,
                queue_id=queue_id,
                commit_offset=offset,
                only_forward=True,
            )
            request = make_request(RequestCode.UPDATE_CONSUMER_OFFSET, header.to_ext())
            response = await ask(request)
            if response.code == ResponseCode.SUCCESS or response.code in _GONE:
                self._commits.drop(key, queue_id, offset)
                sent += response.code == ResponseCode.SUCCESS
            else:
                _log.warning(
                    "offset not taken by the master",
                    topic=topic,
                    group=group,
                    queue_id=queue_id,
                    code=response.code,
                    remark=response.remark,
                )
        if sent:
            _log.info("offsets handed back to the master", count=sent)
        return sent
