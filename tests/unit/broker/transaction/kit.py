"""Transactions on a real store on simulated files, without a broker around them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.transaction.check_back import CheckBack
from rocketpy.broker.transaction.end_transaction import EndTransactions, TransactionEnd
from rocketpy.broker.transaction.half_message import HalfMessages
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.broker.transaction.op_messages import OpMessages, parse_op_body
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.broker.fakes import MemoryFile
from tests.unit.store.store_kit import Kit as StoreKit

COMMIT, ROLLBACK = 8, 12
INTERVAL_MS = 30_000
HALF_PROPERTIES = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "U1", "TAGS": "a"}


class _Ask:
    """Producers of a kit."""

    def __init__(self, kit: "Kit") -> None:
        self._kit = kit

    @property
    def grace_ms(self) -> int:
        return self._kit.grace_ms

    def __call__(self, half: MessageExt) -> None:
        self._kit.asked.append(half)

    def has_producer(self, half: MessageExt) -> bool:
        assert half.properties["PGROUP"]
        return self._kit.has_producer


class Kit:
    """Transactions of a broker; `restart` recreates them on the same files."""

    def __init__(
        self, *, flush: str = "ASYNC_FLUSH", role: str = "ASYNC_MASTER", **settings: Any
    ) -> None:
        self.config = BrokerConfig(broker_name="b", **settings)
        self.stores = StoreKit(flush_disk_type=flush, broker_role=role)
        self.clock = self.stores.clock
        self.offsets_file = MemoryFile()
        self.counts_file = MemoryFile()
        self.ops_file = MemoryFile()
        self.asked: list[MessageExt] = []
        self.has_producer = True
        self.grace_ms = 0
        self.status: PutMessageStatus | None = None
        self.refuse_delay: Refusal | None = None
        self.is_online = True
        self.topics = TopicTable(self.config, MemoryFile(), self.clock)
        self.topics.load()
        self.topics.put(TopicConfig("T", 4, 4))
        self.start()

    def start(self) -> None:
        store = self.store = self.stores.open()
        store.store_host = b"\x0a\0\0\x02\0\0\x2a\x9f"
        config, clock = self.config, self.clock
        put = SystemWriter(_Faulty(self, store), lambda *_: None)
        self.offsets = ConsumerOffsets(config, self.offsets_file, clock)
        self.offsets.load()
        self.ledger = HalfLedger()
        self.counts = PendingCounts(
            "TransactionCounts",
            "transactionCount",
            self.counts_file,
            topic_exists=lambda topic: self.topics.get(topic) is not None,
            clock=clock,
        )
        self.halves = HalfMessages(config, "10.0.0.2")
        self.ops = OpMessages(
            SystemQueue(store, TRANS_OP_HALF_TOPIC, 0),
            put,
            config,
            clock,
            store_host=lambda: store.store_host,
            max_phy_offset=lambda: store.max_phy_offset,
            file=self.ops_file,
        )
        self.ends = EndTransactions(
            store,
            put,
            topics=self.topics,
            ledger=self.ledger,
            ops=self.ops,
            postpone=lambda _: self.refuse_delay,
            counts=self.counts,
            config=config,
            clock=clock,
            is_online=lambda: self.is_online,
        )
        self.check = CheckBack(
            SystemQueue(store, TRANS_HALF_TOPIC, 0),
            put,
            _Ask(self),
            topics=self.topics,
            ledger=self.ledger,
            ops=self.ops,
            counts=self.counts,
            offsets=self.offsets,
            first_stored=lambda place: store.store_time_ms(TRANS_HALF_TOPIC, 0, place),
            reserved_ms=lambda: 72 * 3_600_000,
            flushed_phy_offset=lambda: store.flushed_phy_offset,
            kept_phy_offset=lambda: store.flushed_phy_offset,
            max_phy_offset=lambda: store.max_phy_offset,
            flush_log=store.flush_log,
            config=config,
            clock=clock,
        )
        self.check.load()
        self.check.step(clock.monotonic_ms())

    def restart(self, *, saved: bool = True) -> None:
        """Restart with the current progress or the last written one."""
        if saved:
            self.offsets.persist()
        self.store.close()
        self.start()

    def configure(self, **settings: Any) -> None:
        self.config = replace(self.config, **settings)
        for part in (self.halves, self.ops, self.ends, self.check):
            part.configure(self.config)

    def half(
        self,
        body: bytes = b"x",
        properties: Mapping[str, str] = HALF_PROPERTIES,
        queue_id: int = 2,
        *,
        flush: bool = True,
    ) -> MessageExt:
        """Store a half message as a send does."""
        message = PutMessage(
            "T",
            queue_id,
            body,
            encode_properties(properties),
            born_timestamp_ms=self.clock.time_ms(),
            sys_flag=4,
            uniq_key=properties.get("UNIQ_KEY"),
        )
        request = SendRequest("T", queue_id, body, message.properties, b"", "", 0, 4, 0)
        assert self.halves(message, dict(properties), request) is None
        result = self.store.put_message(message)
        if flush:
            self.flush()
        return self.record(result)

    def record(self, result: PutMessageResult) -> MessageExt:
        record = self.store.look_message(result.phy_offset)
        assert record is not None
        return decode_message(record)

    def end(
        self, half: MessageExt, decision: int = COMMIT, *, group: str = "p", **more: Any
    ) -> list[Refusal | None]:
        """End a transaction; what was answered so far."""
        said: list[Refusal | None] = []
        end = TransactionEnd(group, half.queue_offset, half.phy_offset, decision, False)
        self.ends.end(end._replace(**more), said.append)
        return said

    def flush(self) -> None:
        for service in self.store.services:
            if service.name in {"FlushRealTimeService", "GroupCommitService"}:
                service.step(self.clock.monotonic_ms())

    def round(self) -> list[MessageExt]:
        """Let one round of the check go by; what producers were asked."""
        self.asked.clear()
        self.clock.advance(INTERVAL_MS)
        for _ in range(50):
            due_ms = self.check.step(self.clock.monotonic_ms())
            if due_ms > self.clock.monotonic_ms():
                break
        self.flush()
        self.store.flush_log()
        self.check.step(self.clock.monotonic_ms())  # the progress follows
        return list(self.asked)

    def messages(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        queue = SystemQueue(self.store, topic, queue_id)
        found: list[MessageExt] = []
        at = 0
        while at < queue.max_offset:
            read = queue.read(at)
            found += read.messages
            at = read.next_offset
        return found

    def committed(self, queue_id: int = 2) -> list[bytes]:
        return [message.body for message in self.messages("T", queue_id)]

    def ops_on_disk(self) -> list[list[int]]:
        return [parse_op_body(message.body) for message in self.messages(TRANS_OP_HALF_TOPIC)]

    def progress(self) -> tuple[int, int]:
        """Stored progress of the half and the op queue."""
        query = self.offsets.query
        return (
            query("CID_RMQ_SYS_TRANS", TRANS_HALF_TOPIC, 0),
            query("CID_RMQ_SYS_TRANS", TRANS_OP_HALF_TOPIC, 0),
        )


class _Faulty:
    """The store, whose puts the test may have refused."""

    def __init__(self, kit: Kit, store: MessageStore) -> None:
        self._kit = kit
        self._store = store
        self.when_durable = store.when_durable

    def put_message(self, message: PutMessage) -> PutMessageResult:
        if self._kit.status is not None:
            return PutMessageResult(self._kit.status)
        return self._store.put_message(message)
