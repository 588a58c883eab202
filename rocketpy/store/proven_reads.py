"""Which messages of former lives of the store were found intact since it was opened.

Such a message is checked when it is first read: the disk may have changed it while nobody looked.
Then it is as good as one written since the start, which is not checked either. What is remembered
is a few ranges of queue offsets a queue: consumers read queues in order, but one that asks ahead
reads the rest of a response that was cut after what lies behind it.
"""

import collections
import threading

from rocketpy.store.consume_queue import ConsumeQueue

_MAX_QUEUES = 256
_MAX_RANGES = 8
"""Of a queue; those of the most messages stay."""


class ProvenReads:
    """Remembers ranges of each of some queues, those that were read last; any thread."""

    def __init__(self, max_queues: int = _MAX_QUEUES, max_ranges: int = _MAX_RANGES) -> None:
        """Set the bounds; a queue takes about 200 bytes, and a range 130."""
        self._max_queues = max_queues
        self._max_ranges = max_ranges
        self._lock = threading.Lock()
        self._ranges: collections.OrderedDict[object, list[tuple[int, int]]] = (
            collections.OrderedDict()
        )

    def covers(self, queue: ConsumeQueue, start: int, end: int) -> bool:
        """Whether every message from one queue offset to before another was found intact."""
        return any(
            first <= start and end <= last for first, last in self._ranges.get(queue.life, ())
        )

    def end_behind(self, queue: ConsumeQueue, start: int) -> int:
        """Return before which offset every message from `start` on was found intact."""
        ranges = self._ranges.get(queue.life, ())
        return max((last for first, last in ranges if first <= start < last), default=start)

    def add(self, queue: ConsumeQueue, start: int, end: int) -> None:
        """Note that those messages are intact; of too many ranges the smallest is forgotten."""
        with self._lock:
            apart: list[tuple[int, int]] = []
            for first, last in self._ranges.pop(queue.life, ()):
                if start <= last and first <= end:
                    start, end = min(start, first), max(end, last)
                else:
                    apart.append((first, last))
            if len(apart) >= self._max_ranges:
                apart.remove(min(apart, key=lambda each: each[1] - each[0]))
            self._ranges[queue.life] = [*apart, (start, end)]
            if len(self._ranges) > self._max_queues:
                self._ranges.popitem(last=False)
