"""Time-outs of a connection: silent, stuck and half-open ones are closed.

Checked about once a second by the sweep of a selector; a connection has no timer. All times are
monotonic, so that a changed wall clock closes nothing.
"""

import logging
from typing import Protocol

from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.transport import WriteTransport, reset

_log = logging.getLogger(__name__)

CLOSE_LINGER_MS = 5_000
"""Time that a closed connection may take to send its queued output."""

MIN_FRAME_GROWTH_BYTES = 64 * 1024
"""Bytes that an unfinished frame must gain within the time limit."""


class TimedConnection(Protocol):
    """Interface of a connection to its time-outs.

    Attributes:
        reads: socket reads so far.
        frame_reads: those of them that completed a frame.
        has_first_command: whether a complete frame has ever arrived.
        is_reading_paused: whether nothing is read from the peer at the moment.
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
    """Time-outs of one connection; used on its loop."""

    __slots__ = (
        "_active_ms",
        "_checks_without_progress",
        "_closing_ms",
        "_connection",
        "_frame_bytes",
        "_frame_ms",
        "_limits",
        "_opened_ms",
        "_seen_activity",
        "_seen_frame_reads",
        "_stalled_bytes",
        "_stalled_ms",
    )

    def __init__(self, connection: TimedConnection, limits: ConnectionLimits, now_ms: int) -> None:
        """Start with a connection that has just opened.

        Args:
            connection: the connection.
            limits: the time limits.
            now_ms: monotonic time.
        """
        self._connection = connection
        self._limits = limits
        self._opened_ms = self._active_ms = self._frame_ms = now_ms
        self._seen_activity = 0
        self._seen_frame_reads = 0
        self._frame_bytes = 0
        self._closing_ms: int | None = None
        self._stalled_ms: int | None = None
        self._stalled_bytes = 0
        self._checks_without_progress = 0

    @property
    def is_stalled(self) -> bool:
        """Whether the peer is slow and took nothing between two checks."""
        # The first check may follow right after the response was written.
        return self._stalled_ms is not None and self._checks_without_progress >= 2

    def stalled(self, now_ms: int) -> None:
        """Note that the peer stopped keeping up."""
        self._stalled_ms = now_ms
        self._stalled_bytes = self._connection.transport.get_write_buffer_size()
        self._checks_without_progress = 0

    def resumed(self) -> None:
        """Note that the peer keeps up again."""
        self._stalled_ms = None

    def is_idle(self, now_ms: int) -> bool:
        """Close what is stuck or half-open; return whether it was silent for too long.

        Args:
            now_ms: monotonic time.
        """
        connection, limits = self._connection, self._limits
        channel = connection.channel
        if not channel.is_open:
            # Other time-outs do not matter once the connection is closed.
            self._check_closing(now_ms)
            return False
        # Counters instead of timestamps: reads and writes do not ask the clock.
        activity = connection.reads + channel.activity
        if activity != self._seen_activity:
            self._seen_activity = activity
            self._active_ms = now_ms
        if self._stalled_ms is not None:
            self._check_stalled(now_ms, self._stalled_ms)
        elif not connection.has_first_command and (
            0 < limits.first_frame_timeout_ms <= now_ms - self._opened_ms
        ):
            channel.close("no request in time")
        elif self._is_frame_stuck(now_ms):
            self._cut_off("a frame never ends", "unfinished_bytes", connection.pending_bytes)
        else:
            return 0 < limits.idle_timeout_ms <= now_ms - self._active_ms and not connection.is_busy
        return False

    def _is_frame_stuck(self, now_ms: int) -> bool:
        """Return whether the unfinished frame has gained too little for too long.

        A peer that sends a byte now and then is not idle, but holds what it has sent.
        """
        connection = self._connection
        pending_bytes = connection.pending_bytes
        if (
            not pending_bytes
            or connection.is_reading_paused  # the peer cannot send what is not read
            or connection.frame_reads != self._seen_frame_reads
            or pending_bytes - self._frame_bytes >= MIN_FRAME_GROWTH_BYTES
        ):
            self._seen_frame_reads = connection.frame_reads
            self._frame_bytes = pending_bytes
            self._frame_ms = now_ms
            return False
        return 0 < self._limits.frame_timeout_ms <= now_ms - self._frame_ms

    def _check_closing(self, now_ms: int) -> None:
        if self._closing_ms is None:
            self._closing_ms = now_ms
        elif now_ms - self._closing_ms >= CLOSE_LINGER_MS:
            reset(self._connection.transport)

    def _check_stalled(self, now_ms: int, stalled_ms: int) -> None:
        waiting_bytes = self._connection.transport.get_write_buffer_size()
        self._checks_without_progress += 1
        # Any progress restarts the time-out: a slow link is not a stuck peer.
        if waiting_bytes < self._stalled_bytes:
            self._stalled_ms = now_ms
            self._checks_without_progress = 0
        elif 0 < self._limits.write_stall_timeout_ms <= now_ms - stalled_ms:
            self._cut_off("the peer takes nothing", "waiting_bytes", waiting_bytes)
        self._stalled_bytes = waiting_bytes

    def _cut_off(self, reason: str, what: str, size_bytes: int) -> None:
        channel = self._connection.channel
        _log.warning(
            "slow peer disconnected: peer=%s reason=%s what=%s bytes=%d",
            channel.remote_address,
            reason,
            what,
            size_bytes,
        )
        channel.abort(f"{reason} ({what}={size_bytes})")
