"""Interfaces of the message store: what its callers need, one protocol per capability.

A caller declares the smallest set it uses, so that a test can pass a small fake. Callers that need
several combine these protocols.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from rocketpy.store.results import (
    GetMessageResult,
    MessageFilter,
    PutBatch,
    PutMessage,
    PutMessageResult,
    QueryIndexResult,
)


class QueueStart(Protocol):
    """First offsets of queues."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, or -1 when the queue does not exist."""
        ...


class QueueBounds(QueueStart, Protocol):
    """First and last offsets of queues."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message of a queue."""
        ...


class QueueReader(QueueBounds, Protocol):
    """Messages of queues."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002 - as the store has it
    ) -> GetMessageResult:
        """Read messages of a queue."""
        ...


class JoiningReader(QueueBounds, Protocol):
    """Messages of queues; neighbours in the log may be returned as one buffer."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002 - as the store has it
        *,
        may_join: bool = False,
    ) -> GetMessageResult:
        """Read messages of a queue."""
        ...


class RecordReader(Protocol):
    """Records by physical offset."""

    def look_message(self, phy_offset: int) -> memoryview | None:
        """Return one complete record."""
        ...


class AppendedRecords(RecordReader, Protocol):
    """Records by physical offset, also those that consumers cannot read yet."""

    def look_appended(self, phy_offset: int) -> memoryview | None:
        """Return one complete record, whether it is visible or not."""
        ...


class KeyIndex(RecordReader, Protocol):
    """Index of keys, with the records that it names."""

    def query_index(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
        *,
        accept: Callable[[int], bool] | None = None,
    ) -> QueryIndexResult:
        """Find records by key; `accept` rejects records with another key of the same hash."""
        ...


class QueueTimes(QueueBounds, Protocol):
    """Offsets and store times of queues."""

    def offset_by_time(self, topic: str, queue_id: int, ts_ms: int, upper: bool = False) -> int:
        """Return the first offset stored at or after a time."""
        ...

    def earliest_store_time_ms(self, topic: str, queue_id: int) -> int:
        """Return the store time of the first message of a queue; -1 without messages."""
        ...


class RecentMessages(Protocol):
    """Distinction between recent messages and old ones."""

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message is recent enough to count as in memory."""
        ...


class LogEnd(Protocol):
    """End of the log, and of its part on disk."""

    @property
    def flushed_phy_offset(self) -> int:
        """End of the part of the log that is on disk."""
        ...

    @property
    def kept_phy_offset(self) -> int:
        """End of the log that stays: on disk, and not cut when another replica is elected."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """End of the log."""
        ...


class LogFlush(Protocol):
    """Flush of the log."""

    @property
    def flushed_phy_offset(self) -> int:
        """End of the part of the log that is on disk."""
        ...

    @property
    def kept_phy_offset(self) -> int:
        """End of the log that stays: on disk, and not cut when another replica is elected."""
        ...

    def flush_log(self) -> bool:
        """Flush everything appended so far; whether that succeeded."""
        ...


class Durability(Protocol):
    """Notice of records that reach the disk, and enough replicas."""

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is as durable as required, or never will be.

        The argument is False after a failure, and when it took too long.
        """
        ...


class FlushNotice(Protocol):
    """Notice of records that reach the disk."""

    def when_flushed(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        ...


class Writability(Protocol):
    """State of the store for writes."""

    @property
    def is_writable(self) -> bool:
        """Whether puts may succeed."""
        ...


class MessageWriter(Durability, Protocol):
    """Puts of single messages."""

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Store one message."""
        ...


class BatchWriter(MessageWriter, Writability, Protocol):
    """Puts of messages and batches, and removal of queues that a put created too late."""

    def is_confirmed(self, phy_end: int) -> bool:
        """Whether enough replicas have everything before `phy_end`."""
        ...

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Store several messages next to each other."""
        ...

    def delete_topics(self, topics: Sequence[str]) -> object:
        """Delete the queues of topics."""
        ...
