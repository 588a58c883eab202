"""Locks of an ordered consumer on its queues at brokers: acquired, renewed and released.

A broker releases a lock 60 s after its last renewal, or on request. The consumer relies on a lock
for 30 s only, counted from the request of the last renewal, so that two members never believe that
they have the same lock. A lock that lapsed at the consumer or at the broker is not renewed, because
another member may have had the queue: the queue is released and acquired again, and starts at the
offset that the group has stored by then.

A broker with slaves has a lock table at each replica. A member locks a queue at all of them, the
master first, so that members whose routes differ never deliver a queue at the same time:

    route of the member      locked at                         the handler may run
    master and slaves        all replicas that answer          yes
    slaves only              all slaves that answer            yes, while one of them has the lock
    master is back           slaves                            when the master is locked, too

A queue that any of them refuses is not acquired. A renewal that the master refuses (without a
master: the first slave) releases the queue.

A replica whose connection has ended may have been restarted, which forgets its locks: what it
granted before does not count. The lock is renewed over the next connection.

Apache's clients lock at the master only; their members do not deliver while it is away.

Source: RebalanceImpl.lock, lockAll, unlock, ProcessQueue.isLockExpired (5.4.0).
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.route_table import MASTER_ID
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


SILENT_MS: Final = 30_000
"""Time for which a slave that did not answer is not asked: each queue would wait for it."""


class _Lock(NamedTuple):
    """Lock of a queue.

    Attributes:
        renewed_ms: monotonic time of the last request that was granted; None after a lapse.
        grants: replicas that granted it; for each, the connections to it that had ended before.
    """

    renewed_ms: int | None
    grants: Mapping[str, int]


_NO_LOCK: Final = _Lock(None, {})


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
        self._locks: dict[MessageQueue, _Lock] = {}
        self._silent_until_ms: dict[str, int] = {}  # by address of a slave

    def holds(self, queue: MessageQueue) -> bool:
        """Return whether this member certainly has the queue's lock."""
        return self._is_alive(queue) and self._is_granted(queue)

    def follow_routes(self) -> bool:
        """Forget the grants of replicas that left the routes: they may have been restarted.

        Returns:
            Whether a renewal is needed: locks have no grant that counts any more.
        """
        for queue, lock in self._locks.items():
            present = self._instance.routes.replicas(queue.broker_name).values()
            if lock.grants.keys() - present:
                kept = {each: count for each, count in lock.grants.items() if each in present}
                self._locks[queue] = lock._replace(grants=kept)
        return any(self._is_alive(each) and not self._is_granted(each) for each in self._queues)

    def _is_alive(self, queue: MessageQueue) -> bool:
        lock = self._locks.get(queue)
        if lock is None or lock.renewed_ms is None:
            return False
        return self._instance.clock.monotonic_ms() - lock.renewed_ms <= LOCK_LIFE_MS

    def _is_granted(self, queue: MessageQueue) -> bool:
        """Return whether the master, or without one any slave, still has the lock."""
        routes, grants = self._instance.routes, self._locks[queue].grants
        master = routes.master_address(queue.broker_name)
        # Any slave: another member asks all of them, and one that refuses is enough.
        asked = routes.replicas(queue.broker_name).values() if master is None else (master,)
        return any(grants.get(each) == self._instance.disconnects(each) for each in asked)

    async def take(self, queue: MessageQueue) -> bool:
        """Lock a queue; return False when another member has the lock.

        Raises:
            RocketPyError: the request failed; whether the broker has locked the queue is unknown.
        """
        # Before the request: the broker's time begins after it, so this one ends earlier.
        asked_ms = self._instance.clock.monotonic_ms()
        held, grants = await self._lock(queue.broker_name, [queue], is_new=True)
        if queue not in held:
            # Locked at some replicas only, it would exclude the member that has the others.
            await asyncio.gather(*(self._unlock(address, [queue]) for address in [*grants][:-1]))
            return False
        self._locks[queue] = _Lock(asked_ms, grants)
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
        held, grants = await self._lock(broker_name, queues, is_new=False)
        for queue in queues:
            entry = self._queues.get(queue)
            if entry is None:
                continue
            if queue in held and self._is_alive(queue):
                self._locks[queue] = _Lock(asked_ms, grants)
                continue
            logger.warning(
                "queue lock lapsed: group=%(group)s queue=%(queue)s",
                {"group": self._group, "queue": queue},
            )
            # Kept for the release, which unlocks at replicas that granted it; the first refused it.
            granted = {**self._locks.get(queue, _NO_LOCK).grants, **grants}
            if queue not in held:
                granted.pop(next(iter(grants)))
            self._locks[queue] = _Lock(None, granted)
            # Before the rebalance, which releases queues that are closing.
            entry.closing = True
            self._lapsed()

    async def give_back(self, queues: Iterable[MessageQueue]) -> None:
        """Release the locks of queues, at all brokers concurrently.

        A failure is logged; other members then wait until the locks expire.
        """
        held: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            # Removed before the request: another member may get the lock at any moment.
            lock = self._locks.pop(queue, None)
            for address in () if lock is None else lock.grants:
                held[address].append(queue)
        await asyncio.gather(*(self._unlock(address, each) for address, each in held.items()))

    async def _unlock(self, address: str, queues: list[MessageQueue]) -> None:
        try:
            client_id = self._instance.client_id
            await self._instance.api.unlock_queues(address, self._group, client_id, queues)
        except RocketPyError as error:
            logger.info(
                "queue locks not released: queues=%(queues)s error=%(error)r",
                {"queues": queues, "error": error},
            )

    async def _lock(
        self, broker_name: str, queues: Iterable[MessageQueue], *, is_new: bool
    ) -> tuple[set[MessageQueue], dict[str, int]]:
        """Lock queues at the replicas of a broker, in the order of their ids.

        In this order, because two members that began at different replicas would refuse each other.

        Args:
            broker_name: the broker.
            queues: of the broker.
            is_new: whether every replica must grant a lock; of a renewal, the first one decides.
                A slave forgets its locks when it is restarted, which must not end those of the
                master.

        Returns:
            The queues that are locked, and the replicas that answered, in this order, each with
            the connections that had ended when it was asked; those after one that refused all
            queues are not asked.

        Raises:
            RocketPyError: the master did not answer, or no replica did.
        """
        held = set(queues)
        answered: dict[str, int] = {}
        failure: RocketPyError = NoRouteError(f"broker {broker_name} has no address")
        for broker_id, address in sorted(self._instance.routes.replicas(broker_name).items()):
            if broker_id != MASTER_ID and self._is_silent(address):
                continue
            disconnects = self._instance.disconnects(address)
            try:
                granted = await self._lock_at(address, held)
            except RocketPyError as error:
                if broker_id == MASTER_ID:
                    raise
                failure = error
                now_ms = self._instance.clock.monotonic_ms()
                self._silent_until_ms[address] = now_ms + SILENT_MS
                continue
            if answered and held - granted:
                # A slave may have learned of the group after it got our heartbeat.
                self._instance.heartbeat_soon()
            if is_new or not answered:
                held &= granted
            answered[address] = disconnects
            if not held:
                break
        if not answered:
            self._silent_until_ms.clear()
            raise failure
        return held, answered

    async def _lock_at(self, address: str, queues: set[MessageQueue]) -> set[MessageQueue]:
        # A broker refuses clients that it does not know, as after its restart.
        if not await self._instance.introduce_to(address):
            raise NoRouteError(f"broker at {address} has not accepted a heartbeat yet")
        client_id = self._instance.client_id
        return await self._instance.api.lock_queues(address, self._group, client_id, queues)

    def _is_silent(self, address: str) -> bool:
        return self._instance.clock.monotonic_ms() < self._silent_until_ms.get(address, 0)
