"""Pace of a transfer to a slave: size and time of the next frame. No I/O.

A slave that follows closely receives everything at once. A slave that catches up receives larger
frames, but while clients send, its transfer may use only a tenth of the loop's time, or as much as
it needs to be faster than the clients.
"""

from typing import Final

_CATCH_UP_LAG_BYTES: Final = 4 << 20
"""Lag from which a slave catches up; a burst of clients does not reach it."""
_CATCH_UP_FRAME_BYTES: Final = 1 << 20
_SHARE: Final = 10
"""A transfer that took 1 ms pauses for 9 ms."""
_LEAST_GAIN: Final = 1.25
"""Least speed of a catch-up, as a multiple of the clients' rate: otherwise it would not end."""
_ACTIVE_BYTES_PER_S: Final = 10_000.0
_SMOOTHING: Final = 0.5


class AppendRate:
    """Rate at which the log grows, from samples of its end."""

    def __init__(self) -> None:
        self.bytes_per_s: float = 0.0
        self._last: tuple[int, int] | None = None

    def sample(self, appended: int, now_ms: int) -> None:
        """Add a sample.

        Args:
            appended: end of the log.
            now_ms: monotonic time.
        """
        if self._last is None:
            self._last = appended, now_ms
            return
        before, before_ms = self._last
        if now_ms > before_ms:
            rate = (appended - before) * 1_000 / (now_ms - before_ms)
            self.bytes_per_s += (rate - self.bytes_per_s) * _SMOOTHING
            self._last = appended, now_ms

    @property
    def is_active(self) -> bool:
        """Whether clients send."""
        return self.bytes_per_s >= _ACTIVE_BYTES_PER_S


class TransferPace:
    """Pace of one connection.

    Args:
        rate: rate of the clients' sends.
        batch_bytes: size of a frame (`haTransferBatchSize`).
        max_frame_bytes: largest frame that the slave accepts in a catch-up.
        limit_bytes_per_s: `maxHaTransferByteInSecond`; None for no limit.
    """

    def __init__(
        self,
        rate: AppendRate,
        *,
        batch_bytes: int,
        max_frame_bytes: int,
        limit_bytes_per_s: int | None = None,
    ) -> None:
        self._rate = rate
        self._batch_bytes = batch_bytes
        self._catch_up_bytes = max(batch_bytes, min(_CATCH_UP_FRAME_BYTES, max_frame_bytes))
        self._limit_bytes_per_s = limit_bytes_per_s
        self._ready_s = 0.0
        self._second = -1
        self._sent_in_second = 0
        self.bytes_per_s: int = 0

    def wait_s(self, now_s: float) -> float:
        """Return the pause before the next frame; 0 for none.

        Args:
            now_s: time of the loop.
        """
        self._turn_second(now_s)
        limit = self._limit_bytes_per_s
        if limit is not None and self._sent_in_second >= limit:
            return int(now_s) + 1 - now_s
        return max(0.0, self._ready_s - now_s)

    def frame_bytes(self, lag_bytes: int) -> int:
        """Return the size of the next frame."""
        is_behind = lag_bytes >= _CATCH_UP_LAG_BYTES
        size_bytes = min(lag_bytes, self._catch_up_bytes if is_behind else self._batch_bytes)
        if self._limit_bytes_per_s is not None:
            size_bytes = min(size_bytes, self._limit_bytes_per_s - self._sent_in_second)
        return max(1, size_bytes)

    def sent(self, size_bytes: int, lag_bytes: int, used_s: float, now_s: float) -> None:
        """Record a frame.

        Args:
            size_bytes: bytes of the frame.
            lag_bytes: lag before it.
            used_s: time that the loop spent on it.
            now_s: time of the loop.
        """
        self._turn_second(now_s)
        self._sent_in_second += size_bytes
        if lag_bytes < _CATCH_UP_LAG_BYTES or not self._rate.is_active:
            return
        # From the start of this frame to that of the next one.
        slowest_s = size_bytes / (_LEAST_GAIN * self._rate.bytes_per_s)
        self._ready_s = now_s - used_s + min(used_s * _SHARE, slowest_s)

    def _turn_second(self, now_s: float) -> None:
        if int(now_s) != self._second:
            self.bytes_per_s = self._sent_in_second if int(now_s) == self._second + 1 else 0
            self._second, self._sent_in_second = int(now_s), 0
