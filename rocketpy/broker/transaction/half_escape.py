"""Escape of undecided half messages from an acting master to another broker group.

Nothing can end a transaction whose master is away, and an acting master stores nothing. Each round
therefore sends the undecided halves to the other group as new transactions, which asks their
producers. The progress of the check-back advances past them; the returning master applies it,
and neither checks nor ends them.

The master's check-backs have stored halves again, and its progress at this slave may be older. So a
round first reads the whole queue, and sends only the newest copy of each half.

A half that is younger than the time-out of a local transaction ends the round, as in a check-back.
A half that cannot be sent holds those behind it, so none is lost. A half whose end is in no op
message yet, as after a kill, is sent although it was decided: it may be committed twice.

Differences from Apache: its round sends young halves too, and passes a half that could not be sent
eleven times, which is then never checked.

Source: TransactionalMessageServiceImpl.check (5.4.0).
"""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter, copy_of
from rocketpy.broker.transaction.half_message import as_int, real_queue
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
from rocketpy.proto.topic_names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageStatus

_log = structlog.get_logger(__name__)

_READ_COUNT: Final = 32
_MAX_PAUSE_MS: Final = 1_000
"""Longest pause, and the pause after a half that could not be sent."""


class Progress(Protocol):
    """Interface of the consumer offsets, which have the progress of the check-back."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return an offset; negative when there is none."""
        ...

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move an offset forward."""
        ...


class HalfEscape:
    """Background service of an acting master; see the module.

    Args:
        queue: the half queue.
        put: sends messages to another broker group.
        ledger: states of the halves, which only this service uses at a slave.
        ops: op messages.
        progress: progress of the check-back.
        topic_exists: returns whether the broker has a topic.
        config: returns the current settings.
        clock: time.
    """

    name = "TransactionEscape"

    def __init__(
        self,
        queue: SystemQueue,
        put: SystemWriter,
        ledger: HalfLedger,
        ops: OpMessages,
        progress: Progress,
        *,
        topic_exists: Callable[[str], bool],
        config: Callable[[], BrokerConfig],
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._put = put
        self._ledger = ledger
        self._ops = ops
        self._progress = progress
        self._topic_exists = topic_exists
        self._config = config
        self._clock = clock
        self._position = -1
        self._scan_offset = -1
        self._began_ms = -1
        self._sent_count = 0
        # Newest queue offset of each half that was stored again, by its first one.
        self._newest: dict[int, int] = {}

    def restart(self) -> None:
        """Start the first round one interval later, as a starting broker does."""
        self._position = self._scan_offset = self._began_ms = -1

    def step(self, now_ms: int) -> int:
        """Do a part of a round, or wait for the next; see `rocketpy.runtime.service.Service`."""
        if self._began_ms < 0:
            self._began_ms = now_ms
        if self._position < 0:
            due_ms = self._began_ms + self._config().transaction_check_interval
            if now_ms < due_ms:
                return min(due_ms, now_ms + _MAX_PAUSE_MS)
            self._began_ms = now_ms
            self._begin_round()
        if self._scan_offset >= 0:
            self._scan()
            return now_ms
        pause_ms = self._send_next()
        if pause_ms is None:
            self._end_round()
            return now_ms
        return now_ms + pause_ms

    def _begin_round(self) -> None:
        """Read the progress and the op messages, which the master may have replicated meanwhile."""
        queue, query = self._queue, self._progress.query
        half = query(TRANS_GROUP, TRANS_HALF_TOPIC, 0)
        self._position = max(min(half, queue.max_offset), queue.min_offset, 0)
        self._ledger.reset(self._position)
        op = query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0)
        self._ops.load(op, self._ledger, queue.max_offset)
        self._newest.clear()
        self._scan_offset = self._position

    def _scan(self) -> None:
        """Collect copies among the next halves."""
        read = self._queue.read(self._scan_offset, _READ_COUNT)
        for half in read.messages:
            first = _first_offset(half)
            if first < half.queue_offset:
                self._newest[first] = half.queue_offset
        self._scan_offset = read.next_offset if read.next_offset > self._scan_offset else -1

    def _end_round(self) -> None:
        self._position = -1
        if self._sent_count:
            _log.info("transactions sent to another broker group", count=self._sent_count)
        self._sent_count = 0

    def _send_next(self) -> int | None:
        """Send the next undecided halves; returns the pause, or None at the end of the round."""
        self._pass(self._ledger.first_open(self._position))
        start, time_out_ms = self._position, self._config().transaction_time_out
        read = self._queue.read(start, _READ_COUNT)
        for half in read.messages:
            is_decided = self._ledger.first_open(half.queue_offset) != half.queue_offset
            if is_decided or self._newest.get(_first_offset(half), -1) > half.queue_offset:
                continue
            self._pass(half.queue_offset)
            if 0 <= self._clock.time_ms() - half.store_timestamp_ms <= time_out_ms:
                return None
            if not self._send(half):
                return _MAX_PAUSE_MS
            self._pass(half.queue_offset + 1)
        if read.next_offset <= start:
            return None
        self._pass(read.next_offset)
        return 0

    def _pass(self, position: int) -> None:
        if position > self._position:
            self._position = position
            self._progress.advance(TRANS_GROUP, TRANS_HALF_TOPIC, 0, position)

    def _send(self, half: MessageExt) -> bool:
        place = real_queue(half.properties)
        if place is None or not self._topic_exists(place.topic):
            _log.error("half message skipped: its topic was deleted", phy_offset=half.phy_offset)
            return True
        message = copy_of(half, TRANS_HALF_TOPIC, 0, half.properties)
        is_sent = self._put.put(message).status is PutMessageStatus.PUT_OK
        self._sent_count += is_sent
        return is_sent


def _first_offset(half: MessageExt) -> int:
    """Return the queue offset at which a half was stored first."""
    text = half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)
    return as_int(text, half.queue_offset)
