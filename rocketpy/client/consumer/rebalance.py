"""Rebalance of a group's queues among its members.

Each member computes the same assignment by the group's rule (`rocketpy.proto.allocation`, which
brokers use, too), acquires its queues and releases the others.

A broker ignores heartbeats of a group that it does not have. A later request for the members of the
group fails with the same error as for a group without members. The response to a pull shows whether
the group exists (`check_group_exists`).

A consumer often starts a moment before the first message creates its topic. A missing topic is
therefore logged as a warning only when it does not appear soon.

Source: RebalanceImpl (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import AllocationName
from rocketpy.client.consumer.offset_store import read_address
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    NoRouteError,
    RequestTimeoutError,
    RocketPyError,
    SubscriptionGroupNotExistError,
)
from rocketpy.proto.allocation import (
    Allocation,
    allocate_average,
    allocate_circle,
    consistent_hash,
    java_sorted,
    sorted_queues,
)
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.clock import Clock

_RULES: Final[dict[str, Allocation]] = {
    "avg": allocate_average,
    "circle": allocate_circle,
    "consistent_hash": consistent_hash(),
}


def find_allocation(chosen: AllocationName | Allocation) -> Allocation:
    """Return the rule of that name, or the function itself."""
    return chosen if callable(chosen) else _RULES[chosen]


_TIMEOUT_MS: Final = 3_000
_SILENCE: Final = (ConnectError, ConnectionLostError, RequestTimeoutError)
"""Failures of a broker, instead of refusals by it."""
_OTHER_BROKERS: Final = 2
"""Brokers that are asked for the members after the first one has failed."""


async def check_group_exists(instance: Instance, group: str, queue: MessageQueue) -> None:
    """Check that a group exists, by a pull without effect, for a client that is not a member.

    A heartbeat follows: once the group is created, only a heartbeat makes this client a member.

    Raises:
        SubscriptionGroupNotExistError: the broker does not have the group and does not create it.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        bname=queue.broker_name,
    )
    instance.heartbeat_soon()
    try:
        address = read_address(instance, queue)
        await instance.api.pull(address, header, _TIMEOUT_MS)
    except SubscriptionGroupNotExistError:
        raise
    except RocketPyError:  # says nothing about the group; the caller tries again
        return


logger: logging.Logger = logging.getLogger(__name__)

WARN_AFTER_MS: Final = 10_000


class MissingTopics:
    """Subscribed topics of one consumer that no broker serves.

    Args:
        group: its group, for the log.
        clock: measures how long a topic has been missing (monotonic).
    """

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._missed_ms: dict[str, int] = {}  # start of its absence, by topic
        self._warned: set[str] = set()  # topics that a warning has named

    def note(self, topic: str, *, is_served: bool) -> None:
        """Record the result of a look-up.

        Retry topics are ignored: a broker creates one with the first redelivery of its group.
        """
        if topic.startswith(RETRY_PREFIX):
            return
        if is_served:
            if self._missed_ms.pop(topic, None) is not None:
                self._note_served(topic)
            return
        now_ms = self._clock.monotonic_ms()
        if topic not in self._missed_ms:
            self._missed_ms[topic] = now_ms
            self._log(
                logging.INFO, "topic does not exist yet: topic=%(topic)s group=%(group)s", topic
            )
        elif topic not in self._warned and now_ms - self._missed_ms[topic] >= WARN_AFTER_MS:
            self._warned.add(topic)
            text = (
                "no broker has the topic, create it or check its name, look-up repeated: "
                "topic=%(topic)s group=%(group)s"
            )
            self._log(logging.WARNING, text, topic)

    def _note_served(self, topic: str) -> None:
        level = logging.WARNING if topic in self._warned else logging.INFO
        self._warned.discard(topic)
        self._log(level, "topic exists now: topic=%(topic)s group=%(group)s", topic)

    def _log(self, level: int, text: str, topic: str) -> None:
        logger.log(level, text, {"topic": topic, "group": self._group})

    def failures(self) -> dict[str, str]:
        """Return the missing topics as failures of `health()`."""
        return {
            f"topic {topic}": "no broker has it: create it, or check its name"
            for topic in self._missed_ms
        }


# As in Apache's clients (PULL_MAX_IDLE_TIME).
PULL_EXPIRED_MS = 120_000


class Balance(IntEnum):
    """Result of a round; the result for several topics is the lowest of their results."""

    OUTSIDE = 0
    """The broker's member list does not contain this client yet."""
    WAITING = 1
    """A queue cannot be acquired or released yet."""
    ABSENT = 2
    """No broker serves a topic."""
    COMPLETE = 3
    """This member has all of its queues."""


