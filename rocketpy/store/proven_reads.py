"""Which messages of former lives of the store were found intact since it was opened.

Such a message is checked when it is first read: the disk may have changed it while nobody looked.
Then it is as good as one written since the start, which is not checked either. What is remembered
is one range of queue offsets a queue, because consumers read queues in order.
"""

import collections
import threading

from rocketpy.store.consume_queue import ConsumeQueue

_MAX_QUEUES = 256


class ProvenReads:
    """Remembers a range of each of some queues, those that were read last; any thread."""

    def __init__(self, max_queues: int = _MAX_QUEUES) -> None:
        """Set the bound; a queue takes about 200 bytes."""
        self._max_queues = max_queues
        self._lock = threading.Lock()
        self._ranges: collections.OrderedDict[ConsumeQueue, tuple[int, int]] = (
            collections.OrderedDict()
        )

    def covers(self, queue: ConsumeQueue, start: int, end: int) -> bool:
        """Whether every message from one queue offset to before another was found intact."""
        first, last = self._ranges.get(queue, (0, 0))
        return first <= start and end <= last

    def add(self, queue: ConsumeQueue, start: int, end: int) -> None:
        """Note that those messages are intact; a range away from the one known replaces it."""
        with self._lock:
            first, last = self._ranges.pop(queue, (start, end))
            if start <= last and first <= end:
                start, end = min(start, first), max(end, last)
            self._ranges[queue] = start, end
            if len(self._ranges) > self._max_queues:
                self._ranges.popitem(last=False)
