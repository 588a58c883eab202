"""How far a reader has come whose messages are stored again elsewhere, and how far for good.

What a delay or a timer delivers is a new message. Until that is on disk the old one must not be
passed over for good: a power cut would lose both. So there are two positions: where the reader
goes on, and up to where everything it stored is on disk. The second one is what files get.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_MOST_WAITING: Final = 1_024


class DurableProgress:
    """A position that moves on; safe from any thread.

    Args:
        position: where the reader begins.
        flushed_phy_offset: asked up to where the commit log is on disk.
    """

    __slots__ = ("_durable", "_flushed", "_lock", "_waiting", "position")

    def __init__(self, position: int, flushed_phy_offset: Callable[[], int]) -> None:
        self.position: int = position
        self._flushed = flushed_phy_offset
        self._lock = threading.Lock()
        self._durable = position
        self._waiting: deque[tuple[int, int]] = deque()

    def advance(self, position: int, phy_end: int = 0) -> None:
        """Move on.

        Args:
            position: where the reader goes on.
            phy_end: physical offset after what it stored last; 0 when it stored nothing.
        """
        with self._lock:
            self.position = position
            waiting = self._waiting
            if waiting and (phy_end == 0 or len(waiting) >= _MOST_WAITING):
                # Told with the one before it: later than need be, and with bounded memory.
                _, before = waiting.pop()
                phy_end = max(phy_end, before)
            waiting.append((position, phy_end))

    def reset(self, position: int) -> None:
        """Go on somewhere else; what was stored before does not count."""
        with self._lock:
            self.position = self._durable = position
            self._waiting.clear()

    def go_back(self, position: int) -> None:
        """Go on further back; what was stored before still has to get to disk."""
        with self._lock:
            self.position = position
            self._durable = min(self._durable, position)
            waiting = [(min(each, position), end) for each, end in self._waiting]
            self._waiting = deque(waiting)

    @property
    def durable(self) -> int:
        """The position up to which everything stored is on disk."""
        with self._lock:
            flushed, waiting = self._flushed(), self._waiting
            while waiting and waiting[0][1] <= flushed:
                self._durable = waiting.popleft()[0]
            return self._durable
