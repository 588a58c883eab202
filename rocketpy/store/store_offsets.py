"""Progress of a store as physical offsets, and the callbacks that wait for them.

Messages pass these offsets in this order. Offsets only increase while the store is open::

    appended >= flushed        in memory; on this disk
    appended >= confirmed      on the required replicas
    visible                    the smallest of those that the mode requires
    dispatched <= visible      in consume queues, index and all other dispatchers

Guarantees:
    - `appended`: complete records precede it; the next one starts there;
    - `flushed`: a power cut loses nothing before it;
    - `visible`: consumers may read and waiting senders are answered before it. With ASYNC_FLUSH
      it equals `appended`; with SYNC_FLUSH it never exceeds `flushed`;
    - `dispatched`: consumers and look-ups find every message before it.

`appended` and `dispatched` change under the append lock, the others under a lock of this
object; any thread may read them. Callbacks are called without a lock of this object.

Source: CommitLog (wrotePosition, flushedWhere), DefaultMessageStore.getConfirmOffset,
ReputMessageService.reputFromOffset (5.4.0).
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

_NO_BOUND: Final = 1 << 63

Waiter = tuple[int, int, Callable[[bool], None]]
"""Physical offset, deadline (monotonic ms), callback."""


class StoreOffsets:
    """Offsets of one store and the callbacks that wait for them.

    Attributes:
        appended: offset of the next record.
        appended_ms: store time of the last record.
        flushed: end of the log on disk.
        confirmed: end of the log on the required replicas; very large without replicas.
        dispatched: end of the messages that the dispatchers have processed.
        dispatched_ms: store time of the last dispatched message.
        visible_bound: upper bound of `visible`; very large if appended records are visible at
            once.
        on_visible: called with `visible` after a flush or a confirmation moved it, before waiting
            callbacks are called.
        on_wait: called when a callback waits for a larger offset, to request a flush.
    """

    __slots__ = (
        "_asks_flush",
        "_failed",
        "_mutex",
        "_waiters",
        "appended",
        "appended_ms",
        "confirmed",
        "dispatched",
        "dispatched_ms",
        "flushed",
        "on_visible",
        "on_wait",
        "visible_bound",
    )

    def __init__(self, *, asks_flush: bool = False) -> None:
        """Start with all offsets at zero.

        Args:
            asks_flush: whether a message is visible only after its flush (SYNC_FLUSH).
        """
        self._asks_flush = asks_flush
        self._failed = False
        self._mutex = threading.Lock()
        self._waiters: deque[Waiter] = deque()
        self.appended: int = 0
        self.appended_ms: int = 0
        self.flushed: int = 0
        self.confirmed: int = _NO_BOUND
        self.dispatched: int = 0
        self.dispatched_ms: int = 0
        self.visible_bound = 0 if asks_flush else _NO_BOUND
        self.on_visible: Callable[[int], None] = _ignore
        self.on_wait: Callable[[], None] = _nothing

    @property
    def visible(self) -> int:
        """End of the messages that consumers may read."""
        return min(self.appended, self.visible_bound)

    @property
    def dirty_bytes(self) -> int:
        """Appended bytes that are not flushed."""
        return self.appended - self.flushed

    def restart(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Set all offsets to the end of the log after recovery.

        Args:
            phy_offset: end of the log.
            store_timestamp_ms: store time of its last record.
        """
        self.appended = self.flushed = self.dispatched = phy_offset
        self.appended_ms = self.dispatched_ms = store_timestamp_ms
        self._bind()

    def flush_reached(self, phy_offset: int) -> None:
        """Advance `flushed` and call waiting callbacks."""
        # Flushes may finish out of order with a restart of the offsets.
        self.flushed = max(self.flushed, phy_offset)
        self._moved()

    def confirm_reached(self, phy_offset: int) -> None:
        """Advance `confirmed` and call waiting callbacks."""
        self.confirmed = phy_offset
        self._moved()

    def _bind(self) -> None:
        self.visible_bound = (
            min(self.flushed, self.confirmed) if self._asks_flush else self.confirmed
        )

    def _moved(self) -> None:
        self._bind()
        # Dispatch first: a sender that is answered may read its message at once.
        self.on_visible(self.visible)
        self.answer_visible()

    # -- waiting ---------------------------------------------------------------------------

    def ask(self) -> None:
        """Request that appended records become visible soon."""
        self.on_wait()

    def wait_for(self, phy_end: int, deadline_ms: int, callback: Callable[[bool], None]) -> None:
        """Call back when the log is visible up to an offset, or never will be.

        Args:
            phy_end: physical offset after the caller's record.
            deadline_ms: monotonic time after which the argument is False.
            callback: called once, on any thread, possibly before this returns.
        """
        if self.visible >= phy_end:
            callback(True)
            return
        with self._mutex:
            # Added before the second check, so that a flush in between finds the waiter.
            self._waiters.append((phy_end, deadline_ms, callback))
        if self._failed:
            self.fail()
        elif self.visible >= phy_end:  # it moved between the two checks
            self.answer_visible()
        else:
            self.ask()

    def answer_visible(self) -> None:
        """Call back with True for records that are visible."""
        visible = self.visible
        self._answer(lambda waiter: waiter[0] <= visible, is_visible=True)

    def expire(self, now_ms: int) -> None:
        """Call back with False after the deadline, even while a flush hangs."""
        self._answer(lambda waiter: waiter[1] <= now_ms, is_visible=False)

    def fail(self) -> None:
        """Call back with False, now and for later calls, because there are no more flushes."""
        self._failed = True
        self._answer(lambda _: True, is_visible=False)

    def _answer(self, chosen: Callable[[Waiter], bool], *, is_visible: bool) -> None:
        with self._mutex:
            if not self._waiters:
                return
            answered = [waiter for waiter in self._waiters if chosen(waiter)]
            if not answered:
                return
            self._waiters = deque(each for each in self._waiters if not chosen(each))
        # Outside of the lock: callbacks may wait for further offsets.
        for _, _, callback in answered:
            callback(is_visible)


def _nothing() -> None:
    """Default of `on_wait`."""


def _ignore(_phy_offset: int) -> None:
    """Default of `on_visible`."""
