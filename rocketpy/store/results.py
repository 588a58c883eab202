"""What goes into the store and what comes out of it.

Source: MessageExtBrokerInner, PutMessageStatus, GetMessageResult, GetMessageStatus (5.4.0).
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol, Self

from rocketpy.lazy_dataclass import lazy_dataclass


class PutMessageStatus(enum.Enum):
    """How a put ended (Apache's names)."""

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
    """Why a read returned what it returned (Apache's names).

    Attributes:
        remark: the name, at the cost of an attribute: `value` is two calls of Python.
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


@lazy_dataclass()
class PutMessage:
    """One message to store; everything is already checked and encoded by the caller.

    Attributes:
        topic: stored topic (delayed and half messages: the system topic).
        queue_id: queue within the topic.
        body: bytes as they are to be stored (compressed or not).
        properties: encoded properties, at most 32,767 bytes.
        born_host: ip (4 or 16 bytes) and i32 port.
        flag: the application's own flag.
        sys_flag: system flags; the bits of the host widths are set by the store.
        born_timestamp_ms: when the producer made it.
        tags_code: hash of ``tags`` (0 without), kept in the consume queue.
        uniq_key: UNIQ_KEY property, for the index.
        keys: KEYS property, for the index.
        tags: TAGS property, for the index.
        reconsume_times: how often it was tried.
        prepared_transaction_offset: physical offset of the half message, or 0.
        wait_store_ok: WAIT property; False: the sender does not wait for the disk.
        delay_level: with topic SCHEDULE_TOPIC_XXXX, level from 1; its tags code then is
            the delivery time.
        store_host: as ``born_host``; empty: the store's own.
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
    """One message of a batch: what differs from its neighbours."""

    body: bytes
    properties: bytes = b""
    flag: int = 0
    tags_code: int = 0
    uniq_key: str | None = None
    keys: str | None = None
    tags: str | None = None


@lazy_dataclass()
class BatchColumns:
    """The messages of a batch, field by field: one value a message in each, in their order.

    A batch is stored column by column, because a step over a whole column is one call.
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
        """Turn messages into columns."""
        columns = tuple(zip(*entries, strict=True)) or ((),) * len(BatchEntry._fields)
        return cls(*columns)

    def __len__(self) -> int:
        return len(self.bodies)


@lazy_dataclass()
class PutBatch:
    """Messages for one queue, stored side by side or not at all."""

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
    """Where a message went.

    Attributes:
        status: how it ended; the rest means something for PUT_OK only.
        phy_offset: bytes from the start of the commit log, of the first record.
        size_bytes: of all records.
        queue_offset: of the first record.
        store_timestamp_ms: when it was appended.
        phy_offsets: of each record of a batch; empty for a single message.
    """

    status: PutMessageStatus
    phy_offset: int = 0
    size_bytes: int = 0
    queue_offset: int = 0
    store_timestamp_ms: int = 0
    phy_offsets: tuple[int, ...] = ()

    @property
    def phy_end(self) -> int:
        """Physical offset of the byte after the last record (see ``when_durable``)."""
        return self.phy_offset + self.size_bytes


class MessageFilter(Protocol):
    """Decides which messages a read returns.

    Attributes:
        weight: what a look at a message costs, 1 is usual: a read looks at so many times fewer.
    """

    @property
    def weight(self) -> int:
        """See the class."""
        ...

    def matches_tags_code(self, tags_code: int) -> bool:
        """Match by the consume-queue entry alone; hash collisions may pass."""
        ...

    def matches_record(self, record: memoryview) -> bool:
        """Match by the whole stored record."""
        ...

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> Sequence[bool] | None:
        """Match many records at once, by whatever the other two look at.

        Args:
            view: memory that holds the records.
            positions: where each begins, bytes.
            sizes: of each, bytes.

        Returns:
            An answer for each record; None when they are to be matched one by one.
        """
        ...


@lazy_dataclass()
class GetMessageResult:
    """Messages found, and where to look next. Offsets count queue entries.

    Attributes:
        status: why the read returned what it returned.
        next_begin_offset: where the next read goes on.
        min_offset: first offset of the queue.
        max_offset: offset after the last of the queue.
        buffers: one whole record each, or some that lie one behind the other where the reader
            allowed it; views of the mapped files: copy them, do not keep them.
        count: messages in ``buffers``.
        size_bytes: bytes in ``buffers``.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int = 0
    max_offset: int = 0
    buffers: list[memoryview] = field(default_factory=list)
    count: int = 0
    size_bytes: int = 0


def outside_queue(queue_offset: int, low: int, high: int) -> GetMessageResult:
    """Return what a read finds that begins where a queue has no entry.

    Args:
        queue_offset: where it begins; before `low`, or `high` or more.
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


@lazy_dataclass(frozen=True)
class QueryIndexResult:
    """Index entries for a key; hash collisions are among them, the caller checks the keys.

    Attributes:
        phy_offsets: newest first.
        last_update_timestamp_ms: store time of the newest indexed message.
        last_update_phy_offset: physical offset of the newest indexed message.
        is_complete: False when there may be more: the index is still being completed, or the
            time range was too large for one look-up.
    """

    phy_offsets: list[int]
    last_update_timestamp_ms: int = 0
    last_update_phy_offset: int = 0
    is_complete: bool = True
