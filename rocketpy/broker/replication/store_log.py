"""Log of the store as replication uses it: the one that a master sends, and a slave's copy."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rocketpy.broker.replication.handshake import Sample
from rocketpy.errors import BadFrameError, ResourceShortError, StoreReadOnlyError
from rocketpy.proto.replication.epochs import Epochs
from rocketpy.proto.replication.pair_frames import MAX_TAIL_BYTES, DiskState, Report

_USUAL_TAIL_BYTES: Final = 5 << 20
_RECORD_EXTRA_BYTES: Final = 64 << 10
STEP_BYTES: Final = 256 << 10
"""Budget of appended bytes before the loop serves others."""
MOST_HIDDEN_BYTES: Final = 16 << 20
"""Bytes of a slave's log that consumers do not see yet, because too few replicas have them."""


class ReplicaOffsets(Protocol):
    """Offsets of the store that depend on replicas: `rocketpy.store.replication`."""

    on_wait: list[Callable[[], None]]
    timeout_ms: int

    @property
    def confirmed(self) -> int | None:
        """End of the log on enough replicas; None when none is waited for."""
        ...

    def confirm(self, phy_offset: int) -> None:
        """Report that enough replicas have the log up to an offset."""
        ...

    def let_cut(self) -> None:
        """Note that the log may be cut behind `confirmed`, when another replica is elected."""
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
    def write_end(self) -> int:
        """End of the appended bytes, an incomplete record at the end included."""
        ...

    @property
    def flushed_phy_offset(self) -> int:
        """End of the part of the log that is on disk."""
        ...

    @property
    def log_refusal(self) -> str | None:
        """Why parts of a master's log are not accepted; None if they are."""
        ...

    def adopt_log_identity(self, text: str) -> None:
        """Write the identity of the master's log."""
        ...

    def log_part(self, phy_offset: int, max_bytes: int) -> memoryview | None:
        """Return bytes of the log, never across the end of a file."""
        ...

    def log_samples(
        self, count: int, sample_bytes: int, start: int = 0, last_bytes: int = 0
    ) -> Sequence[Sample]:
        """Return samples of the log from an offset on."""
        ...

    def first_difference(self, samples: Sequence[Sample]) -> int | None:
        """Return the offset of the first sample that differs."""
        ...

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        """Append a part of the master's log."""
        ...

    def drop_incomplete(self) -> None:
        """Remove the appended bytes behind the complete records."""
        ...

    def when_flushed(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back when the log is flushed up to an offset."""
        ...


def _no_epochs() -> Epochs:
    return ()


class StoreLog:
    """Log of a store, for the handshake and the transfer.

    Args:
        store: the store.
        file_bytes: length of a log file.
        max_message_bytes: returns `maxMessageSize`.

    Attributes:
        file_bytes: as given.
        part: returns bytes of the log from an offset on, never across the end of a file.
        current_epochs: returns the epoch list, in a group with a controller.
    """

    def __init__(
        self,
        store: ReplicatedStore,
        file_bytes: int,
        max_message_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._store = store
        self.file_bytes: int = file_bytes
        self._max_message_bytes = max_message_bytes
        self.part: Callable[[int, int], memoryview | None] = store.log_part
        self.current_epochs: Callable[[], Epochs] = _no_epochs

    @property
    def epochs(self) -> Epochs:
        """Epoch list; empty without a controller."""
        return self.current_epochs()

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

    @property
    def tail_bytes(self) -> int:
        """Size of a last sample that holds any complete record; 0 if the default size does."""
        wanted_bytes = self._max_message_bytes() + _RECORD_EXTRA_BYTES
        return 0 if wanted_bytes <= _USUAL_TAIL_BYTES else min(wanted_bytes, MAX_TAIL_BYTES)

    def samples(
        self, start: int, count: int, sample_bytes: int, last_bytes: int = 0
    ) -> Sequence[Sample]:
        """Return samples of the log from an offset on."""
        return self._store.log_samples(count, sample_bytes, start, last_bytes)

    def first_difference(self, samples: Sequence[Sample]) -> int | None:
        """Return the offset of the first sample that differs in this log; None if all agree."""
        return self._store.first_difference(samples)


class LogCopy(StoreLog):
    """Log that a slave copies.

    Args:
        store: the store.
        file_bytes: length of a log file.
        max_message_bytes: returns `maxMessageSize`.
        confirms_disk: whether only bytes on disk are confirmed (SYNC_FLUSH).

    Attributes:
        disk_state: whether the store writes.
        reason: why it does not; empty while it does.
        queued_bytes: received bytes that are not appended yet.
    """

    def __init__(
        self,
        store: ReplicatedStore,
        file_bytes: int,
        max_message_bytes: Callable[[], int] = lambda: 0,
        *,
        confirms_disk: bool,
    ) -> None:
        super().__init__(store, file_bytes, max_message_bytes)
        self.confirms_disk: bool = confirms_disk
        self.disk_state: DiskState = DiskState.WRITING
        self.reason: str = ""
        self.queued_bytes: int = 0
        self._start = 0
        self._parts: deque[bytes | memoryview] = deque()
        self._is_undispatched = False
        self._is_flush_awaited = False
        self._hides = False

    @property
    def end_phy_offset(self) -> int:
        """End of its bytes; after `begin` that is the end of its complete records."""
        return max(self._start, self._store.write_end)

    @property
    def report(self) -> Report:
        """Progress, as the master is informed of it."""
        end, store = self.end_phy_offset, self._store
        # An incomplete record is not a copy of a message.
        confirmed = store.flushed_phy_offset if self.confirms_disk else store.max_phy_offset
        state = self.disk_state
        if state is DiskState.WRITING and store.log_refusal is not None:
            state = DiskState.FULL  # noticed without a message to write
        return Report(end, min(end, confirmed), state)

    def adopt(self, identity: str) -> None:
        """Write the identity of the master's log, if this one has another or none.

        Raises:
            StoreError: no space.
            OSError: the disk failed.
        """
        if identity and identity != self.identity:
            self._store.adopt_log_identity(identity)

    def begin(self) -> None:
        """Drop the incomplete record that an earlier connection has received.

        The samples of the handshake cover complete records. A part of a record would be continued
        without having been compared, perhaps with the rest of another record.

        Raises:
            OSError: the disk failed.
        """
        self._parts.clear()
        self.queued_bytes = self._start = 0
        self._store.drop_incomplete()

    def receive(self, phy_offset: int, data: bytes | memoryview) -> None:
        """Queue a part of the log.

        Raises:
            BadFrameError: the part does not continue the log.
        """
        expected = self.end_phy_offset + self.queued_bytes
        if phy_offset != expected:
            is_start = expected == 0 and phy_offset % self.file_bytes == 0
            if not is_start:
                raise BadFrameError(f"part at offset {phy_offset}, the log ends at {expected}")
            self._start = phy_offset
        if data:
            self._parts.append(data)
            self.queued_bytes += len(data)

    def step(self) -> bool:
        """Append some of the queued parts.

        Returns:
            Whether the store wrote; otherwise `disk_state` and `reason` say why not, and the caller
            repeats the step later.

        Raises:
            LogGapError, StoreFormatError: the log is not what this slave expected.
        """
        try:
            if self._is_undispatched:
                self._store.append_raw(self.end_phy_offset, b"")
                self._is_undispatched = False
            left_bytes = STEP_BYTES
            while self._parts and left_bytes > 0:
                data = self._joined(left_bytes)[:left_bytes]
                left_bytes -= len(data)
                self._append(data)
        except ResourceShortError as error:
            return self._stalled(DiskState.FULL, str(error))
        except (StoreReadOnlyError, OSError) as error:
            return self._stalled(DiskState.FAILED, str(error))
        self.disk_state, self.reason = DiskState.WRITING, ""
        return True

    def _joined(self, most_bytes: int) -> bytes | memoryview:
        """Return the first queued parts, joined."""
        parts = self._parts
        if len(parts) > 1 and len(parts[0]) + len(parts[1]) <= most_bytes:
            taken = [parts.popleft()]
            size_bytes = len(taken[0])
            while parts and size_bytes + len(parts[0]) <= most_bytes:
                size_bytes += len(parts[0])
                taken.append(parts.popleft())
            parts.appendleft(b"".join(taken))
        return parts[0]

    def _append(self, data: bytes | memoryview) -> None:
        start = self.end_phy_offset
        try:
            self._store.append_raw(start, data)
        except ResourceShortError:
            # The log may have the bytes already, when the disk was full for a queue.
            self._is_undispatched = True
            raise
        finally:
            appended_bytes = max(0, self._store.write_end - start)
            self.queued_bytes -= appended_bytes
            if appended_bytes >= len(self._parts[0]):
                self._parts.popleft()
            else:
                self._parts[0] = self._parts[0][appended_bytes:]

    def _stalled(self, state: DiskState, reason: str) -> bool:
        self.disk_state, self.reason = state, reason
        return False

    def show_to(self, confirmed: int) -> None:
        """Let consumers read only the part that enough replicas have, as the master reports.

        Bytes wait for that in memory, without limit if the master reports no progress. So the
        oldest ones become visible beyond `MOST_HIDDEN_BYTES`.

        Args:
            confirmed: end of that part; it may be ahead of this log.
        """
        replicas = self._store.replicas
        if not self._hides:
            self._hides = True
            replicas.require()
        replicas.confirm(max(confirmed, self.end_phy_offset - MOST_HIDDEN_BYTES))

    def show_all(self) -> None:
        """Let consumers read everything: the master does not report the confirmed part."""
        self._hides = False
        self._store.replicas.wait_for_none()

    def check_soon(self) -> None:
        """Make the next step check whether the store writes, even if nothing was received."""
        self._is_undispatched = True  # an append without bytes fails as any other one

    def check(self) -> bool:
        """Check the disk while nothing is received; return whether the store writes."""
        self.check_soon()
        return self.step()

    def when_flushed(self, callback: Callable[[bool], None]) -> None:
        """Call back once more of the log is on disk, if the slave confirms only that.

        Args:
            callback: called on any thread, perhaps at once, with False after a failure.
        """
        if not self.confirms_disk or self._is_flush_awaited:
            return
        end = self._store.max_phy_offset
        if self._store.flushed_phy_offset >= end:
            return
        self._is_flush_awaited = True

        def flushed(is_durable: bool) -> None:
            self._is_flush_awaited = False
            callback(is_durable)

        # Not `when_durable`: the master confirms only what this slave has reported.
        self._store.when_flushed(end, flushed)
