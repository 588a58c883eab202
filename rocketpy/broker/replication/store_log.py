"""Log of the store as replication uses it: identity, parts to send, samples, appends of a slave."""

from collections.abc import Callable, Sequence
from typing import Protocol

from rocketpy.broker.replication.handshake import Sample


class ReplicaOffsets(Protocol):
    """Offsets of the store that depend on replicas: `rocketpy.store.replication`."""

    on_wait: list[Callable[[], None]]
    timeout_ms: int

    def confirm(self, phy_offset: int) -> None:
        """Report that enough replicas have the log up to an offset."""
        ...

    def release(self, phy_offset: int) -> None:
        """Let consumers read messages that were not confirmed in time."""
        ...

    def require(self) -> None:
        """Let messages wait for `confirm` from now on."""
        ...

    def wait_for_none(self) -> None:
        """Let no message wait for replicas."""
        ...

    def give_up(self) -> None:
        """Fail the senders that wait for replicas."""
        ...


class ReplicatedStore(Protocol):
    """Part of the message store that replication uses."""

    @property
    def replicas(self) -> ReplicaOffsets:
        """Offsets that depend on replicas."""
        ...

    @property
    def log_identity(self) -> str:
        """Identity of the log; empty if it has none."""
        ...

    @property
    def min_phy_offset(self) -> int:
        """Offset of the first byte of the log."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """End of the complete records."""
        ...

    @property
    def flushed_phy_offset(self) -> int:
        """End of the part of the log that is on disk."""
        ...

    def adopt_log_identity(self, text: str) -> None:
        """Write the identity of the master's log."""
        ...

    def log_part(self, phy_offset: int, max_bytes: int) -> memoryview | None:
        """Return bytes of the log, never across the end of a file."""
        ...

    def log_samples(self, count: int, sample_bytes: int, start: int = 0) -> Sequence[Sample]:
        """Return samples of the log from an offset on."""
        ...

    def first_difference(self, samples: Sequence[Sample]) -> int | None:
        """Return the offset of the first sample that differs."""
        ...

    def append_raw(self, phy_offset: int, data: bytes) -> int:
        """Append a part of the master's log."""
        ...

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back when the log is flushed up to an offset."""
        ...


class StoreLog:
    """Log of a store, for the handshake and the transfer.

    Args:
        store: the store.
        file_bytes: length of a log file.
    """

    def __init__(self, store: ReplicatedStore, file_bytes: int) -> None:
        self._store = store
        self.file_bytes: int = file_bytes
        self.part: Callable[[int, int], memoryview | None] = store.log_part
        self.first_difference: Callable[[Sequence[Sample]], int | None] = store.first_difference

    @property
    def identity(self) -> str:
        """Identity of the log; empty if it has none."""
        return self._store.log_identity

    @property
    def min_phy_offset(self) -> int:
        """Offset of its first byte."""
        return self._store.min_phy_offset

    @property
    def end_phy_offset(self) -> int:
        """End of its complete records."""
        return self._store.max_phy_offset

    def samples(self, start: int, count: int, sample_bytes: int) -> Sequence[Sample]:
        """Return samples of the log from an offset on."""
        return self._store.log_samples(count, sample_bytes, start)
