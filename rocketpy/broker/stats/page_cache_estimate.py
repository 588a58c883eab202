"""Estimate of the messages in the page cache: the newest part of the log, 40 % of the memory.

Source: DefaultMessageStore.checkInDiskByConsumeOffset (5.4.0).
"""

import struct
from typing import Final, Protocol

from rocketpy.proto.record.record import PHY_OFFSET_AT
from rocketpy.store.interfaces import LogEnd, QueueReader
from rocketpy.store.results import GetMessageStatus

_PHY_OFFSET: Final = struct.Struct(">q")
_ONE: Final = 1


class _Store(QueueReader, LogEnd, Protocol):
    """Store of an estimate: messages, and the end of the log."""


class PageCacheEstimate:
    """Distinguishes recent messages from old ones.

    Args:
        store: the message store.
        ratio_percent: share of the memory that the newest messages are assumed to fill.
        memory_bytes: memory of the machine.
    """

    def __init__(self, store: _Store, *, ratio_percent: int, memory_bytes: int) -> None:
        self._store = store
        self._reach_bytes = memory_bytes * ratio_percent // 100

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue."""
        return self._store.min_offset(topic, queue_id)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Return whether a message is recent; one that does not exist yet counts as recent."""
        found = self._store.get_message(topic, queue_id, queue_offset, _ONE, _ONE)
        if found.status is not GetMessageStatus.FOUND or not found.buffers:
            return True
        (phy_offset,) = _PHY_OFFSET.unpack_from(found.buffers[0], PHY_OFFSET_AT)
        return bool(self._store.max_phy_offset - phy_offset <= self._reach_bytes)
