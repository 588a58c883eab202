"""What all consume queues of a store share: the memory of their tails.

Queues keep entries in memory until a flush has brought them to disk. What they keep together is
bounded: when the disk takes nothing for long, messages are refused before the memory is gone.
"""

import threading
from typing import Final, Protocol

from rocketpy.errors import ResourceShortError

LIMIT_BYTES: Final = 64 << 20
"""Three million entries: a minute of a busy broker whose disk hangs."""
_RELIEF_BYTES: Final = 16 << 20
_SETTLED_AT_ONCE: Final = 256


class TailedQueue(Protocol):
    """A queue with entries in memory.

    Attributes:
        max_offset: queue offset after the last entry.
    """

    max_offset: int

    @property
    def dirty_bytes(self) -> int:
        """Bytes of entries that are not known to be on disk."""
        ...

    def flush(self) -> None:
        """Bring all entries to disk."""
        ...

    def settle(self) -> bool:
        """Give the memory back when every entry is on disk; return whether that was so."""
        ...


class TailMemory:
    """The queues that hold memory, and how much they may.

    Attributes:
        names: held while a file of any queue is created, and while a topic is deleted.
        used_bytes: of all tails; changes under the append lock.
    """

    def __init__(self, append_lock: threading.Lock, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Begin with no queue.

        Args:
            append_lock: held by whoever writes to queues.
            limit_bytes: memory of all tails together.
        """
        self.names: threading.Lock = threading.Lock()
        self.used_bytes: int = 0
        self._append_lock = append_lock
        self._limit_bytes = limit_bytes
        self._queues: dict[TailedQueue, None] = {}

    @property
    def dirty_bytes(self) -> int:
        """Bytes of all queues that are not known to be on disk."""
        return sum(queue.dirty_bytes for queue in self.queues())

    def take(self, size_bytes: int) -> None:
        """Count memory of a tail, or with a negative number what it gives back.

        Raises:
            ResourceShortError: all tails together would be too large.
        """
        if size_bytes > 0 and self.used_bytes + size_bytes > self._limit_bytes:
            raise ResourceShortError(
                f"consume queues hold {self.used_bytes} bytes that the disk has not taken yet"
            )
        self.used_bytes += size_bytes

    def add(self, queue: TailedQueue) -> None:
        """Remember a queue that is about to get an entry (append lock held)."""
        self._queues[queue] = None

    def ends(self) -> dict[TailedQueue, int]:
        """The end offsets of those queues (append lock held)."""
        return {queue: queue.max_offset for queue in self._queues}

    def queues(self) -> list[TailedQueue]:
        """The queues that may have something in memory."""
        with self._append_lock:
            return list(self._queues)

    def settle(self) -> None:
        """Let queues give their memory back that have everything on disk."""
        queues = self.queues()
        for first in range(0, len(queues), _SETTLED_AT_ONCE):
            with self._append_lock:
                for queue in queues[first : first + _SETTLED_AT_ONCE]:
                    if queue.settle():
                        self._queues.pop(queue, None)

    def relieve(self) -> None:
        """Bring all queues to disk when they hold much and nobody else does (at a start).

        Whoever holds the append lock, as a replica does, leaves it to the service that flushes:
        the disk would keep everybody waiting.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        if self.used_bytes > _RELIEF_BYTES and not self._append_lock.locked():
            for queue in self.queues():
                queue.flush()
            self.settle()
