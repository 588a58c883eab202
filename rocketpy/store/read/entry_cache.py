"""Cache of queue entries that were read from disk for the next pulls of the same consumers.

A consumer that drains a queue takes 32 messages per pull. Idle queues hold no descriptor, so each
read opens the file; it therefore reads more entries than requested and caches the rest for later
pulls. A consumer that reaches the end of its cached entries gets four times as many with the next
read. Entries on disk never change while their queue exists. The last entries of a read are read
again with the following ones: a pull ends at the end of its entries, and one with a filter would
return only a few messages.

Several groups read one queue at different offsets. A queue therefore caches its last few reads:
each of a few groups finds its own, and a group that closely follows another one uses the other's. A
read that was consumed to its end is replaced by the next one.
"""

import collections
import threading
from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES

_MAX_READS: Final = 256
_MAX_KEPT_BYTES: Final = 4 << 20
_MAX_QUEUE_READS: Final = 8
# Growth factor of sequential reads.
_FURTHER: Final = 4
# Concurrent sequential readers, above which reads have the normal size.
_MOST_READERS: Final = 32
# The last eighth of a requested read is read again by the next one.
_REREAD_PART: Final = 8


class CachedEntries(NamedTuple):
    """Entries of one read of a queue's file.

    Attributes:
        start: queue offset of the first entry.
        entries: complete entries.
        end: bytes of them that serve pulls.
    """

    start: int
    entries: memoryview
    end: int


class EntryCache:
    """Caches the last reads of some queues; safe to use from any thread.

    Attributes:
        kept: reads by `ConsumeQueue.life`, the last one first; tuples are replaced, not changed.
    """

    def __init__(
        self,
        max_reads: int = _MAX_READS,
        max_queue_reads: int = _MAX_QUEUE_READS,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        """Set the limits.

        Args:
            max_reads: most cached reads of all queues.
            max_queue_reads: most cached reads of one queue; a read has 16 KB by default.
            max_kept_bytes: most bytes of all queues; a single queue may have more.
        """
        self._max_reads = max_reads
        self._max_kept_bytes = max_kept_bytes
        self._max_queue_reads = max_queue_reads
        self._lock = threading.Lock()
        self._made_count = 0
        self._made: dict[tuple[object, int], int] = {}
        """Sequence number of each cached read, by a queue's life and start."""
        self._kept_bytes = 0
        self.kept: collections.OrderedDict[object, tuple[CachedEntries, ...]] = (
            collections.OrderedDict()
        )

    def window(self, queue: ConsumeQueue, queue_offset: int, max_bytes: int) -> memoryview | None:
        """Return complete entries from an offset on; see `ConsumeQueue.window`.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        # Views of the tail cost nothing, and the tail still changes.
        if queue.is_in_memory(queue_offset):
            return queue.window(queue_offset, max_bytes)
        life, before = queue.life, -1
        for start, entries, end in self.kept.get(life, ()):
            at = (queue_offset - start) * ENTRY_BYTES
            if 0 <= at < end:
                return entries[at : at + max_bytes]
            if end <= at <= len(entries):
                # The reader has consumed this read to its end, so it is sequential.
                before = start
        asked_bytes = max_bytes
        if before >= 0 and self._is_recent(life, before):
            asked_bytes *= _FURTHER
        found = queue.window(queue_offset, asked_bytes)
        if found is not None and len(found) > ENTRY_BYTES:
            size = len(found)
            # Fewer entries than requested: the read reached the end of the file part.
            is_all = size + ENTRY_BYTES <= asked_bytes
            served = size if is_all else size - min(size, max_bytes) // _REREAD_PART
            self._keep(life, CachedEntries(queue_offset, found, served), before)
            return found[:max_bytes]
        return found

    def _is_recent(self, life: object, start: int) -> bool:
        """Return whether few other reads followed a read, so that it may grow."""
        return self._made_count - self._made.get((life, start), -_MOST_READERS) < _MOST_READERS

    def _keep(self, life: object, read: CachedEntries, before: int) -> None:
        """Cache a read as the latest of its queue, and replace the one that it continues.

        Evicts the oldest read of the queue, or of the oldest queue.
        """
        most = self._max_queue_reads - 1
        with self._lock:
            others = self.kept.pop(life, ())
            left = [each for each in others if each.start not in {before, read.start}]
            self._forget(life, [each for each in others if each.start in {before, read.start}])
            # The oldest reads of the queue are evicted.
            self._forget(life, left[most:])
            self.kept[life] = (read, *left[:most])
            self._made_count += 1
            self._made[life, read.start] = self._made_count
            self._kept_bytes += len(read.entries)
            # The newest queue is never evicted, even if its own reads exceed the limit.
            while len(self.kept) > 1 and (
                len(self._made) > self._max_reads or self._kept_bytes > self._max_kept_bytes
            ):
                self._forget(*self.kept.popitem(last=False))

    def _forget(self, life: object, reads: Iterable[CachedEntries]) -> None:
        """Remove the accounting of evicted reads."""
        for each in reads:
            self._kept_bytes -= len(each.entries)
            self._made.pop((life, each.start), None)
