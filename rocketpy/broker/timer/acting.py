"""Timer of a slave that acts as master.

It starts from the master's checkpoint like a master that starts on the slave's directory, and reads
the timer's queue again. When the slave ceases to act, its checkpoint stays for the master (60), and
with it the time within the last slot until which everything is delivered.
"""

from collections.abc import Callable
from typing import Final

from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.follower import TimerFollower
from rocketpy.broker.timer.service import TimerService
from rocketpy.store.timer.checkpoint import TimerMarks

_FLUSH_MS: Final = 1_000
_ALL_MS: Final = (1 << 63) - 1


class ActingTimer:
    """Timer that exists only while it runs; see `rocketpy.broker.acting.gate`.

    Args:
        follower: the master's checkpoint.
        make: creates a timer, and the service that flushes it.
        sink: receives check points and acks of pops; None: they are messages like others.
    """

    name = "Timer"

    def __init__(
        self,
        follower: TimerFollower,
        make: Callable[[], tuple[TimerService, TimerFlush]],
        sink: ReviveSink | None = None,
    ) -> None:
        self._follower = follower
        self._sink = sink
        self._make = make
        self._timer: TimerService | None = None
        self._flush: TimerFlush | None = None
        self._flush_ms = 0
        # Progress of the last timer that read its whole queue.
        self._delivered = TimerMarks()
        # The last timer ended while it read the queue again: until this time, nothing that earlier
        # ones have taken is left.
        self._is_partial = False
        self._left_ms = 0

    def load(self) -> None:
        """Do nothing: a slave starts as one that follows."""

    def restart(self) -> None:
        """Create the timer from the checkpoint.

        Raises:
            StoreError: the files cannot be used.
            OSError: the disk failed.
        """
        self._left_ms = self._processed_ms
        self._follower.persist()
        # Check points in a slot that this timer passed may not be processed.
        self._follower.drop_wheel()
        timer, self._flush = self._make()
        timer.is_temporary = True
        timer.load()
        sink = self._sink
        timer.take_delivered(self._delivered)
        if sink is not None:
            timer.take_unrevived(self._left_ms)
            timer.hold_ms = lambda: sink.unrevived_ms
            sink.begin(lambda: timer.delivered_before_ms)
        self._is_partial = True
        self._timer = timer

    @property
    def delivered_ms(self) -> int:
        """Wall time until which everything that the checkpoint covers is delivered; 0: unknown."""
        is_of_checkpoint = self._delivered.queue_offset >= self._follower.marks.queue_offset
        return self._delivered.read_ms if is_of_checkpoint else 0

    @property
    def unrevived_ms(self) -> int | None:
        """Wall time until which no check point is left that is not processed; None: unknown."""
        if self._sink is None or not self.delivered_ms:
            return None
        return min(self._processed_ms, self.delivered_ms)

    @property
    def _processed_ms(self) -> int:
        if self._sink is None:
            return _ALL_MS
        processed_ms = self._sink.unrevived_ms
        return min(processed_ms, self._left_ms) if self._is_partial else processed_ms

    def step(self, now_ms: int) -> int:
        """Run the timer; see `rocketpy.runtime.service.Service.step`."""
        assert self._timer is not None
        assert self._flush is not None
        # A checkpoint with a smaller queue offset would deliver old messages again after a kill.
        if now_ms >= self._flush_ms and not self._timer.reads_again:
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
                self._is_partial = timer.reads_again
            finally:
                self._follower.load()
            if not self._is_partial:
                self._delivered = self._follower.marks._replace(read_ms=timer.taken_ms)

    persist = end
