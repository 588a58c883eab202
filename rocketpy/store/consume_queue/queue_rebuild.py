"""Rebuilds queue entries from the commit log: during recovery, and on a replica.

A record names its queue and queue offset. Usually that is the next offset; otherwise one of these
is the case:

- the entry exists already; if it belongs to another record, this record is damaged;
- the offset is larger than any queue's: the record is damaged;
- the record is the first one of a queue that was deleted and recreated: the queue restarts;
- the queue lost earlier entries: reading must start further back;
- the log lost earlier records: queue offsets never move, so the gap is filled with the entry of
  the next record, which readers return once.
"""

import logging
from collections.abc import Callable, Sequence

from rocketpy.errors import QueueGapError
from rocketpy.proto.record.record import MIN_RECORD_BYTES
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.consume_queue.queue_entry import MOST_QUEUE_OFFSET

logger: logging.Logger = logging.getLogger(__name__)


class EntriesLost(Exception):  # noqa: N818 - a signal to recovery, not a fault
    """Signals that a queue lacks entries of messages before the start of the scan.

    Attributes:
        start: physical offset of a message whose entry exists, or the start of the log.
    """

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class QueueRebuilder:
    """Writes queue entries for records of the log, in the order of the log.

    Attributes:
        entry_count: entries written since `begin`.
        damaged: physical offsets of records whose queue offset belongs to another record.
        on_restart: called with topic and queue id of a queue that begins again with its topic.
    """

    def __init__(
        self, table: ConsumeQueueTable, log: CommitLog, covers: Callable[[str, int], bool]
    ) -> None:
        """Build a rebuilder.

        Args:
            table: finds and creates queues.
            log: the commit log, to verify entries.
            covers: returns whether a message (topic, physical offset) was deleted with its topic.
        """
        self._table = table
        self._log = log
        self._covers = covers
        self._start = 0
        self._last_phy: dict[tuple[str, int], int] = {}
        self.entry_count: int = 0
        self.damaged: list[int] = []
        self.on_restart: Callable[[str, int], None] = _ignore

    def begin(self, start: int) -> None:
        """Start at a physical offset; earlier records have their entries."""
        self._start = start
        self._last_phy.clear()
        self.entry_count = 0
        self.damaged = []

    def reserve(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Reserve space for an entry, so that putting it later cannot fail.

        Raises:
            ResourceShortError: queues hold too many unflushed bytes.
            StoreFormatError: invalid queue name.
        """
        if queue_offset > MOST_QUEUE_OFFSET:
            return  # `put` reports it as damaged
        queue = self._table.get_or_create(topic, queue_id)
        if queue_offset and not queue.next_offset and not queue.file_count:
            queue.restart_at(queue_offset)  # the master's log no longer holds the queue's start
        queue.reserve()
        if queue_offset == queue.next_offset:
            queue.next_offset += 1

    def put(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        phy_offset: int,
        size_bytes: int,
        tags_code: int,
    ) -> None:
        """Write the entry of a record unless its topic was deleted later.

        Raises:
            EntriesLost: earlier entries are missing and must be rebuilt first.
            DiskFullError: no space.
        """
        # The topic was deleted after this message: its queue must not reappear.
        if self._covers(topic, phy_offset):
            return
        # A damaged offset would otherwise make a queue of that length.
        if queue_offset > MOST_QUEUE_OFFSET:
            self.damaged.append(phy_offset)
            return
        queue = self._table.get_or_create(topic, queue_id)
        values = (phy_offset, size_bytes, tags_code)
        if queue_offset < queue.max_offset:
            if queue.entry(queue_offset) == values:
                return
            # Only offset 0 can restart a queue; any other occupied offset is damage.
            if queue_offset != 0:
                self.damaged.append(phy_offset)
                return
            queue.restart_at(0)
            self.on_restart(topic, queue_id)
        try:
            written = queue.put_recovered(queue_offset, *values)
        except QueueGapError:
            written = self._across_gap(queue, queue_offset, *values)
        self._last_phy[topic, queue_id] = phy_offset
        self.entry_count += int(written)

    def reserve_runs(self, runs: Sequence[tuple[str, int, int]]) -> None:
        """Reserve space for entries that follow those of their queues, in all queues or none.

        Args:
            runs: topic, queue id and number of entries of different queues.

        Raises:
            ResourceShortError: queues hold too many unflushed bytes.
        """
        queues = [(self._table.get_or_create(topic, each), count) for topic, each, count in runs]
        for queue, count in queues:
            queue.reserve_run(count)
        for queue, count in queues:
            queue.next_offset += count

    def follows(
        self, topic: str, queue_id: int, queue_offset: int, phy_offset: int, count: int
    ) -> bool:
        """Return whether records follow those of their queue, also of reserved entries.

        Args:
            topic: stored topic.
            queue_id: queue within the topic.
            queue_offset: queue offset of the first record.
            phy_offset: its physical offset.
            count: number of records.
        """
        queue = self._table.get(topic, queue_id)
        return (
            queue_offset == (0 if queue is None else queue.next_offset)
            and queue_offset + count <= MOST_QUEUE_OFFSET
            and not self._covers(topic, phy_offset)
        )

    def is_deleted(self, topic: str, phy_offset: int) -> bool:
        """Return whether a message was deleted with its topic."""
        return self._covers(topic, phy_offset)

    def goes_on(
        self, topic: str, queue_id: int, queue_offset: int, phy_offset: int, count: int
    ) -> bool:
        """Whether records simply follow the entries that their queue has; offsets: the first's."""
        queue = self._table.get(topic, queue_id)
        following = 0 if queue is None else queue.max_offset
        return (
            queue_offset == following
            and queue_offset + count <= MOST_QUEUE_OFFSET
            and not self._covers(topic, phy_offset)
        )

    def put_run(
        self, topic: str, queue_id: int, entries: bytes, last_phy: int, phy_end: int
    ) -> None:
        """Write the entries of several records for which `goes_on` returned True.

        Args:
            topic: stored topic.
            queue_id: queue within the topic.
            entries: as they stand in the file.
            last_phy: where the last record begins.
            phy_end: where it ends.

        Raises:
            DiskFullError: no space.
        """
        queue = self._table.get_or_create(topic, queue_id)
        self.entry_count += queue.put_recovered_run(entries, phy_end)
        self._last_phy[topic, queue_id] = last_phy

    def _across_gap(
        self,
        queue: ConsumeQueue,
        queue_offset: int,
        phy_offset: int,
        size_bytes: int,
        tags_code: int,
    ) -> bool:
        """Put the entry of a record that is not the next one of its queue."""
        last_phy = self._last_phy.get((queue.topic, queue.queue_id), -1)
        # The entries were lost before the scan started, so the scan must start earlier.
        if last_phy < 0 and self._start > self._log.min_phy_offset:
            raise EntriesLost(self._last_proven(queue))
        if last_phy < 0:
            queue.restart_at(queue_offset)
            return queue.put_recovered(queue_offset, phy_offset, size_bytes, tags_code)
        missing = queue_offset - queue.max_offset
        # The lost records must have fitted between the two records in the log.
        if missing > (phy_offset - last_phy) // MIN_RECORD_BYTES:
            self.damaged.append(phy_offset)  # larger than the log could hold
            return False
        logger.warning(
            "messages lost, queue gap filled: topic=%s queue_id=%d queue_offset=%d count=%d",
            queue.topic,
            queue.queue_id,
            queue.max_offset,
            missing,
        )
        for each in range(queue.max_offset, queue_offset):
            queue.put_recovered(each, phy_offset, size_bytes, tags_code)
        return queue.put_recovered(queue_offset, phy_offset, size_bytes, tags_code)

    def _last_proven(self, queue: ConsumeQueue) -> int:
        """Return the physical offset of the queue's last entry, or the start of the log."""
        entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
        if entry is not None and self._log.min_phy_offset <= entry[0] < self._start:
            found = self._log.proven(queue.topic, queue.max_offset - 1, entry[0], entry[1])
            if found is not None:
                return entry[0]
        return self._log.min_phy_offset


def _ignore(_topic: str, _queue_id: int) -> None:
    """Default of `on_restart`."""
