"""The end of a transaction: its producer commits, rolls back, or does not know the outcome.

Differences from Apache: a half message is committed or rolled back only once, and a message that is
not a half message is never published.

Source: EndTransactionProcessor, AdminBrokerProcessor.resumeCheckHalfMessage (5.4.0).
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.property_templates import PropertyTemplates
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.transaction.half_message import (
    HalfTemplate,
    committed_message,
    half_template,
    immunity_ms,
    real_queue,
    resumed_half,
)
from rocketpy.broker.transaction.ledger import Claim, HalfLedger, HalfState
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.message_id import decode_message_id
from rocketpy.proto.record.properties import PROPERTY_PRODUCER_GROUP
from rocketpy.proto.record.raw_record import RawRecord, split_record
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from rocketpy.proto.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import AppendedRecords, LogEnd, Writability
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

Done = Callable[[Refusal | None], None]
"""Called once with the outcome of an end, on any thread; None means success."""
Postpone = Callable[[PutMessage], Refusal | None]
"""Schedules a message that has a delay, by changing it in place; returns why it is refused."""

_HALF_TOPIC: Final = TRANS_HALF_TOPIC.encode()
_NOT_FOUND: Final = Refusal(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
_NOT_ONLINE: Final = Refusal(
    ResponseCode.SYSTEM_BUSY,
    "this master has just started and first takes the progress of its slaves: retry later",
)
_ANSWERS: Final = {
    Claim.OTHER: Refusal(
        ResponseCode.SYSTEM_ERROR,
        "the transaction already ended with another outcome, or its outcome is not known",
    ),
    Claim.GONE: Refusal(
        ResponseCode.SYSTEM_ERROR,
        "the transaction already ended or was abandoned, or its half message was stored again for "
        "a check: the outcome is accepted only in answer to that check",
    ),
    Claim.FULL: Refusal(ResponseCode.SYSTEM_BUSY, "too many transactions are open"),
}


class TransactionEnd(NamedTuple):
    """Decision of a producer about a transaction.

    Attributes:
        producer_group: group of the producer.
        half_offset: queue offset of the half message.
        phy_offset: position of the half message in the log.
        decision: TRANSACTION_COMMIT, TRANSACTION_ROLLBACK; any other value means undecided.
        is_from_check: whether it answers a check-back.
    """

    producer_group: str
    half_offset: int
    phy_offset: int
    decision: int
    is_from_check: bool


class _Half(NamedTuple):
    """Half message of an end; its parsed properties do not contain the UNIQ_KEY."""

    stored: RawRecord
    uniq_key: bytes
    template: HalfTemplate


class _Store(AppendedRecords, Writability, LogEnd, Protocol):
    """Store of half messages."""


class EndTransactions:
    """Commits and rolls back transactions; safe from any thread.

    Args:
        store: source of half messages.
        put: stores committed messages.
        topics: topic table; nothing is committed to a deleted topic.
        ledger: states of the halves.
        ops: writes op messages for decided halves.
        postpone: schedules committed messages that have a delay.
        counts: number of open transactions by topic.
        config: the broker's settings; see `configure`.
        clock: time.
        is_online: returns whether transactions may end: not before a returning master knows which
            of them its slaves have sent to another broker group.
    """

    def __init__(  # noqa: PLR0913 - the parts an end touches
        self,
        store: _Store,
        put: SystemWriter,
        *,
        topics: TopicTable,
        ledger: HalfLedger,
        ops: OpMessages,
        postpone: Postpone,
        counts: PendingCounts,
        config: BrokerConfig,
        clock: Clock,
        is_online: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_online = is_online
        self._store = store
        self._put = put
        self._topics = topics
        self._ledger = ledger
        self._ops = ops
        self._postpone = postpone
        self._counts = counts
        self._timeout_ms = config.transaction_time_out
        self._clock = clock
        self._templates = PropertyTemplates(half_template)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._timeout_ms = config.transaction_time_out

    def end(self, end: TransactionEnd, done: Done) -> bool:
        """Carry out the decision of a producer.

        Args:
            end: the decision.
            done: called once: with None when a commit is as durable as the store's mode requires,
                or when a rollback is recorded; otherwise with the refusal.

        Returns:
            False when the producer is undecided; `done` is not called then.
        """
        commits = end.decision == TRANSACTION_COMMIT
        if not commits and end.decision != TRANSACTION_ROLLBACK:
            return False
        half = self._find(end) if self._is_online() else _NOT_ONLINE
        if isinstance(half, Refusal):
            done(half)
        elif self._ops.is_full:
            remark = "Service not available now. The outcome cannot be stored: retry later."
            done(Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark))
        elif commits:
            self._commit(half, done)
        else:
            self._roll_back(half, done)
        return True

    def resume_check(self, message_id: str) -> Refusal | None:
        """Return an abandoned half to the check-back.

        Args:
            message_id: offset message id of the half, or of its copy in the topic of abandoned
                halves.
        """
        try:
            phy_offset = decode_message_id(message_id).phy_offset
        except ValueError:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"invalid message id: {message_id[:64]!r}")
        stored = self._look(phy_offset)
        if (
            stored is None
            or stored.topic not in {TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC}
            or real_queue(stored.properties) is None
        ):
            return _NOT_FOUND
        result = self._put.put(resumed_half(stored))
        if result.status is PutMessageStatus.PUT_OK:
            return None
        remark = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _find(self, end: TransactionEnd) -> _Half | Refusal:
        # A check-back stores the half again, and asks once it is flushed: while slaves are away,
        # the answer may arrive before consumers see the half. What is stored for it lies behind it.
        record = self._store.look_appended(end.phy_offset)
        if record is None:
            return _NOT_FOUND
        half = split_record(record)
        if half.topic != _HALF_TOPIC:
            return _NOT_FOUND
        uniq_key, template = self._templates.of(half.properties)
        immune_ms = immunity_ms(template.properties, self._timeout_ms)
        if immune_ms is not None and not end.is_from_check:
            age_ms = self._clock.time_ms() - half.born_timestamp_ms
            if age_ms > immune_ms:
                remark = (
                    "too late: the check immunity period has ended; the outcome is accepted only "
                    "in answer to a check"
                )
                return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        if template.properties.get(PROPERTY_PRODUCER_GROUP) != end.producer_group:
            return Refusal(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != end.half_offset:
            remark = "The transaction state table offset wrong"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return _Half(half, uniq_key, template)

    def _look(self, phy_offset: int) -> MessageExt | None:
        record = self._store.look_message(phy_offset)
        if record is None:
            return None
        try:
            return decode_message(record, inflate=False)
        except CorruptRecordError as error:
            _log.error("half message damaged", phy_offset=phy_offset, error=str(error))
            return None

    def _roll_back(self, half: _Half, done: Done) -> None:
        claim, places = self._ledger.claim(half.stored.queue_offset, HalfState.ROLLED_BACK)
        if claim is Claim.YES:
            self._ops.add(places)
            self._ledger.settle(places)
            place = half.template.place
            self._counts.add(place.topic if place else "", -1)
        done(_ANSWERS.get(claim))

    def _commit(self, half: _Half, done: Done) -> None:
        place = half.template.place
        if place is None:
            done(_NOT_FOUND)
            return
        queue_id = self._topics.queue_of(place.topic, place.queue_id)
        if queue_id is None:
            remark = f"topic[{place.topic}] not exist: it was deleted"
            done(Refusal(ResponseCode.TOPIC_NOT_EXIST, remark))
            return
        claim, places = self._ledger.claim(half.stored.queue_offset, HalfState.COMMITTED)
        if claim is not Claim.YES:
            done(_ANSWERS.get(claim))
            return
        message = committed_message(half.stored, place, half.template.committed, half.uniq_key)
        message.queue_id = queue_id
        refused = self._postpone(message)
        if refused is None:
            result = self._put.put(message)
            if result.status is PutMessageStatus.PUT_OK:
                self._counts.add(place.topic, -1)
                self._when_durable(result.phy_end, places, done)
                return
            refused = _not_stored(result.status)
        self._ledger.release(places)
        done(refused)

    def _when_durable(self, phy_end: int, places: tuple[int, ...], done: Done | None) -> None:
        """Name the halves in an op message, but never before the commit is durable."""
        self._put.when_durable(phy_end, partial(self._committed, phy_end, places, done))

    def _committed(
        self, phy_end: int, places: tuple[int, ...], done: Done | None, is_durable: bool
    ) -> None:
        if is_durable:
            self._ops.add(places)
            self._ledger.settle(places)
            if done is not None:
                done(None)
            return
        if done is not None:
            remark = "the committed message is stored but not yet on disk, or not on enough slaves"
            done(Refusal(ResponseCode.FLUSH_DISK_TIMEOUT, remark))
        # The flush is slow and has not failed: the commit will be durable, and its half must be
        # named by an op message then, or the message would be committed twice.
        if self._store.flushed_phy_offset >= phy_end:
            # Only replicas lack it: an op message behind it in the log is never there without it.
            self._ops.add(places)
            self._ledger.settle(places)
        elif self._store.is_writable:
            self._when_durable(phy_end, places, None)


def _not_stored(status: PutMessageStatus) -> Refusal:
    if status in {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}:
        remark = "The message is illegal, maybe msg body or properties length not matched."
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "Service not available now.")
    return Refusal(ResponseCode.SYSTEM_ERROR, status.value)
