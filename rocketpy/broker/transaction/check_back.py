"""The check-back: asks producers about half messages that were neither committed nor rolled back.

Each round reads the half queue from its progress. Decided halves are skipped. A half that is
younger than the time-out of a local transaction ends the round. For any other half, a producer of
its group is asked, and the half is stored again at the end of the queue, so that the progress can
advance past it. After `transactionCheckMax` requests it is abandoned: it is moved to a separate
topic, where operators find it, and is never delivered.

The progress (of the half and the op queue, in consumerOffset.json) advances past a half only when
the half and everything stored for it are on disk, in every flush mode: the half was acknowledged
before.

Differences from Apache:

- The age of a half is measured by this broker's clock from its first store time. Apache uses the
  producer's clock; a wrong one abandons the half without a request.
- After that clock was set back, the age is measured by monotonic time.
- A check that is skipped because of an immunity time is not counted.
- In a group with a controller, a check without a connected producer is not counted for the first
  `MASTER_GRACE_MS` of a master: producers find it one after another. Apache counts it.
- The progress does not advance past a half that cannot be stored again.

Source: TransactionalMessageServiceImpl.check, TransactionalMessageCheckService,
AbstractTransactionalMessageCheckListener.sendCheckMessage, ProducerManager.getAvailableChannel,
Broker2Client.checkProducerTransactionState (5.4.0).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import structlog

from rocketpy.broker.clients.client_registry import ClientChannel
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.durable_progress import DurableProgress
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.transaction.half_message import (
    abandoned_half,
    as_int,
    check_times,
    immunity_ms,
    real_queue,
    renewed_half,
)
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.message_id import encode_message_id
from rocketpy.proto.record.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    parse_properties,
)
from rocketpy.proto.topic_names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_GROUP,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import make_request
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus

_log = structlog.get_logger(__name__)


class _Producers(Protocol):
    def clients(self, group: str) -> Sequence[ClientChannel]: ...


class AskProducer:
    """Sends CHECK_TRANSACTION_STATE (39) to the members of a producer group in turn.

    Safe from any thread.

    Args:
        producers: table of connected producers.
        broker_name: name of this broker, part of the request.
        clock: limits how often transactions without a producer are logged.
        grace_ms: time from the start of a master in which checks without a producer do not count.
    """

    def __init__(
        self, producers: _Producers, broker_name: str, clock: Clock, *, grace_ms: int = 0
    ) -> None:
        self.grace_ms: int = grace_ms
        self._producers = producers
        self._broker_name = broker_name
        self._clock = clock
        self._turn = 0
        self._mutex = threading.Lock()
        self._skipped: dict[str, int] = {}
        self._skipped_logged_ms: int | None = None

    def __call__(self, half: MessageExt) -> None:
        """Ask a producer about a half message; does nothing when none is connected."""
        place = real_queue(half.properties)
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        member = self._next_member(group)
        if member is None or place is None:
            self._note_skipped(group)
            return
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.phy_offset,
            msg_id=half.msg_id,
            transaction_id=half.msg_id,
            offset_msg_id=encode_message_id(half.store_host, half.phy_offset),
            topic=TRANS_HALF_TOPIC,
            bname=self._broker_name,
        )
        original = replace(half, topic=place.topic, queue_id=place.queue_id)
        request = make_request(
            RequestCode.CHECK_TRANSACTION_STATE, header.to_ext(), encode_message(original)
        )
        member.channel.invoke_oneway(request)

    def has_producer(self, half: MessageExt) -> bool:
        """Return whether a producer of the half's group is connected."""
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        return any(one.channel.is_open for one in self._producers.clients(group))

    def _note_skipped(self, group: str) -> None:
        """Count a transaction without a producer; log the counts at most once in a minute."""
        now_ms = self._clock.monotonic_ms()
        with self._mutex:
            known = group in self._skipped or len(self._skipped) < _LOGGED_NAMES
            name = group if known else "others"
            self._skipped[name] = self._skipped.get(name, 0) + 1
            last_ms = self._skipped_logged_ms
            if last_ms is not None and now_ms - last_ms < _SKIPPED_INTERVAL_MS:
                return
            self._skipped_logged_ms = now_ms
            skipped, self._skipped = self._skipped, {}
        _log.info("check-backs skipped: no producer connected", count_by_group=skipped)

    def _next_member(self, group: str) -> ClientChannel | None:
        """Return the next member that can be written to; a slow one must not delay the others."""
        members = [one for one in self._producers.clients(group) if one.channel.is_open]
        if not members:
            return None
        self._turn += 1
        start = self._turn % len(members)
        for member in members[start:] + members[:start]:
            if member.channel.is_writable:
                return member
        return None


