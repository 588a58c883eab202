"""Read-only views of a pop: peek at its messages, or wait until there is a message to pop.

Peeks and notifications change neither offsets nor the visibility of messages.

Source: PeekMessageProcessor.java, NotificationProcessor.java, PollingInfoProcessor.java (5.4.0).
"""

import random
from collections.abc import Hashable
from typing import NamedTuple, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.long_polling.suspended_requests import RequestOwner
from rocketpy.broker.operation.pull.pull import MAX_PULL_BYTES, PullCounter
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.checks import PopChecks
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.queues import PERCENT, PopQueues, awaited_queues
from rocketpy.broker.pop.suspended_pops import PopReply, SuspendedPop, SuspendedPops, keys_of
from rocketpy.broker.pop.take import WRONG_POSITION
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.pop import INIT_MIN, MAX_POP_COUNT
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import JoiningReader
from rocketpy.store.results import GetMessageResult


class PeekRequest(NamedTuple):
    """Parameters of a peek.

    Attributes:
        group: consumer group, whose next offsets are read and not changed.
        topic: the subscribed topic.
        queue_id: queue to read; below 0 means all queues.
        max_count: maximal number of messages; capped at `MAX_POP_COUNT`.
    """

    group: str
    topic: str
    queue_id: int
    max_count: int

    @property
    def init_mode(self) -> int:
        """A group without an offset starts at the first message."""
        return INIT_MIN

    @property
    def is_ordered(self) -> bool:
        """False: a peek reads blocked queues as well."""
        return False

    @property
    def attempt_id(self) -> str | None:
        """None: a peek belongs to no ordered call."""
        return None


class Peeked(NamedTuple):
    """Outcome of a peek.

    Attributes:
        records: the messages as stored; retried messages keep the name of the retry topic.
        rest_count: messages that were not popped yet, those in `records` included.
    """

    records: tuple[bytes, ...]
    rest_count: int


class PeekOperation:
    """Carries out peeks; safe from any thread.

    Args:
        checks: permissions of topics and groups.
        queues: selects the queues that a pop would read.
        positions: next offsets of the groups.
        store: source of the messages.
        stats: counters.
        config: the broker's settings; see `configure`.
        rng: chooses the first queue.
    """

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        positions: PopPositions,
        store: JoiningReader,
        *,
        stats: PullCounter,
        config: BrokerConfig,
        rng: random.Random,
    ) -> None:
        self._checks = checks
        self._queues = queues
        self._positions = positions
        self._store = store
        self._stats = stats
        self._config = config
        self._rng = rng

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def peek(self, wanted: PeekRequest) -> Peeked | Refusal:
        """Return messages that a pop would hand out, about `MAX_PULL_BYTES` at most.

        Args:
            wanted: the peek.
        """
        config = self._config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_name}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        refused = self._checks.check(wanted.topic, wanted.queue_id, wanted.group)
        if refused is not None:
            return refused
        records: list[bytes] = []
        size_bytes = rest = 0
        for queue in self._queues.in_pop_order(wanted, self._rng.randrange(PERCENT)):
            offset = self._positions.next_offset(queue, wanted.init_mode)
            rest += max(0, self._store.max_offset(queue.topic, queue.queue_id) - offset)
            room = min(wanted.max_count, MAX_POP_COUNT) - len(records)
            if room <= 0 or size_bytes >= MAX_PULL_BYTES:
                continue
            read = self._read(queue, offset, room, MAX_PULL_BYTES - size_bytes)
            records += map(bytes, read.buffers)
            size_bytes += read.size_bytes
        if records:
            self._stats.inc_get(wanted.group, wanted.topic, len(records), size_bytes)
        return Peeked(tuple(records), rest)

    def _read(
        self, queue: GroupQueue, offset: int, max_count: int, max_bytes: int
    ) -> GetMessageResult:
        topic, _, queue_id = queue
        read = self._store.get_message(topic, queue_id, offset, max_count, max_bytes)
        if read.status in WRONG_POSITION:
            offset = read.next_begin_offset
            read = self._store.get_message(topic, queue_id, offset, max_count, max_bytes)
        return read


class NotificationRequest(NamedTuple):
    """Parameters of a notification request.

    Attributes:
        group: consumer group.
        topic: the subscribed topic.
        queue_id: queue to watch; below 0 means all queues.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long the request may be suspended, counted from `born_ms`; 0: not at all.
        is_ordered: whether blocked queues are left out.
        attempt_id: identifies the ordered pop that is to follow.
        init_mode: first offset of a group that has none.
    """

    group: str
    topic: str
    queue_id: int
    born_ms: int
    poll_ms: int
    is_ordered: bool = False
    attempt_id: str | None = None
    init_mode: int = INIT_MIN


class Notified(NamedTuple):
    """Outcome of a notification request.

    Attributes:
        has_message: whether there is a message to pop.
        is_full: whether the request could not be suspended because too many are.
    """

    has_message: bool
    is_full: bool = False


NotificationOutcome: TypeAlias = Notified | Refusal


class NotificationOperation:
    """Reports when there is a message to pop; safe from any thread.

    Args:
        checks: permissions of topics and groups.
        queues: selects the queues that a pop would read.
        waiters: holds suspended notification requests.
        pops: holds suspended pops, which `count_waiting` counts.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        *,
        waiters: SuspendedPops,
        pops: SuspendedPops,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._checks = checks
        self._queues = queues
        self._waiters = waiters
        self._pops = pops
        self._config = config
        self._clock = clock

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def notify(
        self, wanted: NotificationRequest, owner: RequestOwner, reply: PopReply
    ) -> NotificationOutcome | None:
        """Report whether there is a message to pop, or suspend the request until there is one.

        Args:
            wanted: the request.
            owner: the connection of the request; a suspended request is dropped with it.
            reply: as in `PopOperation.pop`.

        Returns:
            The outcome, or None when the request is suspended and answered later.
        """
        refused = self._check(wanted.topic, wanted.queue_id, wanted.group)
        if refused is not None:
            return refused
        if self._queues.has_message(wanted):
            return Notified(True)
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        until_ms = wanted.born_ms + wanted.poll_ms
        if wanted.poll_ms <= 0 or wall_ms >= until_ms:
            return Notified(False)
        queues = awaited_queues(wanted.topic, wanted.group, wanted.queue_id)
        waiting = SuspendedPop(
            wanted,
            keys_of(queues),
            owner,
            now_ms + min(wanted.poll_ms, until_ms - wall_ms),
            self._queues,
            message_filter=None,
            reply=reply,
        )
        return None if self._waiters.suspend(waiting, queues, now_ms) else Notified(False, True)

    def resume(self, waiting: SuspendedPop) -> NotificationOutcome | None:
        """Continue a resumed request; it is suspended again if the message was popped meanwhile."""
        self._waiters.suspended.release(waiting)
        return self.notify(waiting.wanted, waiting.owner, waiting.reply)

    def forget(self, owner: Hashable) -> None:
        """Drop the suspended requests of a lost owner."""
        self._waiters.forget(owner)

    def count_waiting(self, topic: str, queue_id: int, group: str) -> int | Refusal:
        """Return the number of suspended pops of a group at a queue."""
        refused = self._check(topic, queue_id, group)
        if refused is not None:
            return refused
        return self._pops.suspended.count_at(GroupQueue(topic, group, queue_id))

    def _check(self, topic: str, queue_id: int, group: str) -> Refusal | None:
        config = self._config
        if not config.broker_permission & PERM_READ:
            remark = f"the broker[{config.broker_name}] peeking message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        return self._checks.check(topic, queue_id, group)
