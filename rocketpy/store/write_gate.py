"""Whether the store takes messages, and why not.

Three things close the gate: the store is not open, the disk is nearly full (until there is space
again), and a failed flush. The last is for good: after an error the kernel may have dropped the
pages, so a second, successful flush would prove nothing. Whatever else runs short (descriptors,
memory, space for one file) refuses that one put and closes nothing.

Source: RunningFlags, DefaultMessageStore.checkStoreStatus (5.4.0).
"""

import logging
import threading
from collections.abc import Callable

logger: logging.Logger = logging.getLogger(__name__)


class ReadOnlyLatch:
    """Falls once, and stays down until the process starts again."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.reason: str | None = None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have a function called when the latch falls."""
        self._listeners.append(listener)

    def trip(self, what: str, error: OSError) -> None:
        """Let the latch fall; only the first time is logged and told."""
        with self._mutex:
            if self.reason is not None:
                return
            self.reason = f"{what} failed: {error}"
        logger.critical("the store is read-only until it is restarted: %s failed: %s", what, error)
        for listener in self._listeners:
            listener()


class WriteGate:
    """Says whether messages are taken.

    Attributes:
        is_open: whether the store is open.
        refusal: why messages are refused; None when they are taken. Each put reads it.
    """

    def __init__(self, latch: ReadOnlyLatch) -> None:
        self._latch = latch
        self._disk_full = False
        self.is_open: bool = False
        self.refusal: str | None = None
        self._mutex = threading.Lock()
        latch.add_listener(self._decide)
        self._decide()

    def set_open(self, is_open: bool) -> None:
        """Note that the store is open, or not (append lock held)."""
        self.is_open = is_open
        self._decide()

    def set_disk_full(self, is_full: bool) -> None:
        """Close the gate while the disk is nearly full."""
        if is_full != self._disk_full:
            self._disk_full = is_full
            self._decide()
            logger.warning("disk use passed the warning level: puts_are_refused=%s", is_full)

    def _decide(self) -> None:
        with self._mutex:
            if not self.is_open:
                self.refusal = "the store is closed"
            elif self._latch.reason is not None:
                self.refusal = self._latch.reason
            else:
                self.refusal = "the disk is nearly full" if self._disk_full else None
