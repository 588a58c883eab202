"""Memory budget for the unflushed entries of all consume queues.

Queues keep entries in memory until they are flushed. Their total is bounded: if the disk hangs,
messages are rejected before the process runs out of memory.
"""

import threading
from typing import Final, Protocol

from rocketpy.errors import ResourceShortError

LIMIT_BYTES: Final = 64 << 20
"""Three million entries: one minute of a busy broker whose disk hangs."""
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
        """Bytes of entries that are not flushed."""
        ...

    def flush(self) -> None:
        """Flush all entries to disk."""
        ...

    def settle(self) -> bool:
        """Free the memory if every entry is on disk; return whether it was freed."""
        ...


class TailMemory:
    """Queues with unflushed entries and their memory, up to a limit.

    Attributes:
        file_creation_lock: held while a file of any queue is created, and while a topic is deleted.
        used_bytes: memory of all tails; changes under the append lock.
    """

    def __init__(self, append_lock: threading.Lock, *, limit_bytes: int = LIMIT_BYTES) -> None:
        """Create an empty budget.

        Args:
            append_lock: held by the thread that writes to queues.
            limit_bytes: memory of all tails together.
        """
        self.file_creation_lock: threading.Lock = threading.Lock()
        self.used_bytes: int = 0
        self._append_lock = append_lock
        self._limit_bytes = limit_bytes
        self._queues: dict[TailedQueue, None] = {}

    @property
    def dirty_bytes(self) -> int:
        """Unflushed bytes of all queues."""
        return sum(queue.dirty_bytes for queue in self.queues())

    def take(self, size_bytes: int) -> None:
        """Add to the used memory; a negative number frees memory.

        Raises:
            ResourceShortError: all tails together would be too large.
        """
        if size_bytes > 0 and self.used_bytes + size_bytes > self._limit_bytes:
            raise ResourceShortError(
                f"consume queues hold {self.used_bytes} bytes that are not flushed yet"
            )
        self.used_bytes += size_bytes

    def add(self, queue: TailedQueue) -> None:
        """Register a queue before it gets an entry (append lock held)."""
        self._queues[queue] = None

    def ends(self) -> dict[TailedQueue, int]:
        """Return the end offsets of the registered queues (append lock held)."""
        return {queue: queue.max_offset for queue in self._queues}

    def queues(self) -> list[TailedQueue]:
        """Return the queues that may have entries in memory."""
        with self._append_lock:
            return list(self._queues)

    def settle(self) -> None:
        """Free the memory of queues whose entries are all on disk."""
        queues = self.queues()
        for first in range(0, len(queues), _SETTLED_AT_ONCE):
            with self._append_lock:
                for queue in queues[first : first + _SETTLED_AT_ONCE]:
                    if queue.settle():
                        self._queues.pop(queue, None)

    def relieve(self) -> None:
        """Flush all queues when they hold much memory, unless any thread holds the append lock.

        At a start no thread holds it. If the caller holds it, like a replica, a flush here would
        make all other threads wait for the disk, and the flush service does it instead. The lock
        does not tell its owner, so an append on another thread has the same effect.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        if self.used_bytes > _RELIEF_BYTES and not self._append_lock.locked():
            for queue in self.queues():
                queue.flush()
            self.settle()
