"""Which client may consume a queue in order: locks that live 60 s unless renewed.

Source: RebalanceLockManager.java (5.4.0).
"""

import threading
from collections.abc import Iterable
from typing import Final

from rocketpy.proto.message_queue import MessageQueue

LOCK_LIFE_MS: Final = 60_000


class QueueLocks:
    """Locks of (group, queue), each held by a client id; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int
    ) -> list[MessageQueue]:
        """Take or renew locks.

        Args:
            group: consumer group.
            queues: what the client wants.
            client_id: who wants it.
            now_ms: monotonic time, ms.

        Returns:
            Those of `queues` that the client holds now.
        """
        held: list[MessageQueue] = []
        with self._lock:
            owners = self._owners.setdefault(group, {})
            for queue in queues:
                owner = owners.get(queue)
                if owner is None or owner[0] == client_id or now_ms - owner[1] > LOCK_LIFE_MS:
                    owners[queue] = (client_id, now_ms)
                    held.append(queue)
        return held

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give locks back; those of others stay."""
        with self._lock:
            owners = self._owners.get(group, {})
            for queue in queues:
                owner = owners.get(queue)
                if owner is not None and owner[0] == client_id:
                    del owners[queue]
            if not owners:
                self._owners.pop(group, None)