_log = structlog.get_logger(__name__)

_LOGGED_NAMES: Final = 10
_SKIPPED_INTERVAL_MS: Final = 60_000
READ_COUNT: Final = 32
"""Maximal number of half messages that one step reads."""
_MAX_PAUSE_MS: Final = 1_000
"""Longest pause: a shortened `transactionCheckInterval` must apply soon.

It is also the pause after a refused put.
"""
MASTER_GRACE_MS: Final = 300_000
"""Producers fetch routes and send heartbeats every 30 s; some start again with the outage."""
_MAX_ENDS: Final = 1_000
"""Samples of the end of the half queue that are kept, at least a second apart."""


class Offsets(Protocol):
    """Interface of the consumer offsets, which store the progress."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return a stored offset; negative when there is none."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store an offset."""
        ...


class Ask(Protocol):
    """Asks producers about halves, given as they are stored now; on any thread."""

    @property
    def grace_ms(self) -> int:
        """Time from the start of a master in which checks without a producer do not count."""
        ...

    def __call__(self, half: MessageExt) -> None:
        """Ask the producer group of a half."""
        ...

    def has_producer(self, half: MessageExt) -> bool:
        """Return whether a producer of that group is connected."""
        ...


FirstStored = Callable[[int], int]
"""Returns the store time of a half by its queue offset, in ms; -1 when it was deleted."""


