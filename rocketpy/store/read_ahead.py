"""Queue entries that were read from disk and are asked for next, in a few kilobytes a reader.

A consumer that drains a queue takes 32 messages a pull. Its entries come from a file that is opened
for each read, because queues at rest hold no descriptor; so one read brings more than is needed,
and the rest is kept for the pulls that follow; whoever comes to its end gets four times as much
with the next one. Entries on disk do not change while their queue lives. The last of what one read
brought are read again with those that follow them: a pull ends where its entries do, and one with a
filter would bring a few messages only.

Several groups read one queue, each at its own place. So a queue keeps what its last few reads
brought: each of a few groups finds its own, and one that follows another closely finds the other's.
"""

import collections
import threading
from typing import Final, NamedTuple

from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.queue_entry import ENTRY_BYTES

_MAX_KEPT_BYTES: Final = 4 << 20
_MAX_QUEUE_READS: Final = 8
_FURTHER: Final = 4
"""So many times as much is read for whoever reads on."""
_REREAD_PART: Final = 8
"""The last of a read is read again: an eighth of what is asked for."""


class KeptRead(NamedTuple):
    """What one read of a queue's file brought.

    Attributes:
        start: queue offset of the first entry.
        entries: whole ones.
        end: bytes of them from which pulls are served.
    """

    start: int
    entries: memoryview
    end: int


class ReadAhead:
    """Remembers what was read last of each of a few queues; any thread.

    Attributes:
        kept: reads by queue, the last one first; each tuple is replaced as a whole.
    """

    def __init__(
        self, max_kept_bytes: int = _MAX_KEPT_BYTES, max_queue_reads: int = _MAX_QUEUE_READS
    ) -> None:
        """Set the bounds: bytes of all queues, reads of one; 16 KB are asked for, as a rule."""
        self._max_kept_bytes = max_kept_bytes
        self._max_queue_reads = max_queue_reads
        self._lock = threading.Lock()
        self._kept_bytes = 0
        self.kept: collections.OrderedDict[ConsumeQueue, tuple[KeptRead, ...]] = (
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
        reads_on = False
        for start, entries, end in self.kept.get(queue, ()):
            at = (queue_offset - start) * ENTRY_BYTES
            if 0 <= at < end:
                return entries[at : at + max_bytes]
            reads_on |= end <= at <= len(entries)
        asked_bytes = max_bytes
        if reads_on and 2 * self._kept_bytes < self._max_kept_bytes:
            asked_bytes *= _FURTHER
        found = queue.window(queue_offset, asked_bytes)
        if found is not None and len(found) > ENTRY_BYTES:
            size = len(found)
            is_all = size + ENTRY_BYTES <= asked_bytes
            served = size if is_all else size - min(size, max_bytes) // _REREAD_PART
            self._keep(queue, KeptRead(queue_offset, found, served))
            return found[:max_bytes]
        return found

    def _keep(self, queue: ConsumeQueue, read: KeptRead) -> None:
        """Keep a read before the others of its queue; the oldest, or the oldest queue, goes."""
        with self._lock:
            others = self.kept.pop(queue, ())
            left = (read, *others[: self._max_queue_reads - 1])
            self.kept[queue] = left
            self._kept_bytes += _bytes_of(left) - _bytes_of(others)
            while self._kept_bytes > self._max_kept_bytes and len(self.kept) > 1:
                self._kept_bytes -= _bytes_of(self.kept.popitem(last=False)[1])


def _bytes_of(reads: tuple[KeptRead, ...]) -> int:
    return sum(len(read.entries) for read in reads)
