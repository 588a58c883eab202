"""Queue entries that were read from disk and are asked for next, in a few kilobytes a queue.

A consumer that drains a queue takes 32 messages a pull. Its entries come from a file that is opened
for each read, because queues at rest hold no descriptor; so one read brings more than is needed,
and the rest is kept for the pulls that follow. Entries on disk do not change while their queue
lives.
"""

import collections
import threading

from rocketpy.store.consume_queue import ConsumeQueue
from rocketpy.store.queue_entry import ENTRY_BYTES

_MAX_QUEUES = 256


class ReadAhead:
    """Remembers what was read last of each of a few queues; any thread."""

    def __init__(self, max_queues: int = _MAX_QUEUES) -> None:
        """Set the bound; a queue takes what one read brings, 16 KB with the usual settings."""
        self._max_queues = max_queues
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[ConsumeQueue, tuple[int, memoryview]] = (
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
            start, entries = kept
            at = (queue_offset - start) * ENTRY_BYTES
            if 0 <= at < len(entries):
                return entries[at : at + max_bytes]
        found = queue.window(queue_offset, max_bytes)
        with self._lock:
            self._kept.pop(queue, None)
            if found is not None and len(found) > ENTRY_BYTES:
                self._kept[queue] = queue_offset, found
                if len(self._kept) > self._max_queues:
                    self._kept.popitem(last=False)
        return found
