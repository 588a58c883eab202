"""Which messages count as still in memory: the newest part of the log, 40 % of the machine's.

Source: DefaultMessageStore.checkInDiskByConsumeOffset (5.4.0).
"""

import struct
from typing import Final, Protocol

from rocketpy.proto.record.record import PHY_OFFSET_AT
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter

_PHY_OFFSET: Final = struct.Struct(">q")
_ONE: Final = 1


class _Reader(Protocol):
    @property
    def max_phy_offset(self) -> int:
        """End of the log."""
        ...

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002
    ) -> GetMessageResult:
        """Read a queue."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        ...


class PageCacheEstimate:
    """Tells recent messages from old ones.

    Args:
        store: where the messages are.
        ratio_percent: share of the memory that the newest messages are taken to fill.
        memory_bytes: of the machine.
    """

    def __init__(self, store: _Reader, *, ratio_percent: int, memory_bytes: int) -> None:
        self._store = store
        self._reach_bytes = memory_bytes * ratio_percent // 100

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        return self._store.min_offset(topic, queue_id)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is recent; what is not there yet is."""
        found = self._store.get_message(topic, queue_id, queue_offset, _ONE, _ONE)
        if found.status is not GetMessageStatus.FOUND or not found.buffers:
            return True
        (phy_offset,) = _PHY_OFFSET.unpack_from(found.buffers[0], PHY_OFFSET_AT)
        return bool(self._store.max_phy_offset - phy_offset <= self._reach_bytes)
