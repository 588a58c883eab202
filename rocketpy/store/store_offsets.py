"""Progress of a store as physical offsets, and the callbacks that wait for them.

Messages pass these offsets in this order. Offsets only increase while the store is open::

    appended >= flushed        in memory; on this disk
    appended >= confirmed      on enough replicas; very large when none is waited for
    acknowledged               min(flushed with SYNC_FLUSH, confirmed): waiting senders succeed
    visible                    min(flushed with SYNC_FLUSH, max(confirmed, released))
    dispatched <= visible      in consume queues, index and all other dispatchers

Guarantees:
    - `appended`: complete records precede it; the next one starts there;
    - `flushed`: a power cut loses nothing before it;
    - `confirmed`: the loss of this machine loses nothing before it;
    - `released`: messages that were not confirmed in time, which consumers may read nevertheless;
    - `visible`: consumers may read before it. With ASYNC_FLUSH and without replicas it equals
      `appended`; with SYNC_FLUSH it never exceeds `flushed`;
    - `dispatched`: consumers and look-ups find every message before it.

A store that waits for replicas may be restarted with messages that were never confirmed. Recovery
dispatches them; they are *held back*: readers hide messages of users from `held_from` on, until
`visible` has passed the recovered end of the log.

`appended` and `dispatched` change under the append lock, the others under a lock of this
object; any thread may read them. Callbacks are called without a lock of this object. A caller that
holds the append lock may take the lock of this object, never the other way round.

Source: CommitLog (wrotePosition, flushedWhere, handleDiskFlushAndHA),
DefaultMessageStore.getConfirmOffset, ReputMessageService.reputFromOffset (5.4.0).
"""

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

NO_BOUND: Final = 1 << 63
"""Value of `confirmed` while no replica is waited for."""


class Waiter(NamedTuple):
    """Callback that waits until a part of the log is flushed, or acknowledged.

    Attributes:
        phy_end: end of that part.
        deadline_ms: monotonic time until which its flush is waited for.
        replica_deadline_ms: monotonic time until which its confirmation is waited for; None if the
            flush is enough.
        callback: called once.
    """

    phy_end: int
    deadline_ms: int
    replica_deadline_ms: int | None
    callback: Callable[[bool], None]