class CheckBack:
    """Background service that finds undecided halves and asks their producers.

    Args:
        queue: the half queue.
        put: stores halves again.
        ask: asks a producer.
        topics: topic table, in which the topic of abandoned halves is created.
        ledger: states of the halves.
        ops: op messages, and how far the op queue may be passed.
        counts: number of open transactions by topic.
        offsets: stores the progress.
        first_stored: returns when a half was first stored.
        reserved_ms: returns the retention time; older halves are abandoned.
        flushed_phy_offset: returns the end of the commit log on disk.
        kept_phy_offset: returns the end of the commit log that stays.
        max_phy_offset: returns the end of the commit log.
        flush_log: flushes the commit log; called at the end.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    name = "TransactionCheck"

    def __init__(  # noqa: PLR0913 - the parts of a transaction meet here
        self,
        queue: SystemQueue,
        put: SystemWriter,
        ask: Ask,
        *,
        topics: TopicTable,
        ledger: HalfLedger,
        ops: OpMessages,
        counts: PendingCounts,
        offsets: Offsets,
        first_stored: FirstStored,
        reserved_ms: Callable[[], int],
        flushed_phy_offset: Callable[[], int],
        kept_phy_offset: Callable[[], int],
        max_phy_offset: Callable[[], int],
        flush_log: Callable[[], object],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._put = put
        self._ask = ask
        self._grace_end_ms = -1
        self._topics = topics
        self._ledger = ledger
        self._ops = ops
        self._counts = counts
        self._offsets = offsets
        self._first_stored = first_stored
        self._reserved_ms = reserved_ms
        self._config = config
        self._clock = clock
        self._position = 0
        self._progress = DurableProgress(0, kept_phy_offset)
        self._kept_phy_offset = kept_phy_offset
        self._flushed_phy_offset = flushed_phy_offset
        self._max_phy_offset = max_phy_offset
        self._flush_log = flush_log
        self._is_in_round = False
        self._abandoned_count = 0
        self._abandoned: dict[str, str] = {}
        self._round_began_ms = -1
        self._round_time_ms = 0
        self._round_end = 0
        # Pairs of a monotonic time and the end of the half queue at that time.
        self._ends: deque[tuple[int, int]] = deque(maxlen=_MAX_ENDS)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def load(self) -> None:
        """Start at the stored progress, and load the op messages into the ledger."""
        self._grace_end_ms = -1
        half = self._stored_progress(self._queue, TRANS_HALF_TOPIC)
        self._ledger.reset(half)
        self._position = half
        self._progress.reset(half)
        op = self._offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0)
        self._ops.load(op, self._ledger, self._queue.max_offset)

    def take_progress(self) -> None:
        """Continue at a larger stored progress, from a slave; before the first step."""
        before, half = self._ledger.base, self._stored_progress(self._queue, TRANS_HALF_TOPIC)
        place = before
        while (place := self._ledger.first_open(place)) < half:
            read = self._queue.read(place)
            for message in read.messages:
                if message.queue_offset < half and not self._is_decided(message.queue_offset):
                    # Another broker group has the transaction now.
                    self._counts.add(message.properties.get(PROPERTY_REAL_TOPIC, ""), -1)
            if read.next_offset <= place:
                break
            place = read.next_offset
        if half > before:
            self._ledger.advance_to(half)
            self._position = half
            self._progress.reset(half)

    def persist(self) -> None:
        """Store everything known about decided halves, and commit the progress."""
        self._ops.flush()
        self._flush_log()
        self._ops.save(self._kept_phy_offset())
        self._commit_progress()

    def step(self, now_ms: int) -> int:
        """Do a part of a round, or wait for the next; see `rocketpy.runtime.service.Service`."""
        self._commit_progress()
        if not self._ends or now_ms - self._ends[-1][0] >= _MAX_PAUSE_MS:
            self._ends.append((now_ms, self._queue.max_offset))
        if self._grace_end_ms < 0:
            self._grace_end_ms = now_ms + self._ask.grace_ms
        if self._round_began_ms < 0:  # the first round starts one interval after the broker
            self._round_began_ms = now_ms
        if not self._is_in_round:
            due_ms = self._round_began_ms + self._config.transaction_check_interval
            if now_ms < due_ms:
                return min(due_ms, now_ms + _MAX_PAUSE_MS)
            self._is_in_round = True
            self._round_began_ms = now_ms
            self._round_time_ms = self._clock.time_ms()
            self._round_end = self._queue.max_offset
        asked: list[MessageExt] = []
        pause_ms = self._check_next(asked)
        if not self._is_in_round:
            self._report_abandoned()
        self._position = self._ledger.limit_progress(self._position)
        # Everything stored for the halves before `_position` is in the log by now, and so are
        # their own records. If a power cut removes one of those, its queue offset belongs to
        # another half after the restart, so the progress must not pass it before it is on disk.
        end = self._max_phy_offset()
        self._put.when_durable(end, partial(self._advance_progress, self._position, end, asked))
        return now_ms + pause_ms

    def _stored_progress(self, queue: SystemQueue, topic: str) -> int:
        stored = self._offsets.query(TRANS_GROUP, topic, 0)
        # After a power cut without SYNC_FLUSH the queue may be shorter than the stored progress.
        return max(min(stored, queue.max_offset), queue.min_offset, 0)

    def _check_next(self, asked: list[MessageExt]) -> int:
        """Check the next halves; returns the pause until the next step."""
        place = self._ledger.first_open(self._position)
        self._position = place
        read = self._queue.read(place, READ_COUNT)
        for half in read.messages:
            self._position = half.queue_offset
            verdict = self._check_half(half, asked)
            if verdict is not None:
                return verdict
            self._position = half.queue_offset + 1
        if read.next_offset <= place:
            self._is_in_round = False
            return 0
        self._position = read.next_offset
        return 0

    def _check_half(self, half: MessageExt, asked: list[MessageExt]) -> int | None:
        """Check one half; None to continue with the next one, otherwise a pause in ms."""
        place, config = half.queue_offset, self._config
        first_place = as_int(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET), -1)
        if first_place >= 0:
            self._ledger.restore_move(first_place, place)
        if self._is_decided(place):
            return None
        if place >= self._round_end:
            self._is_in_round = False
            return 0
        age_ms = self._age_ms(half, first_place)
        checks = check_times(half)
        if checks >= config.transaction_check_max or age_ms > self._reserved_ms():
            return self._abandon(half, checks)
        immune_ms = immunity_ms(half.properties, config.transaction_time_out)
        if immune_ms is None and age_ms <= config.transaction_time_out:
            self._is_in_round = False
            return 0
        is_immune = immune_ms is not None and age_ms <= immune_ms
        has_grace = self._round_began_ms < self._grace_end_ms and not self._ask.has_producer(half)
        is_skipped = is_immune or has_grace
        message = renewed_half(half, checks + (not is_skipped))
        if len(message.properties) > MAX_PROPERTIES_BYTES:
            return self._abandon(half, checks)  # of another broker: ours leave room for it
        renewed = self._store_again(half, message)
        if renewed is not None and not is_skipped:
            asked.append(renewed)
        return None if renewed is not None or self._is_decided(place) else _MAX_PAUSE_MS

    def _is_decided(self, place: int) -> bool:
        return self._ledger.first_open(place) != place

    def _age_ms(self, half: MessageExt, first_place: int) -> int:
        if first_place >= 0:
            since_ms = self._first_stored(first_place)
            # The first copy was deleted, perhaps because the disk was full. That says nothing
            # about the age, so the producer's clock has to do.
            if since_ms < 0:
                since_ms = half.born_timestamp_ms
        elif check_times(half):  # stored again by Apache
            since_ms = half.born_timestamp_ms
        else:
            since_ms = half.store_timestamp_ms
        age_ms = self._round_time_ms - since_ms
        if age_ms >= 0:
            return age_ms
        # The clock was set back: the half is at least as old as the first sample that has it.
        place = half.queue_offset if first_place < 0 else first_place
        return next((self._round_began_ms - at for at, end in self._ends if place < end), 0)

    def _store_again(self, half: MessageExt, message: PutMessage) -> MessageExt | None:
        """Store a half at the end of its queue; returns it as stored, or None on failure."""
        place = half.queue_offset
        if not self._ledger.start_move(place):
            return None
        result = self._store(message)
        if result is None:
            self._ledger.record_move(place, None)
            return None
        self._ledger.record_move(place, result.queue_offset)
        half.queue_offset, half.phy_offset = result.queue_offset, result.phy_offset
        half.store_timestamp_ms = result.store_timestamp_ms
        half.properties = parse_properties(message.properties)
        return half

    def _abandon(self, half: MessageExt, checks: int) -> int | None:
        with self._topics.one_write():
            self._topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        place = half.queue_offset
        if not self._ledger.start_move(place):
            return None
        if self._store(abandoned_half(half)) is None:
            self._ledger.record_move(place, None)
            return _MAX_PAUSE_MS
        topic = half.properties.get(PROPERTY_REAL_TOPIC, "")
        self._counts.add(topic, -1)
        self._abandoned_count += 1
        if len(self._abandoned) < _LOGGED_NAMES:
            self._abandoned.setdefault(topic, half.msg_id)
        _log.debug("transaction abandoned", topic=topic, message_id=half.msg_id, checks=checks)
        return None

    def _report_abandoned(self) -> None:
        """Log the transactions that were given up in a round."""
        if self._abandoned_count:
            _log.warning(
                "transactions given up, their messages are not delivered",
                count=self._abandoned_count,
                first_message_by_topic=self._abandoned,
                kept_in=TRANS_CHECK_MAX_TIME_TOPIC,
            )
        self._abandoned_count, self._abandoned = 0, {}

    def _store(self, message: PutMessage) -> PutMessageResult | None:
        result = self._put.put(message)
        if result.status is not PutMessageStatus.PUT_OK:
            _log.warning("half message not stored", status=result.status.value)
            return None
        return result

    def _advance_progress(
        self, position: int, end: int, asked: Sequence[MessageExt], is_durable: bool
    ) -> None:
        """Advance the progress after a flush, and ask the producers."""
        # What only replicas lack is on this disk: the progress may pass it while they are away.
        if not is_durable and self._flushed_phy_offset() < end:
            return
        self._progress.advance(position, end)
        self._commit_progress()
        for half in asked:
            self._ask(half)

    def _commit_progress(self) -> None:
        position = self._progress.durable
        if position > self._ledger.base:
            self._ledger.advance_to(position)
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, 0, position)
        # In this order: an op message is needed until the progress passed all halves it names.
        passed = self._ops.first_needed(position)
        if position or passed:  # a broker without transactions has no progress to store
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0, passed)
