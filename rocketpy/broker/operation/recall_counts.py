"""How many recalls wait in each slot of the timer: their ids are in memory while it is delivered.

What calls a message back is a timed message itself, which anybody may send: RECALL_MESSAGE (370)
stores one, and a send with TIMER_DEL_UNIQKEY is one. So they are counted where both come by.
"""

import heapq
import threading
from collections import Counter
from typing import Final

MAX_RECALLS_PER_SLOT: Final = 100_000
"""What the ids of one slot take: 10 MB (`rocketpy.broker.timer.slot_reader`)."""
MAX_COUNTED_SLOTS: Final = 10_000


class RecallCounts:
    """How many recalls this process took for each slot of the timer; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[int] = Counter()

    def take(self, slot: int, slot_now: int) -> bool:
        """Count one more; False when there are too many."""
        with self._lock:
            if self._counts[slot] >= MAX_RECALLS_PER_SLOT:
                return False
            self._counts[slot] += 1
            if len(self._counts) > MAX_COUNTED_SLOTS:
                ahead = {key: n for key, n in self._counts.items() if key >= slot_now}
                most = heapq.nlargest(MAX_COUNTED_SLOTS // 2, ahead, key=ahead.__getitem__)
                self._counts = Counter({key: ahead[key] for key in most})
            return True
