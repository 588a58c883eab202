"""Timer of a slave that acts as master.

It starts from the master's checkpoint like a master that starts on the slave's directory, and reads
the timer's queue again. When the slave ceases to act, its checkpoint stays for the master (60), and
with it the time within the last slot until which everything is delivered.
"""

from collections.abc import Callable
from typing import Final

from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.follower import TimerFollower
from rocketpy.broker.timer.service import TimerService

_FLUSH_MS: Final = 1_000


class ActingTimer:
    """Timer that exists only while it runs; see `rocketpy.broker.acting.gate`.

    Args:
        follower: the master's checkpoint.
        make: creates a timer, and the service that flushes it.

    Attributes:
        delivered_ms: wall time until which the last timer delivered everything; 0: unknown.
    """

    name = "Timer"
    delivered_ms: int = 0

    def __init__(
        self, follower: TimerFollower, make: Callable[[], tuple[TimerService, TimerFlush]]
    ) -> None:
        self._follower = follower
        self._make = make
        self._timer: TimerService | None = None
        self._flush: TimerFlush | None = None
        self._flush_ms = 0

    def load(self) -> None:
        """Load nothing: a slave starts as one that follows."""

    def restart(self) -> None:
        """Create the timer from the checkpoint.

        Raises:
            StoreError: the files cannot be used.
            OSError: the disk failed.
        """
        self.delivered_ms = 0
        self._follower.persist()
        timer, self._flush = self._make()
        timer.load()
        self._timer = timer

    def step(self, now_ms: int) -> int:
        """Run the timer; see `rocketpy.runtime.service.Service.step`."""
        assert self._timer is not None
        assert self._flush is not None
        if now_ms >= self._flush_ms:
            self._flush.step(now_ms)
            self._flush_ms = now_ms + _FLUSH_MS
        return self._timer.step(now_ms)

    def end(self) -> None:
        """Write the checkpoint, and close the files.

        Raises:
            StoreError: it cannot be written.
            OSError: the disk failed.
        """
        timer, self._timer = self._timer, None
        if timer is not None:
            try:
                timer.persist()
                self.delivered_ms = timer.taken_ms
            finally:
                self._follower.load()

    persist = end
