"""Progress of a reader that stores messages again: its position, and the durable part of it.

A delay level or the timer delivers a message by storing a new one. Before the new one is on disk,
the stored progress must not advance beyond the old one: a power cut would lose both. In a group
with a controller the same holds until the replicas have it: the log of a lost master is cut, and
this broker may be elected again. So there are two positions: where the reader continues, and a
durable one before which everything that the reader stored stays. Only the durable position is
written to files.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_MOST_WAITING: Final = 1_024
"""Bound on the positions that wait for a flush, so that a hanging disk does not fill the memory."""


class DurableProgress:
    """A position that moves forward; safe from any thread.

    Args:
        position: where the reader starts.
        kept_phy_offset: returns the end of the commit log that stays.
    """

    __slots__ = ("_durable", "_kept", "_lock", "_waiting", "position")

    def __init__(self, position: int, kept_phy_offset: Callable[[], int]) -> None:
        self.position: int = position
        self._kept = kept_phy_offset
        self._lock = threading.Lock()
        self._durable = position
        self._waiting: deque[tuple[int, int]] = deque()

    def advance(self, position: int, phy_end: int = 0) -> None:
        """Advance the position.

        Args:
            position: where the reader continues.
            phy_end: end of what it stored last in the log; 0 when it stored nothing.
        """
        with self._lock:
            self.position = position
            waiting = self._waiting
            if waiting and (phy_end == 0 or len(waiting) >= _MOST_WAITING):
                # Merged with the entry before: durable later than necessary, in bounded memory.
                _, before = waiting.pop()
                phy_end = max(phy_end, before)
            waiting.append((position, phy_end))

    def reset(self, position: int) -> None:
        """Continue at another position; nothing that was stored before counts."""
        with self._lock:
            self.position = self._durable = position
            self._waiting.clear()

    def go_back(self, position: int) -> None:
        """Continue at an earlier position; messages stored before must still become durable."""
        with self._lock:
            self.position = position
            self._durable = min(self._durable, position)
            waiting = [(min(each, position), end) for each, end in self._waiting]
            self._waiting = deque(waiting)

    @property
    def durable(self) -> int:
        """Position up to which everything stored stays."""
        with self._lock:
            kept, waiting = self._kept(), self._waiting
            while waiting and waiting[0][1] <= kept:
                self._durable = waiting.popleft()[0]
            return self._durable
