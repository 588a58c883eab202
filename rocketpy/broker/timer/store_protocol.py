"""Interface of the message store for timed messages."""

from typing import Protocol

from rocketpy.store.results import GetMessageResult, MessageFilter


class TimerStore(Protocol):
    """Interface of the message store: queues, records and the ends of the log."""

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

    def look_message(self, phy_offset: int) -> memoryview | None:
        """Return the record at a physical offset."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset, or -1 when the queue does not exist."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after the last message."""
        ...

    @property
    def flushed_phy_offset(self) -> int:
        """End of the part of the commit log that is on disk."""
        ...

    @property
    def min_phy_offset(self) -> int:
        """Start of the commit log."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """End of the commit log."""
        ...

    def flush_log(self) -> bool:
        """Flush the commit log; whether that succeeded."""
        ...
