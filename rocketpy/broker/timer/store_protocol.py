"""Interface of the message store for timed messages."""

from typing import Protocol

from rocketpy.store.interfaces import LogEnd, LogFlush, QueueReader, RecordReader


class TimerStore(QueueReader, RecordReader, LogEnd, LogFlush, Protocol):
    """Interface of the message store: queues, records and the ends of the log."""

    @property
    def min_phy_offset(self) -> int:
        """Start of the commit log."""
        ...
