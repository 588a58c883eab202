"""One round of dealing out queues among the members of a group.

Source: RebalanceImpl (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum

from rocketpy.client.group_check import check_group_exists
from rocketpy.client.instance import Instance
from rocketpy.client.process_queue import ProcessQueue
from rocketpy.client.unserved import UnservedTopics
from rocketpy.errors import BrokerError, NoRouteError, RocketPyError
from rocketpy.proto.allocation import Allocation, java_sorted, sorted_queues
from rocketpy.proto.message_queue import MessageQueue

logger: logging.Logger = logging.getLogger(__name__)

PULL_EXPIRED_MS = 120_000


class Balance(IntEnum):
    """How far a round came; that of several topics is the least of theirs."""

    OUTSIDE = 0
    """A broker does not count us as a member yet."""
    WAITING = 1
    """A queue is not to be had yet, or not to be given up."""
    ABSENT = 2
    """Nobody serves a topic."""
    COMPLETE = 3
    """We have all that is ours."""


class Rebalancer:
    """Finds out which queues are ours, gives up the others, takes the new ones.

    Args:
        instance: connections and routes.
        group: whose queues.
        allocate: the group's common rule; None means every queue is ours (broadcasting).
        saw: told the queues that a topic has, in each round.
        owned: the queues we have; changed by `acquire` and `release` only.
        acquire: starts on a queue; False when it is not to be had yet. It may raise
            RocketPyError. Either way it is tried again.
        release: gives a queue up; False when that has to wait for a handler.
        takeover_pause_ms: time for the former owner to store its offset.

    Attributes:
        unserved: topics that no broker has.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        allocate: Allocation | None,
        owned: Mapping[MessageQueue, ProcessQueue],
        *,
        saw: Callable[[str, Sequence[MessageQueue]], None],
        acquire: Callable[[MessageQueue], Awaitable[bool]],
        release: Callable[[ProcessQueue], Awaitable[bool]],
        takeover_pause_ms: int,
    ) -> None:
        self._instance = instance
        self._group = group
        self._allocate = allocate
        self._owned = owned
        self._saw = saw
        self._acquire = acquire
        self._release = release
        self._takeover_pause_ms = takeover_pause_ms
        self.unserved: UnservedTopics = UnservedTopics(group, instance.clock)

    async def round(self, topics: Iterable[str]) -> Balance:
        """Do one round over all topics.

        Returns:
            How far it came: short of COMPLETE, it is to be tried again soon.

        Raises:
            RocketPyError: the last thing that went wrong, after every topic was tried.
        """
        wanted = list(topics)
        failure: RocketPyError | None = None
        balance = Balance.COMPLETE
        for queue in [queue for queue in self._owned if queue.topic not in wanted]:
            if not await self._release(self._owned[queue]):
                balance = Balance.WAITING
        for topic in wanted:
            try:
                balance = min(balance, await self._topic_round(topic))
            except RocketPyError as error:
                failure = error
        if failure is not None:
            raise failure
        return balance

    async def _topic_round(self, topic: str) -> Balance:
        queues = await self._instance.routes.subscribe_queues(topic)
        self._saw(topic, queues)
        self.unserved.note(topic, is_served=bool(queues))
        if not queues:
            return Balance.ABSENT
        alone = True
        client_ids: list[str] = []
        if self._allocate is None:
            mine = set(queues)
        else:
            client_ids = await self._client_ids(topic, queues[0])
            alone = client_ids == [self._instance.client_id]
            if self._instance.client_id not in client_ids:
                self._instance.heartbeat_soon()
            mine = set(self._allocate(self._instance.client_id, sorted_queues(queues), client_ids))
        settled = True
        for queue, process_queue in list(self._owned.items()):
            if queue.topic == topic and (queue not in mine or self._is_over(process_queue)):
                settled = await self._release(process_queue) and settled
        fresh = sorted_queues(mine - self._owned.keys())
        if fresh and not alone and self._takeover_pause_ms:
            await asyncio.sleep(self._takeover_pause_ms / 1000)
        failure: RocketPyError | None = None
        for queue in fresh:
            try:
                settled = await self._acquire(queue) and settled
            except RocketPyError as error:
                failure = error
        if failure is not None:
            raise failure
        if not alone and self._instance.client_id not in client_ids:
            return Balance.OUTSIDE
        return Balance.COMPLETE if settled else Balance.WAITING

    async def _client_ids(self, topic: str, queue: MessageQueue) -> list[str]:
        addresses = self._instance.routes.brokers_of([topic])
        if not addresses:
            raise NoRouteError(f"no broker of topic {topic} is known")
        address = self._instance.rng.choice(addresses)
        api = self._instance.api
        try:
            return java_sorted(await api.consumer_ids(address, self._group))
        except BrokerError:  # it knows no member: of a group that is not there it says no more
            await check_group_exists(self._instance, self._group, queue)
        # As after its restart, which is no failure: it has to hear of us first.
        await self._instance.introduce()
        return java_sorted(await api.consumer_ids(address, self._group))

    def _is_over(self, queue: ProcessQueue) -> bool:
        """Tell whether a queue has to begin afresh, though it is ours."""
        if queue.closing:
            return True
        if queue.paused or queue.is_full() is not None:
            return False
        idle_ms = self._instance.clock.monotonic_ms() - queue.pulled_at_ms
        if idle_ms > PULL_EXPIRED_MS:
            logger.warning(
                "queue %(queue)s was not pulled for %(idle_ms)d ms, starting afresh",
                {"queue": queue.queue, "idle_ms": idle_ms},
            )
            return True
        return False