class Rebalancer:
    """Computes the queues of this member, releases the others, acquires the new ones.

    Args:
        instance: connections and routes.
        group: the consumer group.
        allocate: the group's rule; None assigns every queue to this member (broadcasting).
        owned: queues of this member; changed by `acquire` and `release` only.
        note_queues: called with all queues of a topic in each round, before any is acquired. The
            offset finder must see them before new members of the group store first offsets.
        acquire: starts to read a queue; returns False if the queue is not free yet. It may raise
            RocketPyError. In both cases a later round tries again.
        release: releases a queue; returns False if a handler still runs.
        takeover_pause_ms: time for former owners to store their offsets, before queues are
            acquired.

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
        note_queues: Callable[[str, Sequence[MessageQueue]], Awaitable[None]],
        acquire: Callable[[MessageQueue], Awaitable[bool]],
        release: Callable[[ProcessQueue], Awaitable[bool]],
        takeover_pause_ms: int,
    ) -> None:
        self._instance = instance
        self._group = group
        self._allocate = allocate
        self._owned = owned
        self._note_queues = note_queues
        self._acquire = acquire
        self._release = release
        self._takeover_pause_ms = takeover_pause_ms
        self.unserved: MissingTopics = MissingTopics(group, instance.clock)

    async def round(self, topics: Iterable[str]) -> Balance:
        """Run one round over all topics.

        Returns:
            The lowest result of the topics; below COMPLETE, the caller runs another round soon.

        Raises:
            RocketPyError: the last failure, after every topic was tried.
        """
        wanted = list(topics)
        failure: RocketPyError | None = None
        balance = Balance.COMPLETE
        for queue in [queue for queue in self._owned if queue.topic not in wanted]:
            # Read here: a seek or a close during an earlier release replaces or removes entries.
            entry = self._owned.get(queue)
            if entry is not None and not await self._release(entry):
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
        self.unserved.note(topic, is_served=bool(queues))
        await self._note_queues(topic, queues)
        if not queues:
            return Balance.ABSENT
        alone = True
        client_ids: list[str] = []
        if self._allocate is None:
            mine = set(queues)
        else:
            client_ids = await self._client_ids(topic, queues)
            # Alone in the group: there is no former owner to wait for.
            alone = client_ids == [self._instance.client_id]
            if self._instance.client_id not in client_ids:
                self._instance.heartbeat_soon()
            # Sorted as Java does it: members of all kinds must compute the same assignment.
            mine = set(self._allocate(self._instance.client_id, sorted_queues(queues), client_ids))
        settled = True
        # Before the pause and the new queues, because other members wait for these.
        for queue in [queue for queue in self._owned if queue.topic == topic]:
            entry = self._owned.get(queue)  # as in `round`: releases of other queues await
            if entry is not None and (queue not in mine or self._must_reacquire(entry)):
                settled = await self._release(entry) and settled
        fresh = sorted_queues(mine - self._owned.keys())
        # Without other members there is no former owner whose offset would have to be stored.
        if fresh and not alone and self._takeover_pause_ms:
            # Otherwise the offset might be read before its former owner stores the last one, and
            # messages would come twice.
            await asyncio.sleep(self._takeover_pause_ms / 1000)
        settled = await self._acquire_all(fresh) and settled
        if not alone and self._instance.client_id not in client_ids:
            return Balance.OUTSIDE
        return Balance.COMPLETE if settled else Balance.WAITING

    async def _acquire_all(self, queues: Iterable[MessageQueue]) -> bool:
        """Acquire queues; return whether each of them was free.

        A broker that does not answer is asked for one of its queues, after all other brokers.

        Raises:
            RocketPyError: the last failure, after the queues of every broker were tried.
        """
        is_settled = True
        failure: RocketPyError | None = None
        silent: set[str] = set()
        for queue in sorted(queues, key=lambda each: not self._is_answering(each.broker_name)):
            if queue.broker_name in silent:
                continue
            try:
                is_settled = await self._acquire(queue) and is_settled
            except (*_SILENCE, NoRouteError) as error:
                silent.add(queue.broker_name)
                failure = error
            except RocketPyError as error:
                failure = error
        if failure is not None:
            raise failure
        return is_settled

    def _is_answering(self, broker_name: str) -> bool:
        found = self._instance.routes.read_address(broker_name)
        return found is not None and self._instance.is_answering(found[0])

    async def _client_ids(self, topic: str, queues: Sequence[MessageQueue]) -> list[str]:
        addresses = self._instance.routes.brokers_of([topic])
        if not addresses:
            raise NoRouteError(f"no broker of topic {topic} is known")
        rng = self._instance.rng
        # Any of them knows the members. A random one that answers, and another one if it does not:
        # the queues of the others must not wait for a broker that is down.
        asked = [each for each in addresses if self._instance.is_answering(each)] or addresses
        first = rng.choice(asked)
        failure: RocketPyError | None = None
        others = [each for each in asked if each != first]
        for address in (first, *rng.sample(others, min(len(others), _OTHER_BROKERS))):
            try:
                return await self._client_ids_at(address, queues)
            except _SILENCE as error:
                failure = error
        assert failure is not None, "a broker was asked"
        raise failure

    async def _client_ids_at(self, address: str, queues: Sequence[MessageQueue]) -> list[str]:
        api, routes = self._instance.api, self._instance.routes
        try:
            return java_sorted(await api.consumer_ids(address, self._group))
        except BrokerError:  # no member is known; the same error as for a group that does not exist
            found = ((each, routes.read_address(each.broker_name)) for each in queues)
            here = (queue for queue, entry in found if entry is not None and entry[0] == address)
            await check_group_exists(self._instance, self._group, next(here, queues[0]))
        # Not a failure: a restarted broker does not know its members until their next heartbeat.
        await self._instance.introduce()
        return java_sorted(await api.consumer_ids(address, self._group))

    def _must_reacquire(self, queue: ProcessQueue) -> bool:
        """Return whether a queue of this member must be released and acquired again."""
        if queue.closing:
            return True
        # Not pulled on purpose: a restart would deliver its messages a second time.
        if queue.paused or queue.is_full() is not None:
            return False
        idle_ms = self._instance.clock.monotonic_ms() - queue.pulled_at_ms
        if idle_ms > PULL_EXPIRED_MS:
            logger.warning(
                "queue not pulled in time, acquired again: queue=%(queue)s idle_ms=%(idle_ms)d",
                {"queue": queue.queue, "idle_ms": idle_ms},
            )
            return True
        return False
