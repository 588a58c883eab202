"""What time does to a connection: silent, stuck and half-open ones are closed.

Looked at about once a second, never a timer a connection. All times are monotonic: what a wall
clock does concerns nobody here.
"""

import logging
from typing import Protocol

from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.transport import WriteTransport, reset

_log = logging.getLogger(__name__)

CLOSE_LINGER_MS = 5_000
"""How long a closed connection may take to send what is queued."""

MIN_FRAME_GROWTH_BYTES = 64 * 1024
"""What a frame must gain within the time limit when it is not whole by then."""


class Watched(Protocol):
    """What is looked at.

    Attributes:
        reads: socket reads so far.
        frame_reads: those of them that completed a frame.
        has_first_command: whether a whole frame has ever come.
        is_reading_paused: whether we do not read at the moment.
    """

    channel: Channel
    transport: WriteTransport
    reads: int
    frame_reads: int
    has_first_command: bool
    is_reading_paused: bool

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether responses are still to be sent."""
        ...


class ConnectionTimeouts:
    """Looks at one connection; on its loop."""

    __slots__ = (
        "_active_ms",
        "_closing_ms",
        "_frame_bytes",
        "_frame_ms",
        "_fruitless_looks",
        "_limits",
        "_opened_ms",
        "_seen_activity",
        "_seen_frame_reads",
        "_stalled_bytes",
        "_stalled_ms",
        "_watched",
    )

    def __init__(self, watched: Watched, limits: ConnectionLimits, now_ms: int) -> None:
        """Begin with a connection that has just opened.

        Args:
            watched: the connection.
            limits: how long what may take.
            now_ms: monotonic time.
        """
        self._watched = watched
        self._limits = limits
        self._opened_ms = self._active_ms = self._frame_ms = now_ms
        self._seen_activity = 0
        self._seen_frame_reads = 0
        self._frame_bytes = 0
        self._closing_ms: int | None = None
        self._stalled_ms: int | None = None
        self._stalled_bytes = 0
        self._fruitless_looks = 0

    @property
    def is_stalled(self) -> bool:
        """Whether the peer does not keep up and took nothing from one look to the next."""
        # The first look may come right after the response was written.
        return self._stalled_ms is not None and self._fruitless_looks >= 2

    def stalled(self, now_ms: int) -> None:
        """Note that the peer does not keep up any more."""
        self._stalled_ms = now_ms
        self._stalled_bytes = self._watched.transport.get_write_buffer_size()
        self._fruitless_looks = 0

    def resumed(self) -> None:
        """Note that the peer keeps up again."""
        self._stalled_ms = None

    def is_idle(self, now_ms: int) -> bool:
        """Close what is stuck or half-open; return whether it was silent for too long.

        Args:
            now_ms: monotonic time.
        """
        watched, limits = self._watched, self._limits
        channel = watched.channel
        if not channel.is_open:
            self._look_at_closing(now_ms)
            return False
        activity = watched.reads + channel.activity
        if activity != self._seen_activity:
            self._seen_activity = activity
            self._active_ms = now_ms
        if self._stalled_ms is not None:
            self._look_at_stalled(now_ms, self._stalled_ms)
        elif not watched.has_first_command and (
            0 < limits.first_frame_timeout_ms <= now_ms - self._opened_ms
        ):
            channel.close("no request in time")
        elif self._is_frame_stuck(now_ms):
            self._cut_off("a frame never ends", "unfinished_bytes", watched.pending_bytes)
        else:
            return 0 < limits.idle_timeout_ms <= now_ms - self._active_ms and not watched.is_busy
        return False

    def _is_frame_stuck(self, now_ms: int) -> bool:
        """Return whether the frame in the making has gained too little for too long.

        A peer that sends a byte now and then is not idle, but holds what it has sent.
        """
        watched = self._watched
        pending_bytes = watched.pending_bytes
        if (
            not pending_bytes
            or watched.is_reading_paused  # nobody can send what we do not read
            or watched.frame_reads != self._seen_frame_reads
            or pending_bytes - self._frame_bytes >= MIN_FRAME_GROWTH_BYTES
        ):
            self._seen_frame_reads = watched.frame_reads
            self._frame_bytes = pending_bytes
            self._frame_ms = now_ms
            return False
        return 0 < self._limits.frame_timeout_ms <= now_ms - self._frame_ms

    def _look_at_closing(self, now_ms: int) -> None:
        if self._closing_ms is None:
            self._closing_ms = now_ms
        elif now_ms - self._closing_ms >= CLOSE_LINGER_MS:
            reset(self._watched.transport)

    def _look_at_stalled(self, now_ms: int, stalled_ms: int) -> None:
        waiting_bytes = self._watched.transport.get_write_buffer_size()
        self._fruitless_looks += 1
        if waiting_bytes < self._stalled_bytes:
            self._stalled_ms = now_ms
            self._fruitless_looks = 0
        elif 0 < self._limits.write_stall_timeout_ms <= now_ms - stalled_ms:
            self._cut_off("the peer takes nothing", "waiting_bytes", waiting_bytes)
        self._stalled_bytes = waiting_bytes

    def _cut_off(self, reason: str, what: str, size_bytes: int) -> None:
        channel = self._watched.channel
        _log.warning(
            "slow peer cut off peer=%s reason=%s what=%s bytes=%d",
            channel.remote_address,
            reason,
            what,
            size_bytes,
        )
        channel.abort(f"{reason} ({what}={size_bytes})")
