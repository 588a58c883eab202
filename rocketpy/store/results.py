"""Arguments and results of store operations.

Source: MessageExtBrokerInner, PutMessageStatus, GetMessageResult, GetMessageStatus (5.4.0).
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self


class PutMessageStatus(enum.Enum):
    """Result of a put, with Apache's names."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"
    WHEEL_TIMER_FLOW_CONTROL = "WHEEL_TIMER_FLOW_CONTROL"
    WHEEL_TIMER_MSG_ILLEGAL = "WHEEL_TIMER_MSG_ILLEGAL"
    WHEEL_TIMER_NOT_ENABLE = "WHEEL_TIMER_NOT_ENABLE"


class GetMessageStatus(enum.Enum):
    """Status of a read, with Apache's names.

    Attributes:
        remark: the name as a plain attribute, because `value` costs two Python calls.
    """

    remark: str

    def __new__(cls, name: str) -> Self:
        """Make a member."""
        member = object.__new__(cls)
        member._value_ = member.remark = name
        return member

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class PutMessage:
    """Message to store, checked and encoded by the caller.

    Attributes:
        topic: stored topic (delayed and half messages: the system topic).
        queue_id: queue within the topic.
        body: bytes as they are to be stored (compressed or not).
        properties: encoded properties, at most 32,767 bytes.
        born_host: ip (4 or 16 bytes) and i32 port.
        flag: the application's own flag.
        sys_flag: system flags; the bits of the host widths are set by the store.
        born_timestamp_ms: creation time at the producer.
        tags_code: hash of `tags` (0 without), stored in the consume queue.
        uniq_key: UNIQ_KEY property, for the index.
        keys: KEYS property, for the index.
        tags: TAGS property, for the index.
        reconsume_times: number of earlier deliveries.
        prepared_transaction_offset: physical offset of the half message, or 0.
        wait_store_ok: WAIT property; False if the sender does not wait for the flush.
        delay_level: with topic SCHEDULE_TOPIC_XXXX, level from 1; its tags code then is
            the delivery time.
        store_host: as `born_host`; empty: the store's own.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    tags_code: int = 0
    uniq_key: str | None = None
    keys: str | None = None
    tags: str | None = None
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    wait_store_ok: bool = True
    delay_level: int = 0
    store_host: bytes = b""


class BatchEntry(NamedTuple):
    """Fields of one message of a batch that differ between its messages."""

    body: bytes
    properties: bytes = b""
    flag: int = 0
    tags_code: int = 0
    uniq_key: str | None = None
    keys: str | None = None
    tags: str | None = None


@dataclass(slots=True)
class BatchColumns:
    """Messages of a batch as columns: one sequence for each field.

    The store processes columns, because one call then handles all messages.
    """

    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    flags: Sequence[int]
    tags_codes: Sequence[int]
    uniq_keys: Sequence[str | None]
    keys: Sequence[str | None]
    tags: Sequence[str | None]

    @classmethod
    def of(cls, entries: Iterable[BatchEntry]) -> Self:
        """Convert messages to columns."""
        columns = tuple(zip(*entries, strict=True)) or ((),) * len(BatchEntry._fields)
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.bodies)


@dataclass(slots=True)
class PutBatch:
    """Messages for one queue, stored contiguously or not at all."""

    topic: str
    queue_id: int
    messages: BatchColumns
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    reconsume_times: int = 0
    wait_store_ok: bool = True
    store_host: bytes = b""


class PutMessageResult(NamedTuple):
    """Result of a put: status and position of the message.

    Attributes:
        status: outcome; the other fields are valid for PUT_OK only.
        phy_offset: physical offset of the first record.
        size_bytes: size of all records.
        queue_offset: queue offset of the first record.
        store_timestamp_ms: store time.
        phy_offsets: physical offset of each record of a batch; empty for a single message.
    """

    status: PutMessageStatus
    phy_offset: int = 0
    size_bytes: int = 0
    queue_offset: int = 0
    store_timestamp_ms: int = 0
    phy_offsets: tuple[int, ...] = ()

    @property
    def phy_end(self) -> int:
        """Physical offset of the byte after the last record (see `when_durable`)."""
        return self.phy_offset + self.size_bytes


class MessageFilter(Protocol):
    """Selects the messages that a read returns.

    Attributes:
        weight: relative cost of checking a message, normally 1; divides the messages of a read.
    """

    @property
    def weight(self) -> int:
        """See the class."""
        ...

    def matches_tags_code(self, tags_code: int) -> bool:
        """Match by the consume-queue entry alone; hash collisions may pass."""
        ...

    def matches_record(self, record: memoryview) -> bool:
        """Match by the complete stored record."""
        ...

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> Sequence[bool] | None:
        """Match many records at once, with the criteria of the other two methods.

        Args:
            view: memory that holds the records.
            positions: position of each record, bytes.
            sizes: size of each record, bytes.

        Returns:
            A result for each record; None if they must be matched one by one.
        """
        ...


@dataclass(slots=True)
class GetMessageResult:
    """Result of a read: messages, and the next offset. Offsets count queue entries.

    Attributes:
        status: outcome of the read.
        next_begin_offset: offset of the next read.
        min_offset: first offset of the queue.
        max_offset: offset after the last of the queue.
        buffers: one record each, or several adjacent ones if the reader allowed it; views of the
            mapped files: copy them, do not keep them.
        count: messages in `buffers`.
        size_bytes: bytes in `buffers`.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    buffers: list[memoryview] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0


def outside_queue(queue_offset: int, low: int, high: int) -> GetMessageResult:
    """Return the result of a read that starts outside a queue.

    Args:
        queue_offset: start of the read; below `low`, or at least `high`.
        low: first offset of the queue.
        high: offset after the last of the queue.
    """
    if high == 0:
        return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)


@dataclass(frozen=True, slots=True)
class QueryIndexResult:
    """Index entries of a key, including hash collisions; the caller compares the keys.

    Attributes:
        phy_offsets: newest first.
        last_update_timestamp_ms: store time of the newest indexed message.
        last_update_phy_offset: physical offset of the newest indexed message.
        is_complete: False if there may be more, because the index is catching up or the time range
            was too large for one look-up.
    """

    phy_offsets: list[int]
    last_update_timestamp_ms: int = 0
    last_update_phy_offset: int = 0
    is_complete: bool = True
