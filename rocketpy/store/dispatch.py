"""Dispatch: what an appended message tells the consume queue and the index.

Right after the append the values in hand are used. Reading them back from the log
(`read_back`) is for recovery and for an index that fell behind.

With SYNC_FLUSH messages wait in a line until they are on disk, so that nobody reads a message
that a power cut could still take.

Source: CommitLogDispatcherBuildConsumeQueue, CommitLogDispatcherBuildIndex,
CommitLog.checkMessageAndReturnSize (5.4.0).
"""

from collections import deque
from typing import Final, NamedTuple

from rocketpy.proto.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    parse_properties,
)
from rocketpy.proto.record_check import RecordCheck
from rocketpy.proto.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rocketpy.proto.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC
from rocketpy.store.consume_queue import ConsumeQueue

_UNKNOWN_LEVEL_MS: Final = 1_000

Arrival = tuple[str, int, int, int]
"""Topic, queue id, next queue offset, tags code: what `MessageStore.on_arrival` is told."""


class DispatchRecord(NamedTuple):
    """A record read back from the log, as far as queues and index need it."""

    topic: str
    queue_id: int
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    sys_flag: int
    uniq_key: str | None
    keys: str | None
    tags: str | None

    @property
    def has_queue_entry(self) -> bool:
        """Whether consumers may see it: half and rolled-back messages are not for them."""
        return self.sys_flag & TRANSACTION_MASK in {0, TRANSACTION_COMMIT}

    @property
    def has_index_entries(self) -> bool:
        """Whether it can be found by key."""
        return self.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK


def delivery_time_ms(level: int, store_timestamp_ms: int, delays_ms: tuple[int, ...]) -> int:
    """Return when a delayed message is due; it takes the place of its tags code.

    Args:
        level: delay level from 1; levels above the last one count as the last.
        store_timestamp_ms: when it was stored.
        delays_ms: the delays, level 1 first.
    """
    if level < 1 or not delays_ms:
        return store_timestamp_ms + _UNKNOWN_LEVEL_MS
    return store_timestamp_ms + delays_ms[min(level, len(delays_ms)) - 1]


def read_back(
    found: RecordCheck, phy_offset: int, delays_ms: tuple[int, ...]
) -> DispatchRecord | None:
    """Turn a judged record into what is dispatched; None when its topic is not text."""
    try:
        topic = found.topic.decode()
    except UnicodeDecodeError:
        return None
    properties = parse_properties(found.properties)
    tags = properties.get(PROPERTY_TAGS)
    code = tags_code(tags)
    delay = properties.get(PROPERTY_DELAY_TIME_LEVEL, "")
    if topic == SCHEDULE_TOPIC and delay.isascii() and delay.isdigit():
        code = delivery_time_ms(int(delay[:9]), found.store_timestamp_ms, delays_ms)
    return DispatchRecord(
        topic,
        found.queue_id,
        found.queue_offset,
        phy_offset,
        found.size_bytes,
        code,
        found.store_timestamp_ms,
        found.sys_flag,
        properties.get(PROPERTY_UNIQ_KEY),
        properties.get(PROPERTY_KEYS),
        tags,
    )


class PendingDispatch(NamedTuple):
    """An appended message that waits for the disk."""

    phy_end: int
    queue: ConsumeQueue | None
    queue_offset: int
    phy_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    topic: str
    uniq_key: str | None
    keys: str | None
    tags: str | None
    indexed: bool


class PendingDispatchQueue:
    """Messages that wait for the disk, in the order of the log; the append lock guards it."""

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: deque[PendingDispatch] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, pending: PendingDispatch) -> None:
        """Put a message at the end of the line."""
        self._line.append(pending)

    def take(self, flushed_phy_offset: int) -> list[PendingDispatch]:
        """Remove and return the messages that end at or before an offset."""
        line = self._line
        taken = []
        while line and line[0].phy_end <= flushed_phy_offset:
            taken.append(line.popleft())
        return taken
