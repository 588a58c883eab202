"""Queue entries that were read from disk and are asked for next, in a few kilobytes a queue.

A consumer that drains a queue takes 32 messages a pull. Its entries come from a file that is opened
for each read, because queues at rest hold no descriptor; so one read brings more than is needed,
and the rest is kept for the pulls that follow. Entries on disk do not change while their queue
lives. The last of what one read brought are read again with those that follow them: a pull ends
where its entries do, and one with a filter would bring a few messages only.
"""

import collections
import threading

from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.queue_entry import ENTRY_BYTES

_MAX_QUEUES = 256
_REREAD_PART = 8
"""The last eighth of a read is read again."""


class ReadAhead:
    """Remembers what was read last of each of a few queues; any thread."""

    def __init__(self, max_queues: int = _MAX_QUEUES) -> None:
        """Set the bound; a queue takes what one read brings, 16 KB with the usual settings."""
        self._max_queues = max_queues
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[ConsumeQueue, tuple[int, memoryview, int]] = (
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
        kept = self._kept.get(queue)
        if kept is not None:
            start, entries, end = kept
            at = (queue_offset - start) * ENTRY_BYTES
            if 0 <= at < end:
                return entries[at : at + max_bytes]
        found = queue.window(queue_offset, max_bytes)
        with self._lock:
            self._kept.pop(queue, None)
            if found is not None and len(found) > ENTRY_BYTES:
                size = len(found)
                is_all = size + ENTRY_BYTES <= max_bytes
                served = size if is_all else size - size // _REREAD_PART
                self._kept[queue] = queue_offset, found, served
                if len(self._kept) > self._max_queues:
                    self._kept.popitem(last=False)
        return found
