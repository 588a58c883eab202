"""Locks that admit one pop of a queue by a group at a time.

A lock is held during one operation, which never waits for another lock. There are therefore at most
as many locks as requests in progress, and none has to expire.

Source: PopMessageProcessor.QueueLockManager (5.4.0).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class GroupQueue(NamedTuple):
    """A queue as one group reads it.

    Attributes:
        topic: topic of the queue; a retry topic counts as a topic.
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
        """Acquire a lock without waiting; False when another operation holds it."""
        with self._changed:
            if queue in self._held:
                return False
            self._held.add(queue)
        return True

    def unlock(self, queue: GroupQueue) -> None:
        """Release a lock, and wake the threads that wait for one."""
        with self._changed:
            self._held.discard(queue)
            self._changed.notify_all()

    @contextmanager
    def held(self, queue: GroupQueue) -> Iterator[None]:
        """Wait for a lock, and hold it inside the `with` block."""
        with self._changed:
            self._changed.wait_for(lambda: queue not in self._held)
            self._held.add(queue)
        try:
            yield
        finally:
            self.unlock(queue)
