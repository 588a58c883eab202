"""Write gate: whether the store accepts messages, and the reason if not.

The gate is closed if the store is not open, while the disk is nearly full, and after a failed
flush; in the store of a slave it is closed for messages, but not for its master's log. A failed
flush is permanent: after an error the kernel may have dropped the pages, so a later,
successful flush would not mean that they are on disk. Any other shortage (descriptors, memory,
space for one file) rejects that one put and leaves the gate open; it is noted, so that the broker
is not ready as long as it lasts.

Source: RunningFlags, DefaultMessageStore.checkStoreStatus (5.4.0).
"""

import logging
import threading
from collections.abc import Callable

logger: logging.Logger = logging.getLogger(__name__)


class ReadOnlyLatch:
    """Latch that trips on the first failed flush and stays tripped until the process restarts."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.reason: str | None = None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Add a function that is called when the latch trips."""
        self._listeners.append(listener)

    def trip(self, what: str, error: OSError) -> None:
        """Trip the latch; only the first call logs and calls the listeners."""
        with self._mutex:
            if self.reason is not None:
                return
            self.reason = f"{what} failed: {error}"
        logger.critical(
            "store is read-only until it is restarted: operation=%s error=%s", what, error
        )
        for listener in self._listeners:
            listener()


class WriteGate:
    """Decides whether the store accepts messages.

    Attributes:
        is_open: whether the store is open.
        refusal: reason for rejecting messages; None if accepted. Each put reads it.
        log_refusal: reason for rejecting parts of a master's log; None if accepted.
        shortage: resource that the last refused put lacked; None once it is available again.
    """

    def __init__(self, latch: ReadOnlyLatch, *, is_slave: bool = False) -> None:
        self._latch = latch
        self._role_refusal = "the broker is a slave: send to its master" if is_slave else None
        self._disk_full: str | None = None
        self.is_open: bool = False
        self.refusal: str | None = None
        self.log_refusal: str | None = None
        self.shortage: str | None = None
        self._was_short = False
        self._mutex = threading.Lock()
        latch.add_listener(self._decide)
        self._decide()

    @property
    def is_disk_full(self) -> bool:
        """Whether only the nearly full disk closes the gate for a master's log."""
        return self.log_refusal is not None and self.log_refusal == self._disk_full

    def set_open(self, is_open: bool) -> None:
        """Set whether the store is open (append lock held)."""
        self.is_open = is_open
        self._decide()

    def set_disk_full(self, reason: str | None) -> None:
        """Close the gate while the disk is nearly full.

        Args:
            reason: the text for clients; None opens the gate.
        """
        if reason != self._disk_full:
            self._disk_full = reason
            self._decide()

    def note_shortage(self, reason: str) -> None:
        """Note that a put was rejected because a resource ran short."""
        self.shortage = reason
        self._was_short = True

    def resource_found(self) -> None:
        """Forget a shortage, unless a put was rejected since the last call.

        The caller allocates for the log only; a queue that still cannot be created is noted by the
        next put.
        """
        if not self._was_short:
            self.shortage = None
        self._was_short = False

    def _decide(self) -> None:
        with self._mutex:
            if not self.is_open:
                self.log_refusal = "the store is closed"
            elif self._latch.reason is not None:
                self.log_refusal = self._latch.reason
            else:
                self.log_refusal = self._disk_full
            self.refusal = self.log_refusal or self._role_refusal
