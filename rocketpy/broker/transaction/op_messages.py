"""Op messages: the record on disk of decided halves, many halves in one message.

The body is the queue offsets of the halves, each followed by a comma; brokers before 5.0 wrote one
offset without a comma. It does not distinguish commits from rollbacks: a committed message is
stored before its op message.

If the store refuses op messages while the broker stops, the decided halves are written to a file of
RocketPy. The next start treats them as decided, and names them in op messages when it can. If the
log cannot be flushed either, the file contains only halves with everything on disk. What the disk
has of the others is unknown; their producers are asked, and a commit may be stored twice.

Source: TransactionalMessageServiceImpl (deletePrepareMessage, batchSendOpMessage),
TransactionalMessageBridge.writeOp, TransactionalMessageUtil (5.4.0).
"""

import collections
import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.json_document import JsonDocument, as_int, as_table
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.proto.record.properties import (
    PROPERTY_TAGS,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import TRANS_OP_HALF_TOPIC
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

REMOVE_TAG: Final = "d"
MAX_PENDING_OPS: Final = 20_000
"""Decided halves that wait for an op message while the store refuses them."""

_PROPERTIES: Final = encode_properties(
    {PROPERTY_TAGS: REMOVE_TAG, PROPERTY_WAIT_STORE_MSG_OK: "true"}
)
_TAGS_CODE: Final = tags_code(REMOVE_TAG)


def parse_op_body(body: bytes) -> list[int]:
    """Return the queue offsets of halves in the body of an op message; skips invalid parts."""
    return [int(part) for part in body.split(b",") if part.strip().isdigit()]


class OpMessages:
    """Background service that writes op messages; safe from any thread.

    Args:
        queue: the op queue.
        put: stores messages of the broker itself.
        config: size and age of a batch; see `configure`.
        clock: time.
        store_host: returns this broker's address in the format of records; known after listening.
        max_phy_offset: returns the end of the commit log.
        file: transactionPendingOps.json.
    """

    name = "TransactionOps"

    def __init__(
        self,
        queue: SystemQueue,
        put: SystemWriter,
        config: BrokerConfig,
        clock: Clock,
        *,
        store_host: Callable[[], bytes],
        max_phy_offset: Callable[[], int],
        file: JsonDocument,
    ) -> None:
        self._queue = queue
        self._put = put
        self._config = config
        self._clock = clock
        self._store_host = store_host
        self._max_phy_offset = max_phy_offset
        self._file = file
        self._is_in_file = False
        self._lock = threading.Lock()
        self._pending: list[int] = []
        # For each pending half: the end of the log after everything that was stored for it.
        self._pending_ends: list[int] = []
        self._pending_bytes = 0
        # Queue offset and greatest half of each op message that is still needed.
        self._written: collections.deque[tuple[int, int]] = collections.deque()
        self._next_op = 0

    @property
    def is_full(self) -> bool:
        """Whether no more halves may be decided, because op messages cannot be stored."""
        return len(self._pending) >= MAX_PENDING_OPS

    @property
    def room_bytes(self) -> int:
        """Free space of the next op message in bytes; 0 or less when it is full."""
        return self._config.transaction_op_msg_max_size - self._pending_bytes

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def load(self, offset: int, ledger: HalfLedger, halves_end: int) -> None:
        """Read the op messages from an offset on, and mark their halves as decided.

        Args:
            offset: offset in the op queue.
            ledger: states of the halves.
            halves_end: queue offset after the last half.
        """
        self._written.clear()
        self._load_file(ledger, halves_end)
        # After a power cut without SYNC_FLUSH the queue may be shorter than the stored progress.
        at = max(min(offset, self._queue.max_offset), self._queue.min_offset)
        while at < self._queue.max_offset:
            read = self._queue.read(at)
            for message in read.messages:
                if message.tags != REMOVE_TAG:
                    _log.error("op message skipped: unknown tag", queue_offset=at)
                    continue
                halves = parse_op_body(message.body)
                for half in halves:
                    ledger.mark_decided(half)
                self._written.append((message.queue_offset, max(halves, default=-1)))
            if read.next_offset <= at:
                break
            at = read.next_offset
        self._next_op = at

    def _load_file(self, ledger: HalfLedger, halves_end: int) -> None:
        found = as_table(self._file.load()).get("halves")
        halves = [as_int(each, -1) for each in found] if isinstance(found, list) else []
        self._is_in_file = bool(halves)
        if any(not 0 <= half < halves_end for half in halves):
            _log.warning("transactionPendingOps.json discarded: other store", count=len(halves))
            halves.clear()
            self._file.save({"halves": halves})
            self._is_in_file = False
        for half in halves:
            ledger.mark_decided(half)
        with self._lock:
            self._pending = [half for half in halves if half >= ledger.base]
            self._pending_ends = [0] * len(self._pending)
            self._pending_bytes = sum(len(str(half)) + 1 for half in self._pending)

    def save(self, kept_phy_offset: int) -> None:
        """Write pending halves that are on disk with everything stored for them; at the end.

        Args:
            kept_phy_offset: end of the commit log that stays.

        Raises:
            StoreError: the file cannot be written.
        """
        pending = zip(self._pending, self._pending_ends, strict=True)
        halves = [half for half, end in pending if end <= kept_phy_offset]
        if halves or self._is_in_file:
            self._file.save({"halves": halves})
            self._is_in_file = bool(halves)

    def add(self, halves: Sequence[int]) -> None:
        """Queue decided halves for an op message; everything stored for them must be durable."""
        end = self._max_phy_offset()
        with self._lock:
            self._pending += halves
            self._pending_ends += [end] * len(halves)
            self._pending_bytes += sum(len(str(half)) + 1 for half in halves)
            is_full = self._pending_bytes >= self._config.transaction_op_msg_max_size
        if is_full and not self._write():
            _log.warning("op message not stored")

    def step(self, now_ms: int) -> int:
        """Write pending halves; see `rocketpy.runtime.service.Service.step`."""
        while self._pending and self._write():
            pass
        return now_ms + self._config.transaction_op_batch_interval

    def flush(self) -> None:
        """Write all pending halves."""
        self.step(0)

    def first_needed(self, half: int) -> int:
        """Return the op queue offset from which on op messages name halves at or after `half`."""
        with self._lock:
            written = self._written
            while written and written[0][1] < half:
                written.popleft()
            return written[0][0] if written else self._next_op

    def _write(self) -> bool:
        """Store one op message; False when that failed and its halves are still pending."""
        # The lock is held during the put: two threads must neither store the same halves twice
        # nor record op messages in another order than that of the queue.
        with self._lock:
            if not self._pending:
                return True
            limit = self._config.transaction_op_msg_max_size
            parts: list[bytes] = []
            size_bytes = 0
            for half in self._pending:
                part = b"%d," % half
                if parts and size_bytes + len(part) > limit:
                    break
                parts.append(part)
                size_bytes += len(part)
            halves = self._pending[: len(parts)]
            result = self._put.put(
                PutMessage(
                    TRANS_OP_HALF_TOPIC,
                    0,
                    b"".join(parts),
                    _PROPERTIES,
                    self._store_host(),
                    born_timestamp_ms=self._clock.time_ms(),
                    tags_code=_TAGS_CODE,
                    tags=REMOVE_TAG,
                    wait_store_ok=False,
                )
            )
            if result.status is not PutMessageStatus.PUT_OK:
                return False
            del self._pending[: len(parts)], self._pending_ends[: len(parts)]
            self._pending_bytes -= size_bytes
            self._written.append((result.queue_offset, max(halves)))
            self._next_op = result.queue_offset + 1
            return True
