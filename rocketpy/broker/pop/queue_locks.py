"""One pop of a queue by a group at a time.

A lock is held for one operation, which waits for nothing: so there are as many of them as requests
are under way, and none is left behind.

Source: PopMessageProcessor.QueueLockManager (5.4.0).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class GroupQueue(NamedTuple):
    """A queue as one group reads it.

    Attributes:
        topic: of the queue; a retry topic is one of its own.
        group: consumer group.
        queue_id: queue within the topic.
    """

    topic: str
    group: str
    queue_id: int


class PopLocks:
    """Locks by queue and group; safe from any thread."""

    def __init__(self) -> None:
        self._held: set[GroupQueue] = set()
        self._changed = threading.Condition()

    def try_lock(self, queue: GroupQueue) -> bool:
        """Take a lock; False when somebody has it."""
        with self._changed:
            if queue in self._held:
                return False
            self._held.add(queue)
        return True

    def unlock(self, queue: GroupQueue) -> None:
        """Give a lock back."""
        with self._changed:
            self._held.discard(queue)
            self._changed.notify_all()

    @contextmanager
    def held(self, queue: GroupQueue) -> Iterator[None]:
        """Wait for a lock and keep it for what is done inside."""
        with self._changed:
            self._changed.wait_for(lambda: queue not in self._held)
            self._held.add(queue)
        try:
            yield
        finally:
            self.unlock(queue)
