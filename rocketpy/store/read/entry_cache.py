"""Queue entries that were read from disk and are asked for next, in a few kilobytes a reader.

A consumer that drains a queue takes 32 messages a pull. Its entries come from a file that is opened
for each read, because queues at rest hold no descriptor; so one read brings more than is needed,
and the rest is kept for the pulls that follow; whoever comes to its end gets four times as much
with the next one. Entries on disk do not change while their queue lives. The last of what one read
brought are read again with those that follow them: a pull ends where its entries do, and one with a
filter would bring a few messages only.

Several groups read one queue, each at its own place. So a queue keeps what its last few reads
brought: each of a few groups finds its own, and one that follows another closely finds the other's.
What somebody read to its end is given up for what follows it.
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
_FURTHER: Final = 4
"""So many times as much is read for whoever reads on."""
_MOST_READERS: Final = 32
"""Of those who drain at the same time, before each is given the usual amount only."""
_REREAD_PART: Final = 8
"""The last of a read is read again: an eighth of what is asked for."""


class CachedEntries(NamedTuple):
    """What one read of a queue's file brought.

    Attributes:
        start: queue offset of the first entry.
        entries: whole ones.
        end: bytes of them from which pulls are served.
    """

    start: int
    entries: memoryview
    end: int


class EntryCache:
    """Remembers what was read last of each of a few queues; any thread.

    Attributes:
        kept: reads by `ConsumeQueue.life`, the last one first; each tuple is replaced as a whole.
    """

    def __init__(
        self,
        max_reads: int = _MAX_READS,
        max_queue_reads: int = _MAX_QUEUE_READS,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        """Set the bounds.

        Args:
            max_reads: of all queues.
            max_queue_reads: of one; with the usual settings a read brings 16 KB.
            max_kept_bytes: of all queues; a queue's own may be more.
        """
        self._max_reads = max_reads
        self._max_kept_bytes = max_kept_bytes
        self._max_queue_reads = max_queue_reads
        self._lock = threading.Lock()
        self._made_count = 0
        self._made: dict[tuple[object, int], int] = {}
        """How many reads were made before each that is kept, by a queue's life and start."""
        self._kept_bytes = 0
        self.kept: collections.OrderedDict[object, tuple[CachedEntries, ...]] = (
            collections.OrderedDict()
        )

    def window(self, queue: ConsumeQueue, queue_offset: int, max_bytes: int) -> memoryview | None:
        """Return whole entries from an offset on; see `ConsumeQueue.window`.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        if queue.is_in_memory(queue_offset):
            return queue.window(queue_offset, max_bytes)
        life, before = queue.life, -1
        for start, entries, end in self.kept.get(life, ()):
            at = (queue_offset - start) * ENTRY_BYTES
            if 0 <= at < end:
                return entries[at : at + max_bytes]
            if end <= at <= len(entries):
                before = start
        asked_bytes = max_bytes
        if before >= 0 and self._is_recent(life, before):
            asked_bytes *= _FURTHER
        found = queue.window(queue_offset, asked_bytes)
        if found is not None and len(found) > ENTRY_BYTES:
            size = len(found)
            is_all = size + ENTRY_BYTES <= asked_bytes
            served = size if is_all else size - min(size, max_bytes) // _REREAD_PART
            self._keep(life, CachedEntries(queue_offset, found, served), before)
            return found[:max_bytes]
        return found

    def _is_recent(self, life: object, start: int) -> bool:
        """Whether few others have read since a read was made: then there is room for more."""
        return self._made_count - self._made.get((life, start), -_MOST_READERS) < _MOST_READERS

    def _keep(self, life: object, read: CachedEntries, before: int) -> None:
        """Keep a read before the others of its queue, in place of the one it goes on from.

        The oldest one of the queue goes, or the oldest queue's.
        """
        most = self._max_queue_reads - 1
        with self._lock:
            others = self.kept.pop(life, ())
            left = [each for each in others if each.start not in {before, read.start}]
            self._forget(life, [each for each in others if each.start in {before, read.start}])
            self._forget(life, left[most:])
            self.kept[life] = (read, *left[:most])
            self._made_count += 1
            self._made[life, read.start] = self._made_count
            self._kept_bytes += len(read.entries)
            while len(self.kept) > 1 and (
                len(self._made) > self._max_reads or self._kept_bytes > self._max_kept_bytes
            ):
                self._forget(*self.kept.popitem(last=False))

    def _forget(self, life: object, reads: Iterable[CachedEntries]) -> None:
        """Count reads no more that are not kept any longer."""
        for each in reads:
            self._kept_bytes -= len(each.entries)
            self._made.pop((life, each.start), None)
