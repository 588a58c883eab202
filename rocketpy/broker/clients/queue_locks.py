"""Queue locks of ordered consumers; a lock expires after 60 s unless it is renewed.

A client stops using a lock 30 s after its last renewal (`rocketpy.client.consumer.queue_locks`).
The broker's longer life, as in Apache, ensures that no other client gets the lock before that, in
spite of slow answers.

Locks are kept in the order of their last renewal, so expired ones are at the front.

Source: RebalanceLockManager.java (5.4.0).
"""

import collections
import threading
from collections.abc import Iterable
from typing import Final

LOCK_LIFE_MS: Final = 60_000
EXPIRY_INTERVAL_MS: Final = 10_000
MAX_LOCKS: Final = 100_000
"""Locks of all groups together, because clients choose the names; Apache has no bound."""


class QueueLocks:
    """Locks of queues by group, each held by a client id; safe from any thread.

    Topics and members are not checked here, but in `rocketpy.broker.operation.lock_queues`. It is
    also the background service that removes expired locks; see `step`.

    Args:
        max_locks: maximal number of locks; further ones are not granted.
    """

    name = "QueueLocks"

    def __init__(self, max_locks: int = MAX_LOCKS) -> None:
        self._max_locks = max_locks
        self._lock = threading.Lock()
        # (group, topic, queue id) -> (client id, monotonic time of the last renewal)
        self._owners: collections.OrderedDict[tuple[str, str, int], tuple[str, int]] = (
            collections.OrderedDict()
        )
        self._by_group: collections.Counter[str] = collections.Counter()

    def __len__(self) -> int:
        return len(self._owners)

    def lock(self, group: str, topic: str, queue_id: int, client_id: str, now_ms: int) -> bool:
        """Acquire or renew a lock.

        Args:
            group: consumer group.
            topic: topic of the queue.
            queue_id: queue within the topic.
            client_id: the client that asks for it.
            now_ms: monotonic time.

        Returns:
            Whether the client holds the lock now.
        """
        key = (group, topic, queue_id)
        with self._lock:
            self._expire(now_ms)
            owner = self._owners.get(key)
            if owner is None and len(self._owners) >= self._max_locks:
                return False
            if owner is not None and owner[0] != client_id:
                return False
            if owner is None:
                self._by_group[group] += 1
            self._owners[key] = (client_id, now_ms)
            self._owners.move_to_end(key)
        return True

    def has_any(self, group: str, now_ms: int) -> bool:
        """Return whether a member of the group holds a lock, so the group consumes in order.

        Args:
            group: consumer group.
            now_ms: monotonic time.
        """
        with self._lock:
            self._expire(now_ms)
            return group in self._by_group

    def unlock(self, group: str, queues: Iterable[tuple[str, int]], client_id: str) -> None:
        """Release locks of (topic, queue id); locks of other clients stay."""
        with self._lock:
            for topic, queue_id in queues:
                owner = self._owners.get((group, topic, queue_id))
                if owner is not None and owner[0] == client_id:
                    self._remove((group, topic, queue_id))

    def step(self, now_ms: int) -> int:
        """Remove expired locks; see `rocketpy.runtime.service.Service.step`."""
        with self._lock:
            self._expire(now_ms)
        return now_ms + EXPIRY_INTERVAL_MS

    def _expire(self, now_ms: int) -> None:
        owners = self._owners
        while owners:
            key, (_, renewed_ms) = next(iter(owners.items()))
            if now_ms - renewed_ms <= LOCK_LIFE_MS:
                return
            self._remove(key)

    def _remove(self, key: tuple[str, str, int]) -> None:
        del self._owners[key]
        group = key[0]
        self._by_group[group] -= 1
        if not self._by_group[group]:
            del self._by_group[group]
