"""A queue of a system topic, read by the broker itself: delays, half messages, acks of pops.

Source: TransactionalMessageBridge.getMessage, ScheduleMessageService, PopReviveService (5.4.0).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import structlog

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.raw_record import RawRecord, split_record
from rocketpy.store.interfaces import QueueReader
from rocketpy.store.results import MessageFilter

_log = structlog.get_logger(__name__)


class SystemRead(NamedTuple):
    """Result of a read.

    Attributes:
        messages: messages in queue order, with their bodies as stored.
        next_offset: queue offset of the next read; it may be far beyond the last message, when the
            entries in between have no messages any more.
    """

    messages: list[MessageExt]
    next_offset: int


class RawRead(NamedTuple):
    """Result of a read without decoding; see `SystemRead`."""

    records: list[RawRecord]
    next_offset: int


_T = TypeVar("_T")


class SystemQueue:
    """Reads one queue from any offset on.

    Args:
        store: the message store.
        topic: a system topic.
        queue_id: queue within the topic.
    """

    def __init__(self, store: QueueReader, topic: str, queue_id: int) -> None:
        self._store = store
        self.topic = topic
        self.queue_id = queue_id

    @property
    def min_offset(self) -> int:
        """First queue offset."""
        return self._store.min_offset(self.topic, self.queue_id)

    @property
    def max_offset(self) -> int:
        """Queue offset after the last visible message."""
        return self._store.max_offset(self.topic, self.queue_id)

    def read(
        self,
        offset: int,
        max_count: int = 32,
        max_bytes: int = 1 << 20,
        wanted: MessageFilter | None = None,
    ) -> SystemRead:
        """Read messages from an offset on; damaged ones are skipped with an error in the log.

        Args:
            offset: queue offset.
            max_count: maximal number of messages; the store's transfer limits apply as well.
            max_bytes: maximal size; the first message is read whatever its size.
            wanted: filter of messages; None accepts everything.
        """
        return SystemRead(*self._read(offset, max_count, max_bytes, _decoded, wanted))

    def read_raw(self, offset: int, max_count: int = 32, max_bytes: int = 1 << 20) -> RawRead:
        """Read messages like `read`, without decoding them."""
        return RawRead(*self._read(offset, max_count, max_bytes, split_record))

    def _read(
        self,
        offset: int,
        max_count: int,
        max_bytes: int,
        decode: Callable[[memoryview], _T],
        wanted: MessageFilter | None = None,
    ) -> tuple[list[_T], int]:
        found = self._store.get_message(
            self.topic, self.queue_id, offset, max_count, max_bytes, wanted
        )
        messages = []
        for record in found.buffers:
            try:
                messages.append(decode(record))
            except CorruptRecordError as error:
                _log.error(
                    "damaged system message skipped",
                    topic=self.topic,
                    queue_id=self.queue_id,
                    error=str(error),
                )
        return messages, found.next_begin_offset


def _decoded(record: memoryview) -> MessageExt:
    return decode_message(record, inflate=False)
