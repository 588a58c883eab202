"""Look at messages that a pop would hand out, without popping them: nothing is changed.

Source: PeekMessageProcessor.java (5.4.0).

Tell a consumer that there is something to pop, without popping it.

Source: NotificationProcessor.java, PollingInfoProcessor.java (5.4.0).
"""

import random
from collections.abc import Callable, Hashable
from typing import NamedTuple, Protocol, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.pull.pull import MAX_PULL_BYTES, MessageReader, PullCounter
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.checks import PopChecks
from rocketpy.broker.pop.positions import PopPositions, QueueEnds
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.broker.pop.queues import PERCENT, PopQueues, waits_for
from rocketpy.broker.pop.take import WRONG_POSITION
from rocketpy.broker.pop.waiters import PopWaiters, Waiting, keys_of
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.pop import INIT_MIN, MAX_POP_COUNT
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import GetMessageResult


class PeekRequest(NamedTuple):
    """What a consumer asks for.

    Attributes:
        group: consumer group; where it stands in the queues is looked up, not changed.
        topic: as it was subscribed.
        queue_id: below 0 is every queue.
        max_count: messages at most; more than `MAX_POP_COUNT` count as that many.
    """

    group: str
    topic: str
    queue_id: int
    max_count: int

    @property
    def init_mode(self) -> int:
        """A group without an offset begins with the first message."""
        return INIT_MIN

    @property
    def is_ordered(self) -> bool:
        """Blocked queues are looked at, too."""
        return False

    @property
    def attempt_id(self) -> str | None:
        """None: it belongs to no ordered call."""
        return None


class Peeked(NamedTuple):
    """The outcome.

    Attributes:
        records: the messages as stored; those of the retry topic under its name.
        rest_count: messages that were not popped yet, those handed out included.
    """

    records: tuple[bytes, ...]
    rest_count: int


class PeekStore(MessageReader, QueueEnds, Protocol):
    """What a look needs of the store."""


class PeekOperation:
    """Looks at messages; safe from any thread.

    Args:
        checks: who may look at what.
        queues: which queues a pop would read.
        positions: where it would begin.
        store: where the messages lie.
        stats: counters.
        config: the broker's settings; see `configure`.
        rng: chooses where to begin.
    """

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        positions: PopPositions,
        store: PeekStore,
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
        """Take over changed settings."""
        self._config = config

    def peek(self, wanted: PeekRequest) -> Peeked | Refusal:
        """Look at messages, up to `MAX_PULL_BYTES` of them.

        Args:
            wanted: which.
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
        for queue in self._queues.in_turn(wanted, self._rng.randrange(PERCENT)):
            offset = self._positions.of(queue, wanted.init_mode)
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
    """What a consumer asks for.

    Attributes:
        group: consumer group.
        topic: as it was subscribed.
        queue_id: below 0 is any queue.
        born_ms: wall time of the request, by this broker's clock.
        poll_ms: how long it waits, counted from `born_ms`; 0 does not wait.
        is_ordered: queues that are blocked do not count.
        attempt_id: of the ordered call that is to follow.
        init_mode: where a group begins that has no offset.
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
    """The outcome.

    Attributes:
        has_message: whether there is something.
        is_full: whether there was no room to wait for it.
    """

    has_message: bool
    is_full: bool = False


NotificationOutcome: TypeAlias = Notified | Refusal


class NotificationOperation:
    """Answers what there is to pop; safe from any thread.

    Args:
        checks: who may pop what.
        queues: which queues a pop reads.
        waiters: where notifications wait.
        pops: where pops wait, for their number.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        checks: PopChecks,
        queues: PopQueues,
        *,
        waiters: PopWaiters,
        pops: PopWaiters,
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
        """Take over changed settings."""
        self._config = config

    def notify(
        self, wanted: NotificationRequest, owner: Hashable, resume: Callable[[Waiting], None]
    ) -> NotificationOutcome | None:
        """Say whether there is a message, or wait for one.

        Args:
            wanted: where.
            owner: who asks; what waits goes with it.
            resume: as in `PopOperation.pop`.

        Returns:
            The outcome; None when the request is answered later.
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
        queues = waits_for(wanted.topic, wanted.group, wanted.queue_id)
        waiting = Waiting(
            wanted,
            keys_of(queues),
            owner,
            now_ms + min(wanted.poll_ms, until_ms - wall_ms),
            self._queues,
            message_filter=None,
            on_resume=resume,
        )
        return None if self._waiters.suspend(waiting, queues, now_ms) else Notified(False, True)

    def go_on(self, waiting: Waiting) -> NotificationOutcome | None:
        """Answer a request that was resumed; it waits again when somebody was faster."""
        self._waiters.suspended.release(waiting)
        return self.notify(waiting.wanted, waiting.owner, waiting.on_resume)

    def forget(self, owner: Hashable) -> None:
        """Forget the requests of an owner that is lost."""
        self._waiters.forget(owner)

    def count_waiting(self, topic: str, queue_id: int, group: str) -> int | Refusal:
        """How many pops of a group wait for a queue."""
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
