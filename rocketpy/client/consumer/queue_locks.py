"""Locks of an ordered consumer on its queues at brokers: acquired, renewed and released.

A broker releases a lock 60 s after its last renewal, or on request. The consumer relies on a lock
for 30 s only, counted from the request of the last renewal, so that two members never believe that
they have the same lock. A lock that lapsed at the consumer or at the broker is not renewed, because
another member may have had the queue: the queue is released and acquired again, and starts at the
offset that the group has stored by then.

Source: RebalanceImpl.lock, lockAll, unlock, ProcessQueue.isLockExpired (5.4.0).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.errors import NoRouteError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue

logger: logging.Logger = logging.getLogger(__name__)

# Both as in Apache's clients (REBALANCE_LOCK_MAX_LIVE_TIME, REBALANCE_LOCK_INTERVAL).
LOCK_LIFE_MS: Final = 30_000
"""Time that a consumer relies on a lock. Half of the broker's 60 s (`LOCK_LIFE_MS` of
`rocketpy.broker.clients.queue_locks`), so that it stops before another member can get the lock."""
RENEW_INTERVAL_MS: Final = 20_000


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """Return queues by the name of their broker."""
    found: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        found[queue.broker_name].append(queue)
    return found


class QueueLockKeeper:
    """Locks of one consumer's queues.

    Args:
        instance: connections and routes.
        group: the consumer's group.
        queues: the queues that the consumer has.
        lapsed: called when a lock has lapsed, after its queue was marked `closing`.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        queues: Mapping[MessageQueue, ProcessQueue],
        lapsed: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._group = group
        self._queues = queues
        self._lapsed = lapsed
        self._renewed_ms: dict[MessageQueue, int] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Return whether this member surely has the queue's lock."""
        renewed_ms = self._renewed_ms.get(queue)
        if renewed_ms is None:
            return False
        return self._instance.clock.monotonic_ms() - renewed_ms <= LOCK_LIFE_MS

    async def take(self, queue: MessageQueue) -> bool:
        """Lock a queue; return False when another member has the lock.

        Raises:
            RocketPyError: the request failed; whether the broker has locked the queue is unknown.
        """
        # Before the request: the broker's time begins after it, so this one ends earlier.
        asked_ms = self._instance.clock.monotonic_ms()
        if queue not in await self._lock(queue.broker_name, [queue]):
            return False
        self._renewed_ms[queue] = asked_ms
        return True

    async def renew(self) -> None:
        """Renew the locks of all queues, one broker after another.

        Raises:
            RocketPyError: the last failure, after every broker was asked.
        """
        failure: RocketPyError | None = None
        for broker_name, queues in by_broker(self._queues).items():
            try:
                await self._renew(broker_name, queues)
            except RocketPyError as error:
                failure = error
        if failure is not None:
            raise failure

    async def _renew(self, broker_name: str, queues: list[MessageQueue]) -> None:
        # A queue that was released while another broker was asked: locked again, it would be
        # withheld from its next owner until the lock expires.
        queues = [each for each in queues if each in self._queues]
        if not queues:
            return
        asked_ms = self._instance.clock.monotonic_ms()
        held = await self._lock(broker_name, queues)
        for queue in queues:
            entry = self._queues.get(queue)
            if entry is None:
                continue
            if queue in held and self.holds(queue):
                self._renewed_ms[queue] = asked_ms
                continue
            logger.warning(
                "queue lock lapsed: group=%(group)s queue=%(queue)s",
                {"group": self._group, "queue": queue},
            )
            self._renewed_ms.pop(queue, None)
            # Before the rebalance, which releases queues that are closing.
            entry.closing = True
            self._lapsed()

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Release the locks of queues, at all brokers concurrently.

        A failure is logged; other members then wait until the locks expire.
        """
        # Removed before the request: the broker may give the lock to another member at any moment.
        held = [queue for queue in queues if self._renewed_ms.pop(queue, None) is not None]
        await asyncio.gather(
            *(self._unlock(broker_name, each) for broker_name, each in by_broker(held).items())
        )

    async def _unlock(self, broker_name: str, queues: list[MessageQueue]) -> None:
        try:
            address = self._address(broker_name)
            client_id = self._instance.client_id
            await self._instance.api.unlock_queues(address, self._group, client_id, queues)
        except RocketPyError as error:
            logger.info(
                "queue locks not released: queues=%(queues)s error=%(error)r",
                {"queues": queues, "error": error},
            )

    async def _lock(self, broker_name: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        address = self._address(broker_name)
        client_id = self._instance.client_id
        return await self._instance.api.lock_queues(address, self._group, client_id, queues)

    def _address(self, broker_name: str) -> str:
        address = self._instance.routes.master_address(broker_name)
        if address is None:
            raise NoRouteError(f"broker {broker_name} has no master")
        return address
