"""Look at messages that a pop would hand out, without popping them: nothing is changed.

Source: PeekMessageProcessor.java (5.4.0).
"""

import random
from typing import NamedTuple, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.pull import MAX_PULL_BYTES, MessageReader, PullCounter
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.checks import PopChecks
from rocketpy.broker.pop.positions import PopPositions, QueueEnds
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.broker.pop.queues import PERCENT, PopQueues
from rocketpy.broker.pop.take import WRONG_POSITION
from rocketpy.proto.codes import ResponseCode
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.pop import INIT_MIN, MAX_POP_COUNT
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
