"""The check-back: producers are asked about half messages that nobody has decided.

Each round walks the half queue from its progress on. A half that is decided is passed; one that is
younger than the time a local transaction may take ends the round; of any other its producer group
is asked, and the half is stored again behind all others, so that the progress can pass it. After
`transactionCheckMax` questions it is given up: it goes to a topic of its own, where operators find
it, and is never delivered.

The progress (of the half and the op queue, in consumerOffset.json) passes a half only when it and
what was stored for it are on disk, whatever the store's mode: it was acknowledged long ago.

Source: TransactionalMessageServiceImpl.check, TransactionalMessageCheckService (5.4.0). Ours: the
age of a half is counted by this broker's clock from when it was first stored (by its producer's, a
wrong clock has it given up unasked), and by the time that goes by after that clock was set back; a
half that is not to be checked yet is not counted as checked; one that cannot be stored again is
not passed.

CHECK_TRANSACTION_STATE (39): asks one connected producer of a group how a transaction ended.

Source: AbstractTransactionalMessageCheckListener.sendCheckMessage,
ProducerManager.getAvailableChannel, Broker2Client.checkProducerTransactionState (5.4.0).
"""

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
    as_int,
    check_times,
    given_up,
    immunity_ms,
    real_place,
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
    """Asks the members of a producer group in turn; safe from any thread.

    Args:
        producers: who is connected.
        broker_name: told to the producer.
    """

    def __init__(self, producers: _Producers, broker_name: str) -> None:
        self._producers = producers
        self._broker_name = broker_name
        self._turn = 0

    def __call__(self, half: MessageExt) -> None:
        """Ask about a half message; nothing happens when nobody can be asked now."""
        place = real_place(half.properties)
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        member = self._next_member(group)
        if member is None or place is None:
            _log.info("no producer to ask about a transaction", group=group, msg_id=half.msg_id)
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
        told = replace(half, topic=place.topic, queue_id=place.queue_id)
        request = make_request(
            RequestCode.CHECK_TRANSACTION_STATE, header.to_ext(), encode_message(told)
        )
        member.channel.invoke_oneway(request)

    def _next_member(self, group: str) -> ClientChannel | None:
        """The next one that keeps up with what it is sent."""
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

READ_COUNT: Final = 32
"""Half messages a step looks at, at most."""
_MAX_PAUSE_MS: Final = 1_000
"""How soon a shortened `transactionCheckInterval` counts; also the pause after a refused put."""
_MOST_ENDS: Final = 1_000
"""Moments, a second apart or more, of which is remembered which halves were there."""


class Offsets(Protocol):
    """Where the progress is kept: the broker's consumer offsets."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The stored offset, negative when there is none."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store one."""
        ...


Ask = Callable[[MessageExt], None]
"""Asks the producer group of a half, as it is stored now; any thread."""
FirstStored = Callable[[int], int]
"""Store time of a half by its queue offset, ms; -1 when it is not there any more."""


