"""How far a store has come: the row of physical offsets, and everybody who waits for one.

A message passes these offsets in this order, and every offset only moves forward while the store
is open::

    appended >= flushed        in memory; on this disk
    appended >= confirmed      also on the replicas that count
    visible                    the least of those that the mode asks for
    dispatched <= visible      in consume queues, index and whatever else is told of messages

What each one promises:
    - before ``appended`` lie whole records; the next one begins there;
    - before ``flushed`` a power cut takes nothing;
    - before ``visible`` consumers may read and a waiting sender is answered. With ASYNC_FLUSH that
      is everything appended; with SYNC_FLUSH nothing that is not flushed;
    - before ``dispatched`` every message is where consumers and look-ups find it.

``appended`` and ``dispatched`` change under the append lock, the others under their own; any
thread reads them. Callbacks are called without a lock of this object.

Step 18 of a message's life (docs/ARCHITECTURE.md).

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
    """The row of offsets of one store and its waiters.

    Attributes:
        appended: where the next record goes.
        appended_ms: store time of the last record.
        flushed: everything before it is on disk.
        confirmed: everything before it is on the replicas that count; far away without any.
        dispatched: everything before it is known to the dispatchers.
        dispatched_ms: store time of the last message they know.
        visible_bound: nothing behind it is visible, whatever is appended; far away when what is
            appended is visible at once.
        on_visible: called with ``visible`` after it moved by a flush or a confirmation, before
            those who wait are answered.
        on_wait: called when somebody waits for more than is visible: time to flush.
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
        """Begin at zero.

        Args:
            asks_flush: whether a message is visible only when it is on disk (SYNC_FLUSH).
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
        """What consumers may see ends here."""
        return min(self.appended, self.visible_bound)

    @property
    def dirty_bytes(self) -> int:
        """Bytes appended but not known to be on disk."""
        return self.appended - self.flushed

    def restart(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Set all offsets to where a start found the end of the log.

        Args:
            phy_offset: end of the log.
            store_timestamp_ms: store time of its last record.
        """
        self.appended = self.flushed = self.dispatched = phy_offset
        self.appended_ms = self.dispatched_ms = store_timestamp_ms
        self._bind()

    def flush_reached(self, phy_offset: int) -> None:
        """Take note that the log is on disk up to an offset, and tell who waits."""
        self.flushed = max(self.flushed, phy_offset)
        self._moved()

    def confirm_reached(self, phy_offset: int) -> None:
        """Take note that the replicas have the log up to an offset, and tell who waits."""
        self.confirmed = phy_offset
        self._moved()

    def _bind(self) -> None:
        self.visible_bound = (
            min(self.flushed, self.confirmed) if self._asks_flush else self.confirmed
        )

    def _moved(self) -> None:
        self._bind()
        self.on_visible(self.visible)
        self.answer_visible()

    # -- waiting ---------------------------------------------------------------------------

    def ask(self) -> None:
        """Say that somebody wants more to become visible soon."""
        self.on_wait()

    def wait_for(self, phy_end: int, deadline_ms: int, callback: Callable[[bool], None]) -> None:
        """Call back once the log is visible up to an offset, or will not be.

        Args:
            phy_end: physical offset after the caller's record.
            deadline_ms: monotonic time at which the answer is False.
            callback: called once, on any thread, possibly before this returns.
        """
        if self.visible >= phy_end:
            callback(True)
            return
        with self._mutex:
            self._waiters.append((phy_end, deadline_ms, callback))
        if self._failed:
            self.fail()
        elif self.visible >= phy_end:  # moved between the two looks
            self.answer_visible()
        else:
            self.ask()

    def answer_visible(self) -> None:
        """Answer True to those whose record is visible."""
        visible = self.visible
        self._answer(lambda waiter: waiter[0] <= visible, is_visible=True)

    def expire(self, now_ms: int) -> None:
        """Answer False to those whose time is over; a flush may hang meanwhile."""
        self._answer(lambda waiter: waiter[1] <= now_ms, is_visible=False)

    def fail(self) -> None:
        """Answer False to all who wait, now and later: nothing more reaches the disk."""
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
        for _, _, callback in answered:
            callback(is_visible)


def _nothing() -> None:
    """Stand in for a callback nobody has set."""


def _ignore(_phy_offset: int) -> None:
    """Stand in for a listener nobody has set."""
