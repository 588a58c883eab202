"""Queue entries made from the log: at a start, and on a replica.

A record says which place in which queue it had. Usually that is the next one; when it is not, one
of these is the case:

- the entry is there already, or another record's: then this record is damaged;
- no queue gets that far: damaged as well;
- the record is the first of a queue that was deleted and made again: the queue begins anew;
- entries before it are missing because the queue lost them: reading must begin further back;
- they are missing because the log lost their records: queue offsets never move, so their places
  are filled with the entry of the next record, which readers show once.
"""

import logging
from collections.abc import Callable

from rocketpy.errors import QueueGapError
from rocketpy.proto.record.record import MIN_RECORD_BYTES
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable
from rocketpy.store.consume_queue.queue_entry import MOST_QUEUE_OFFSET

logger: logging.Logger = logging.getLogger(__name__)


class EntriesLost(Exception):  # noqa: N818 - a signal to recovery, not a fault
    """A queue lacks entries of messages that lie before the place where reading began.

    Attributes:
        start: physical offset of a message whose entry the queue has, or the start of the log.
    """

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


class QueueRebuilder:
    """Writes entries for records read from the log, in the order of the log.

    Attributes:
        entry_count: entries written since `begin`.
        damaged: physical offsets of records that name another's place.
    """

    def __init__(
        self, table: ConsumeQueueTable, log: CommitLog, covers: Callable[[str, int], bool]
    ) -> None:
        """Build a rebuilder.

        Args:
            table: finds and makes queues.
            log: is asked for its start, and to prove an entry.
            covers: whether a message (topic, physical offset) was deleted with its topic.
        """
        self._table = table
        self._log = log
        self._covers = covers
        self._start = 0
        self._last_phy: dict[tuple[str, int], int] = {}
        self.entry_count: int = 0
        self.damaged: list[int] = []

    def begin(self, start: int) -> None:
        """Begin to read at a physical offset; what lies before has its entries."""
        self._start = start
        self._last_phy.clear()
        self.entry_count = 0
        self.damaged = []

    def reserve(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Make room for an entry that is put later, so that putting it cannot fail.

        Raises:
            ResourceShortError: queues hold too much that is not on disk.
            StoreFormatError: no queue can have that name.
        """
        if queue_offset > MOST_QUEUE_OFFSET:
            return  # `put` finds it damaged
        queue = self._table.get_or_create(topic, queue_id)
        if queue_offset and not queue.next_offset and not queue.file_count:
            queue.restart_at(queue_offset)  # the master's log does not go back to its begin
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
        """Write the entry of a record, unless its topic was deleted since.

        Raises:
            EntriesLost: entries before it are missing, and were when reading began.
            DiskFullError: no space.
        """
        if self._covers(topic, phy_offset):
            return
        if queue_offset > MOST_QUEUE_OFFSET:
            self.damaged.append(phy_offset)
            return
        queue = self._table.get_or_create(topic, queue_id)
        values = (phy_offset, size_bytes, tags_code)
        if queue_offset < queue.max_offset:
            if queue.entry(queue_offset) == values:
                return
            if queue_offset != 0:
                self.damaged.append(phy_offset)
                return
            queue.restart_at(0)
        try:
            written = queue.put_recovered(queue_offset, *values)
        except QueueGapError:
            written = self._across_gap(queue, queue_offset, *values)
        self._last_phy[topic, queue_id] = phy_offset
        self.entry_count += int(written)

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
        """Write the entries of several records of which `goes_on` was said.

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
        """Handle a record whose predecessors have no entry."""
        last_phy = self._last_phy.get((queue.topic, queue.queue_id), -1)
        if last_phy < 0 and self._start > self._log.min_phy_offset:
            raise EntriesLost(self._last_proven(queue))
        if last_phy < 0:
            queue.restart_at(queue_offset)
            return queue.put_recovered(queue_offset, phy_offset, size_bytes, tags_code)
        missing = queue_offset - queue.max_offset
        if missing > (phy_offset - last_phy) // MIN_RECORD_BYTES:
            self.damaged.append(phy_offset)  # more than the log had room for
            return False
        logger.warning(
            "lost messages leave a hole: topic=%s queue_id=%d queue_offset=%d count=%d",
            queue.topic,
            queue.queue_id,
            queue.max_offset,
            missing,
        )
        for each in range(queue.max_offset, queue_offset):
            queue.put_recovered(each, phy_offset, size_bytes, tags_code)
        return queue.put_recovered(queue_offset, phy_offset, size_bytes, tags_code)

    def _last_proven(self, queue: ConsumeQueue) -> int:
        """Return where the message of the queue's last entry begins, else where the log does."""
        entry = queue.entry(queue.max_offset - 1) if queue.max_offset else None
        if entry is not None and self._log.min_phy_offset <= entry[0] < self._start:
            found = self._log.proven(queue.topic, queue.max_offset - 1, entry[0], entry[1])
            if found is not None:
                return entry[0]
        return self._log.min_phy_offset
