"""Selection of the queue of a message: round robin, without bad brokers, or by key.

Source: TopicPublishInfo, MQFaultStrategy, SelectMessageQueueByHash (5.4.0).
"""

import logging
import random
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from rocketpy.client.sending.broker_latency import BrokerLatencies
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.tags import java_string_hash
from rocketpy.proto.wire.request_template import RequestTemplate

logger: logging.Logger = logging.getLogger(__name__)

_INT_BITS = 0xFFFFFFFF


def _to_int32(value: int) -> int:
    value &= _INT_BITS
    return value - (1 << 32) if value >= 1 << 31 else value


def java_hash(key: str | int) -> int:
    """Return Java's `hashCode` of a string, an int or (beyond 32 bits) a long."""
    if isinstance(key, str):
        return java_string_hash(key)
    if -(1 << 31) <= key < 1 << 31:
        return key
    return _to_int32((key & _INT_BITS) ^ ((key >> 32) & _INT_BITS))


def queue_index_by_key(key: str | int, count: int) -> int:
    """Return which of `count` queues the official clients' hash selector chooses for `key`.

    Java takes the remainder first (it keeps the sign), then its absolute value, which gives the
    same result.
    """
    return abs(java_hash(key)) % count


def checked_choice(queue: object, topic: str) -> MessageQueue:
    """Return the queue that a caller or a selector chose.

    Raises:
        IllegalMessageError: it is not a MessageQueue, or one of another topic.
    """
    if not isinstance(queue, MessageQueue):
        raise IllegalMessageError(f"the selector chose {queue!r}, which is not a MessageQueue")
    if queue.topic != topic:
        raise IllegalMessageError(f"{queue} is not a queue of topic {topic}")
    return queue


class Destination(NamedTuple):
    """Queue of a send, with the address and the request parts that all sends to the queue share.

    Attributes:
        queue: the queue.
        address: of its broker's master; None while that is not known.
        fields: the header of a send to it, without what differs from message to message.
        templates: requests made of that header, by request code; each is made for its first send.
    """

    queue: MessageQueue
    address: str | None
    fields: dict[str, str]
    templates: dict[int, RequestTemplate]


class RoundRobin:
    """Position of one producer in the round over the writable queues of one topic.

    Args:
        queues: the topic's writable queues.
        rng: for the first queue.
        faults: brokers to avoid because they are slow; None when that is not wanted.
        make_destination: gives a queue its address and header.

    Attributes:
        queues: the topic's writable queues.
        brokers: the names of their brokers.
        version: of the routes that `make_destination` reads; see `refresh`.
    """

    __slots__ = (
        "_destinations", "_faults", "_make_destination", "_rng", "_turn", "brokers", "queues",
        "version",
    )  # fmt: skip

    def __init__(
        self,
        queues: Sequence[MessageQueue],
        rng: random.Random,
        faults: BrokerLatencies | None,
        make_destination: Callable[[MessageQueue], Destination],
    ) -> None:
        assert queues
        self.queues: Sequence[MessageQueue] = queues
        self.brokers: frozenset[str] = frozenset(queue.broker_name for queue in queues)
        self.version: int = 0
        self._make_destination = make_destination
        # Made for the first send to each queue: a topic may have more queues than are ever used.
        self._destinations: dict[MessageQueue, Destination] = {}
        self._rng = rng
        self._faults = faults
        # A random start, so that many producers do not all begin with the first broker.
        self._turn = rng.randrange(1 << 31)

    def refresh(
        self, version: int, make_destination: Callable[[MessageQueue], Destination]
    ) -> None:
        """Forget all destinations, because routes have changed; the position in the round stays.

        Args:
            version: of the routes now.
            make_destination: makes destinations of them.
        """
        self.version = version
        self._make_destination = make_destination
        self._destinations.clear()

    def destination(self, queue: MessageQueue) -> Destination:
        """Return the destination of a queue; one that a caller names need not be in the round."""
        found = self._destinations.get(queue)
        if found is None:
            found = self._destinations[queue] = self._make_destination(queue)
        return found

    def next(
        self, failed: Sequence[str] = (), refused: Collection[str] = frozenset()
    ) -> Destination:
        """Return the destination of the next queue in turn.

        Args:
            failed: brokers on which this message has failed, the latest at the end. All of them
                are skipped if another broker is left. Otherwise the brokers in `refused` are
                skipped, or only the latest one if `refused` is empty.
            refused: those of them that refuse connections now. They are skipped as long as there
                is another broker, even a slow one: a refused attempt fails at once, and the retries
                would spin.
        """
        if failed or self._faults is not None:
            return self.destination(self._next_good(failed, refused))
        self._turn += 1
        queue = self.queues[self._turn % len(self.queues)]
        return self._destinations.get(queue) or self.destination(queue)

    def _next_good(self, failed: Sequence[str], refused: Collection[str]) -> MessageQueue:
        """Return the next queue that is not on a bad broker, if there is one."""
        # When the message has failed on all brokers, one that answered is better than one that
        # refuses connections, and any is better than the latest.
        avoided = failed
        if failed and self.brokers.issubset(failed):
            avoided = tuple(refused) or failed[-1:]
        if self._faults is not None:
            try:
                queue = self._next_available(self._faults, avoided)
                return self._first_without(avoided) if queue.broker_name in refused else queue
            except Exception:
                # An error in these statistics must not prevent a send.
                logger.exception("queue selection failed, next queue taken")
                return self._next_in_turn()
        return self._first_without(avoided)

    def _next_in_turn(self) -> MessageQueue:
        self._turn += 1
        return self.queues[self._turn % len(self.queues)]

    def _first_without(self, avoided: Sequence[str]) -> MessageQueue:
        """Return the next queue that is not on an avoided broker; if all are, the next one."""
        # One round at most: with every broker avoided, this would never end.
        if avoided:
            for _ in self.queues:
                queue = self._next_in_turn()
                if queue.broker_name not in avoided:
                    return queue
        return self._next_in_turn()

    def _next_available(self, faults: BrokerLatencies, avoided: Sequence[str]) -> MessageQueue:
        # A retry starts at a random queue, as in Java, so that retries of many producers spread.
        if avoided:
            self._turn = self._rng.randrange(1 << 31)
        checks = [faults.is_available]
        if faults.looks_at_reachable:
            checks.append(faults.is_reachable)
        for is_good in checks:
            for _ in self.queues:
                queue = self._next_in_turn()
                if queue.broker_name not in avoided and is_good(queue.broker_name):
                    return queue
        if faults.looks_at_reachable:
            return self._next_in_turn()
        return self._least_bad(faults)

    def _least_bad(self, faults: BrokerLatencies) -> MessageQueue:
        """Return a queue of one of the least bad brokers; remove a broker without queues."""
        broker_name = faults.pick_one_at_least()
        of_broker = [queue for queue in self.queues if queue.broker_name == broker_name]
        if of_broker:
            self._turn += 1
            return of_broker[self._turn % len(of_broker)]
        if broker_name is not None:
            faults.forget(broker_name)
        return self._next_in_turn()