class CheckBack:
    """Finds undecided halves and has their producers asked; a service.

    Args:
        queue: the half queue.
        put: stores halves again.
        ask: asks a producer.
        topics: where the topic of those given up is made.
        ledger: which halves are decided.
        ops: how far the op queue may be passed.
        counts: how many transactions of each topic are open.
        offsets: keeps the progress.
        first_stored: when a half was first stored.
        reserved_ms: how long messages are kept; a half older than this is given up.
        flushed_phy_offset: asked up to where the commit log is on disk.
        max_phy_offset: asked where the commit log ends.
        flush_log: brings the commit log to disk, at the end.
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
        max_phy_offset: Callable[[], int],
        flush_log: Callable[[], object],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._put = put
        self._ask = ask
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
        self._progress = DurableProgress(0, flushed_phy_offset)
        self._flushed_phy_offset = flushed_phy_offset
        self._max_phy_offset = max_phy_offset
        self._flush_log = flush_log
        self._is_in_round = False
        self._round_began_ms = -1
        self._round_time_ms = 0
        self._round_end = 0
        # Monotonic times, and where the half queue ended then.
        self._ends: deque[tuple[int, int]] = deque(maxlen=_MOST_ENDS)

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config

    def load(self) -> None:
        """Begin at the stored progress; the ledger learns what op messages tell."""
        half = self._stored_progress(self._queue, TRANS_HALF_TOPIC)
        self._ledger.reset(half)
        self._position = half
        self._progress.reset(half)
        op = self._offsets.query(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0)
        self._ops.load(op, self._ledger, self._queue.max_offset)

    def persist(self) -> None:
        """Write what decided halves still wait for, and let the progress follow."""
        self._ops.flush()
        self._flush_log()
        self._ops.save(self._flushed_phy_offset())
        self._follow()

    def step(self, now_ms: int) -> int:
        """Do a part of a round, or wait for the next; see `rocketpy.runtime.service.Service`."""
        self._follow()
        if not self._ends or now_ms - self._ends[-1][0] >= _MAX_PAUSE_MS:
            self._ends.append((now_ms, self._queue.max_offset))
        if self._round_began_ms < 0:  # the first round comes an interval after the start
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
        pause_ms = self._look_on(asked)
        self._position = self._ledger.passable(self._position)
        # Whatever was stored for the halves before it is in the log by now, their own records, too:
        # a place that a power cut takes is another half's next time.
        end = self._max_phy_offset()
        self._put.when_durable(end, partial(self._passed, self._position, end, asked))
        return now_ms + pause_ms

    def _stored_progress(self, queue: SystemQueue, topic: str) -> int:
        stored = self._offsets.query(TRANS_GROUP, topic, 0)
        # After a power cut without SYNC_FLUSH the queue may be shorter than its progress.
        return max(min(stored, queue.max_offset), queue.min_offset, 0)

    def _look_on(self, asked: list[MessageExt]) -> int:
        """Look at the next halves; the pause until the next step."""
        place = self._ledger.first_open(self._position)
        self._position = place
        read = self._queue.read(place, READ_COUNT)
        for half in read.messages:
            self._position = half.queue_offset
            verdict = self._judge(half, asked)
            if verdict is not None:
                return verdict
            self._position = half.queue_offset + 1
        if read.next_offset <= place:
            self._is_in_round = False
            return 0
        self._position = read.next_offset
        return 0

    def _judge(self, half: MessageExt, asked: list[MessageExt]) -> int | None:
        """Deal with one half; None to go on with the next one, or a pause in ms."""
        place, config = half.queue_offset, self._config
        first_place = as_int(half.properties.get(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET), -1)
        if first_place >= 0:
            self._ledger.learn_move(first_place, place)
        if self._is_decided(place):
            return None
        if place >= self._round_end:
            self._is_in_round = False
            return 0
        age_ms = self._age_ms(half, first_place)
        checks = check_times(half)
        if checks >= config.transaction_check_max or age_ms > self._reserved_ms():
            return self._give_up(half, checks)
        immune_ms = immunity_ms(half.properties, config.transaction_time_out)
        if immune_ms is None and age_ms <= config.transaction_time_out:
            self._is_in_round = False
            return 0
        is_immune = immune_ms is not None and age_ms <= immune_ms
        message = renewed_half(half, checks + (not is_immune))
        if len(message.properties) > MAX_PROPERTIES_BYTES:
            return self._give_up(half, checks)  # of another broker: ours leave room for it
        renewed = self._store_again(half, message)
        if renewed is not None and not is_immune:
            asked.append(renewed)
        return None if renewed is not None or self._is_decided(place) else _MAX_PAUSE_MS

    def _is_decided(self, place: int) -> bool:
        return self._ledger.first_open(place) != place

    def _age_ms(self, half: MessageExt, first_place: int) -> int:
        if first_place >= 0:
            since_ms = self._first_stored(first_place)
            if since_ms < 0:  # deleted, perhaps because the disk was full: no reason to give it up
                since_ms = half.born_timestamp_ms
        elif check_times(half):  # stored again by Apache
            since_ms = half.born_timestamp_ms
        else:
            since_ms = half.store_timestamp_ms
        age_ms = self._round_time_ms - since_ms
        if age_ms >= 0:
            return age_ms
        # The clock was set back. It is at least as old as the first moment at which it was there.
        place = half.queue_offset if first_place < 0 else first_place
        return next((self._round_began_ms - at for at, end in self._ends if place < end), 0)

    def _store_again(self, half: MessageExt, message: PutMessage) -> MessageExt | None:
        """Move a half to the end of its queue: as it is there; None when it was not moved."""
        place = half.queue_offset
        if not self._ledger.begin_move(place):
            return None
        result = self._store(message)
        if result is None:
            self._ledger.moved(place, None)
            return None
        self._ledger.moved(place, result.queue_offset)
        half.queue_offset, half.phy_offset = result.queue_offset, result.phy_offset
        half.store_timestamp_ms = result.store_timestamp_ms
        half.properties = parse_properties(message.properties)
        return half

    def _give_up(self, half: MessageExt, checks: int) -> int | None:
        with self._topics.one_write():
            self._topics.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        place = half.queue_offset
        if not self._ledger.begin_move(place):
            return None
        if self._store(given_up(half)) is None:
            self._ledger.moved(place, None)
            return _MAX_PAUSE_MS
        self._counts.add(half.properties.get(PROPERTY_REAL_TOPIC, ""), -1)
        _log.warning(
            "a transaction that nobody decides is given up",
            topic=half.properties.get(PROPERTY_REAL_TOPIC),
            message_id=half.msg_id,
            checks=checks,
        )
        return None

    def _store(self, message: PutMessage) -> PutMessageResult | None:
        result = self._put.put(message)
        if result.status is not PutMessageStatus.PUT_OK:
            _log.warning("a half message cannot be stored, will be tried again", why=result.status)
            return None
        return result

    def _passed(
        self, position: int, end: int, asked: Sequence[MessageExt], is_durable: bool
    ) -> None:
        """Let the progress follow what is on disk, and ask the producers."""
        if not is_durable:
            return
        self._progress.advance(position, end)
        self._follow()
        for half in asked:
            self._ask(half)

    def _follow(self) -> None:
        position = self._progress.durable
        if position > self._ledger.base:
            self._ledger.pass_to(position)
            self._offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, 0, position)
        # In this order: an op message is needed as long as a half that it names is not passed.
        passed = self._ops.passed(position)
        if position or passed:  # a broker without transactions has no progress to write
            self._offsets.commit(TRANS_GROUP, TRANS_OP_HALF_TOPIC, 0, passed)
