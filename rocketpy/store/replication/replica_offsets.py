"""Offsets of a store that depend on its replicas, for the broker's replication.

The broker knows the progress of the replicas; the store knows which senders wait for it. Without
replicas to wait for, a message has no cost here.

Source: CommitLog.handleHA, GroupTransferService (5.4.0).
"""

import threading
from collections.abc import Callable

from rocketpy.store.store_offsets import NO_BOUND, StoreOffsets

_TIMEOUT_MS = 3_000


class ReplicaOffsets:
    """Offsets `confirmed` and `released` of a store; see docs/replication.md. Thread-safe.

    Attributes:
        timeout_ms: time that a sender waits for replicas (`slaveTimeout`).
        on_wait: functions that are called when a message waits for a flush or a confirmation: once
            for each such message or bulk, on the thread that stored it, without a lock. They must
            be cheap. Append to the list before the store serves.
    """

    def __init__(self, offsets: StoreOffsets, append_lock: threading.Lock) -> None:
        """Advance the offsets of one store.

        Args:
            offsets: the offsets to advance.
            append_lock: held while messages are appended and dispatched.
        """
        self._offsets = offsets
        self._append_lock = append_lock
        self.timeout_ms: int = _TIMEOUT_MS
        self.on_wait: list[Callable[[], None]] = offsets.on_replica_wait

    @property
    def confirmed(self) -> int | None:
        """End of the log on enough replicas; None when none is waited for."""
        confirmed = self._offsets.confirmed
        return None if confirmed == NO_BOUND else confirmed

    def let_cut(self) -> None:
        """Note that a controller may make another replica the master, and this log be cut then.

        Messages behind `confirmed` are lost by that. Progress of the broker's services therefore
        counts up to there only (`MessageStore.kept_phy_offset`).
        """
        self._offsets.may_be_cut = True

    @property
    def released(self) -> int:
        """End of the unconfirmed messages that consumers may read."""
        return self._offsets.released

    def confirm(self, phy_offset: int) -> None:
        """Report that enough replicas have the log up to an offset; answers waiting senders.

        An offset that is not larger than before changes nothing; neither does any while no replica
        is waited for. It takes the append lock for a moment.
        """
        self._offsets.confirm_reached(phy_offset)

    def release(self, phy_offset: int) -> None:
        """Let consumers read messages up to an offset that were not confirmed in time."""
        self._offsets.release_reached(phy_offset)

    def require(self) -> None:
        """Let messages wait for `confirm` from now on; for a SYNC_MASTER only.

        Messages that were acknowledged count as confirmed; later ones wait. It does nothing
        if messages wait already.
        """
        # Under the append lock: a message that is being appended either is dispatched before, or
        # sees the new bound.
        with self._append_lock:
            self._offsets.wait_for_replicas()

    def wait_for_none(self) -> None:
        """Let no message wait for replicas; those that wait now are confirmed."""
        self._offsets.confirm_reached(NO_BOUND)

    def give_up(self) -> None:
        """Fail the senders that wait for replicas now, before `timeout_ms` has passed.

        Their messages stay stored, and may still be confirmed or released.
        """
        self._offsets.give_up()