class StoreOffsets:
    """Offsets of one store and the callbacks that wait for them.

    Attributes:
        appended: offset of the next record.
        appended_ms: store time of the last record.
        flushed: end of the log on disk.
        confirmed: end of the log on enough replicas; `NO_BOUND` when none is waited for.
        released: end of the messages that consumers may read although they are not confirmed.
        dispatched: end of the messages that the dispatchers have processed.
        dispatched_ms: store time of the last dispatched message.
        held_from: start of the recovered messages that are held back; `NO_BOUND` if none is.
        visible_bound: upper bound of `visible`; `NO_BOUND` if appended records are visible at
            once.
        acknowledged: end of the log for which waiting callbacks have succeeded; `NO_BOUND` if
            appended records are acknowledged at once. Its messages are dispatched.
        on_shown: called with the start of the messages that are no longer held back.
        may_be_cut: whether the log may be cut at `confirmed`, because another replica is elected.
        on_visible: called with `visible` after it moved, before waiting callbacks are called.
        on_wait: called when a callback waits for a larger offset, to request a flush.
        on_replica_wait: called at the same time, to send the log to replicas soon.
    """

    __slots__ = (
        "_asks_flush",
        "_epoch",
        "_failed",
        "_held_to",
        "_mutex",
        "_waiters",
        "acknowledged",
        "appended",
        "appended_ms",
        "confirmed",
        "dispatched",
        "dispatched_ms",
        "flushed",
        "held_from",
        "may_be_cut",
        "on_replica_wait",
        "on_shown",
        "on_visible",
        "on_wait",
        "released",
        "visible_bound",
    )

    def __init__(self, *, asks_flush: bool = False) -> None:
        """Start with all offsets at zero.

        Args:
            asks_flush: whether a message is visible only after its flush (SYNC_FLUSH).
        """
        self._asks_flush = asks_flush
        self._epoch = 0  # grows when messages begin to wait for replicas
        self._failed = False
        self._held_to = 0
        self._mutex = threading.Lock()
        self._waiters: list[Waiter] = []
        self.appended: int = 0
        self.appended_ms: int = 0
        self.flushed: int = 0
        self.confirmed: int = NO_BOUND
        self.released: int = 0
        self.dispatched: int = 0
        self.dispatched_ms: int = 0
        self.held_from: int = NO_BOUND
        self.visible_bound: int = 0 if asks_flush else NO_BOUND
        self.acknowledged: int = self.visible_bound
        self.may_be_cut: bool = False
        self.on_visible: Callable[[int], None] = _ignore
        self.on_shown: Callable[[int], None] = _ignore
        self.on_wait: Callable[[], None] = _nothing
        self.on_replica_wait: list[Callable[[], None]] = []

    @property
    def visible(self) -> int:
        """End of the messages that consumers may read."""
        return min(self.appended, self.visible_bound)

    @property
    def kept(self) -> int:
        """End of the part of the log that this broker's progress with messages may rely on."""
        return min(self.flushed, self.confirmed) if self.may_be_cut else self.flushed

    @property
    def dirty_bytes(self) -> int:
        """Appended bytes that are not flushed."""
        return self.appended - self.flushed

    @property
    def waits_for_replicas(self) -> bool:
        """Whether messages wait until replicas have them."""
        return self.confirmed < NO_BOUND

    def restart(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Set all offsets to the end of the log after recovery.

        Args:
            phy_offset: end of the log.
            store_timestamp_ms: store time of its last record.
        """
        self.appended_ms = self.dispatched_ms = store_timestamp_ms
        with self._mutex:
            self.appended = self.flushed = self.dispatched = phy_offset
            if self.confirmed < NO_BOUND:  # consumers already read what was recovered
                self.confirmed = phy_offset
            self.visible_bound = self._bound_of(self.confirmed)
            self.acknowledged = self.visible_bound

    def hold_back(self, phy_offset: int) -> None:
        """Let messages wait for replicas, the recovered ones from an offset on included.

        Called after recovery, before anything is stored.
        """
        with self._mutex:
            self.confirmed = min(phy_offset, self.appended)
            self.visible_bound = self.acknowledged = self._bound_of(self.confirmed)
            self._epoch += 1
            self._held_to = self.appended
            if self.confirmed < self.appended:
                self.held_from = self.confirmed

    def flush_reached(self, phy_offset: int) -> None:
        """Advance `flushed` and call waiting callbacks."""
        with self._mutex:
            # Flushes may finish out of order with a restart of the offsets.
            self.flushed = max(self.flushed, phy_offset)
        self._moved()

    # -- replicas --------------------------------------------------------------------------

    def confirm_reached(self, phy_offset: int) -> None:
        """Advance `confirmed` and call waiting callbacks."""
        with self._mutex:
            if phy_offset <= self.confirmed:
                return
            self.confirmed = phy_offset
        self._moved()

    def release_reached(self, phy_offset: int) -> None:
        """Let consumers read unconfirmed messages up to an offset."""
        with self._mutex:
            if phy_offset <= self.released:
                return
            self.released = phy_offset
        self._moved()

    def wait_for_replicas(self) -> None:
        """Let messages from now on wait for `confirmed` (append lock held).

        The append lock keeps a message from being dispatched at once that is appended after this.
        """
        with self._mutex:
            if self.confirmed == NO_BOUND:
                # Not further than what was acknowledged: the rest waits for replicas as well.
                self.confirmed = self.visible
                self.visible_bound = self._bound_of(max(self.confirmed, self.released))
                self.acknowledged = min(self.acknowledged, self._bound_of(self.confirmed))
                self._epoch += 1

    def _bound_of(self, replicated: int) -> int:
        return min(self.flushed, replicated) if self._asks_flush else replicated

    def _moved(self) -> None:
        """Publish the bounds after `flushed`, `confirmed` or `released` moved (no lock held)."""
        with self._mutex:
            # Under the lock: of two threads that move offsets the later one must see both moves.
            self.visible_bound = self._bound_of(max(self.confirmed, self.released))
            acknowledged = self._bound_of(self.confirmed)
            appended, epoch = self.appended, self._epoch
            shown_from = NO_BOUND
            if self.held_from < NO_BOUND and self.visible_bound >= self._held_to:
                shown_from, self.held_from = self.held_from, NO_BOUND
        # Dispatch first: a sender that is answered may read its message at once.
        self.on_visible(self.visible)
        if shown_from < NO_BOUND:
            self.on_shown(shown_from)
        with self._mutex:
            # Only the values from before the dispatch count: another thread may have moved an
            # offset meanwhile, and has not dispatched yet. If messages wait for replicas since
            # then, that holds for those that were appended before.
            if epoch != self._epoch:
                acknowledged = min(acknowledged, appended)
            self.acknowledged = max(self.acknowledged, acknowledged)
        self.answer_acknowledged()

    # -- waiting ---------------------------------------------------------------------------

    def ask(self) -> None:
        """Request that appended records become visible soon."""
        self.on_wait()
        for wake in self.on_replica_wait:
            wake()

    def wait_for(
        self,
        phy_end: int,
        deadline_ms: int,
        callback: Callable[[bool], None],
        *,
        replica_deadline_ms: int = NO_BOUND,
    ) -> None:
        """Call back when the log is acknowledged up to an offset, or never will be.

        Args:
            phy_end: physical offset after the caller's record.
            deadline_ms: monotonic time after which the argument is False if it is not flushed.
            callback: called once, on any thread, possibly before this returns.
            replica_deadline_ms: monotonic time after which it is False if it is not confirmed.
        """
        self._wait(Waiter(phy_end, deadline_ms, replica_deadline_ms, callback))

    def wait_for_flush(
        self, phy_end: int, deadline_ms: int, callback: Callable[[bool], None]
    ) -> None:
        """Call back when the log is flushed up to an offset, whether replicas have it or not.

        Args:
            phy_end: see `wait_for`.
            deadline_ms: see `wait_for`.
            callback: see `wait_for`.
        """
        self._wait(Waiter(phy_end, deadline_ms, None, callback))

    def _wait(self, waiter: Waiter) -> None:
        if self._is_done(waiter):
            waiter.callback(True)
            return
        with self._mutex:
            # Added before the second check, so that a flush in between finds the waiter.
            self._waiters.append(waiter)
        if self._failed:
            self.fail()
        elif self._is_done(waiter):  # it moved between the two checks
            self.answer_acknowledged()
        else:
            self.ask()

    def _is_done(self, waiter: Waiter) -> bool:
        if waiter.replica_deadline_ms is not None:
            return self.acknowledged >= waiter.phy_end
        return not self._asks_flush or self.flushed >= waiter.phy_end

    def answer_acknowledged(self) -> None:
        """Call back with True for records that are acknowledged, or flushed if that is enough."""
        self._answer(self._is_done, is_acknowledged=True)

    def expire(self, now_ms: int) -> None:
        """Call back with False after the deadline, even while a flush hangs."""
        flushed = self.flushed if self._asks_flush else NO_BOUND
        confirmed = self.confirmed
        self._answer(
            lambda waiter: (
                (waiter.deadline_ms <= now_ms and waiter.phy_end > flushed)
                or (
                    waiter.replica_deadline_ms is not None
                    and waiter.replica_deadline_ms <= now_ms
                    and waiter.phy_end > confirmed
                )
            ),
            is_acknowledged=False,
        )

    def give_up(self) -> None:
        """Call back with False for records that are not confirmed, before their deadline."""
        confirmed = self.confirmed
        self._answer(
            lambda waiter: waiter.replica_deadline_ms is not None and waiter.phy_end > confirmed,
            is_acknowledged=False,
        )

    def fail(self) -> None:
        """Call back with False, now and for later calls, because there are no more flushes."""
        self._failed = True
        self._answer(lambda _: True, is_acknowledged=False)

    def _answer(self, chosen: Callable[[Waiter], bool], *, is_acknowledged: bool) -> None:
        with self._mutex:
            if not self._waiters:
                return
            answered: list[Waiter] = []
            left: list[Waiter] = []
            for waiter in self._waiters:  # once: offsets move meanwhile
                (answered if chosen(waiter) else left).append(waiter)
            if not answered:
                return
            self._waiters = left
        # Outside of the lock: callbacks may wait for further offsets.
        for waiter in answered:
            waiter.callback(is_acknowledged)


def _nothing() -> None:
    """Default of `on_wait`."""


def _ignore(_phy_offset: int) -> None:
    """Default of `on_visible` and `on_shown`."""
