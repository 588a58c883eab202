"""What timed messages need of the message store."""

from typing import Protocol

from rocketpy.store.results import GetMessageResult, MessageFilter


class TimerStore(Protocol):
    """What the timer needs of the message store."""

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
        """First queue offset, -1 without a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset after the last message."""
        ...

    @property
    def flushed_phy_offset(self) -> int:
        """Up to where the commit log is on disk."""
        ...

    @property
    def min_phy_offset(self) -> int:
        """Where the commit log begins."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """Where the commit log ends."""
        ...

    def flush_log(self) -> bool:
        """Bring the commit log to disk."""
        ...
