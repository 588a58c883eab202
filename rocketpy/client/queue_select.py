"""Choosing the queue a message goes to: in turn, avoiding bad brokers, or by key.

Source: TopicPublishInfo, MQFaultStrategy, SelectMessageQueueByHash (5.4.0).
"""

import random
from collections.abc import Sequence

from rocketpy.client.fault_tolerance import FaultTolerance
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.tags import java_string_hash

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

    Java takes the remainder first (it keeps the sign), then its absolute value.
    """
    return abs(java_hash(key)) % count


class QueueTurn:
    """One producer's place in the round over one topic's queues."""

    __slots__ = ("_faults", "_rng", "_turn", "queues")

    def __init__(
        self, queues: Sequence[MessageQueue], rng: random.Random, faults: FaultTolerance | None
    ) -> None:
        assert queues
        self.queues = queues
        self._rng = rng
        self._faults = faults
        self._turn = rng.randrange(1 << 31)

    def next(self, last_broker: str | None) -> MessageQueue:
        """Return the next queue, preferably not of `last_broker`, which has just failed."""
        if self._faults is not None:
            return self._next_available(self._faults, last_broker)
        return self._lap(last_broker) or self._plain()

    def _plain(self) -> MessageQueue:
        self._turn += 1
        return self.queues[self._turn % len(self.queues)]

    def _lap(self, last_broker: str | None) -> MessageQueue | None:
        if last_broker is None:
            return self._plain()
        for _ in self.queues:
            queue = self._plain()
            if queue.broker_name != last_broker:
                return queue
        return None

    def _next_available(self, faults: FaultTolerance, last_broker: str | None) -> MessageQueue:
        if last_broker is not None:
            self._turn = self._rng.randrange(1 << 31)
        checks = [faults.is_available]
        if faults.looks_at_reachable:
            checks.append(faults.is_reachable)
        for is_good in checks:
            for _ in self.queues:
                queue = self._plain()
                if queue.broker_name != last_broker and is_good(queue.broker_name):
                    return queue
        broker_name = None if faults.looks_at_reachable else faults.pick_one_at_least()
        of_broker = [queue for queue in self.queues if queue.broker_name == broker_name]
        if broker_name is not None and not of_broker:
            faults.forget(broker_name)
        if not of_broker:
            return self._plain()
        self._turn += 1
        return of_broker[self._turn % len(of_broker)]
