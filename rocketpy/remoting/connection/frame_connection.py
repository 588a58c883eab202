"""Common part of both sides of a connection: channel, writing of responses, time-outs, close.

`Connection` (server) and `ClientConnection` are the subclasses. They decode received bytes and
handle the commands; only the server has flow control, budgets and byte handlers.

Everything runs on the connection's event loop, except `complete`, which any thread may call.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection_owner import FrameConnectionOwner
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import Responses
from rocketpy.remoting.connection.fair_turns import TurnScheduler
from rocketpy.remoting.connection.timeouts import ConnectionTimeouts
from rocketpy.remoting.connection.transport import WriteTransport

if TYPE_CHECKING:
    from typing import Self

_log = logging.getLogger(__name__)

FLUSH_BYTES = 1024 * 1024
"""Responses are written when they are this big together, before more are made."""


class FrameConnection(asyncio.Protocol, ABC):
    """Base class of `Connection` and `ClientConnection`.

    Attributes:
        channel: the connection as the layers above see it; exists once it is attached.
        transport: takes the bytes; exists once it is attached.
        proxied_source: IP and port of the client, when a proxy in front has sent them.
        is_attached: whether it has a transport.
        has_first_command: whether a complete frame has ever arrived.
        is_reading_paused: whether nothing is read from the peer at the moment.
        reads: socket reads so far.
        frame_reads: those of them that completed a frame.
        gone: done when the transport is closed.
    """

    def __init__(
        self, owner: "FrameConnectionOwner[Self]", loop: asyncio.AbstractEventLoop
    ) -> None:
        self.channel: Channel
        self.transport: WriteTransport
        self.turns: TurnScheduler = owner.turns
        self.proxied_source: tuple[str, int] | None = None
        self.is_attached: bool = False
        self.has_first_command: bool = False
        self.is_reading_paused: bool = False
        self.reads: int = 0
        self.frame_reads: int = 0
        self.gone: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._limits = owner.limits
        self._frame_owner: FrameConnectionOwner[Any] = owner
        self._reader = CommandReader(owner.limits.max_frame_bytes)
        self._timeouts: ConnectionTimeouts

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the channel and notify the owner: from here on requests may arrive."""
        self._attach(cast("asyncio.Transport", transport))
        self._frame_owner.opened(self)

    def eof_received(self) -> bool:
        """Close when the peer has finished sending."""
        return False

    def pause_writing(self) -> None:
        """Note that the peer does not take what is sent; stop reading from it."""
        self.channel.set_writable(False)
        self._timeouts.stalled(self._frame_owner.now_ms())
        self._settle()

    def resume_writing(self) -> None:
        """Note that the peer keeps up again; continue in the next iteration of the loop."""
        self.channel.set_writable(True)
        self._timeouts.resumed()
        # Not now: the transport calls from inside its write.
        self._loop.call_soon(self._resume)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail waiting calls and notify the owner."""
        self._reader.drop()
        # A connection that failed before it had a transport has no channel.
        if self.is_attached:
            self.channel.lost(self.lost_reason(exc))
        self._frame_owner.closed(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def lost_reason(self, exc: Exception | None) -> str:
        """Return why the connection is gone, for errors and logs."""
        return f"connection lost: {exc}" if exc else "closed by the peer"

    # ---- for `ConnectionTimeouts` and the owner

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return self._reader.pending_bytes

    @property
    @abstractmethod
    def is_busy(self) -> bool:
        """Whether responses are still to be sent: such a connection is not idle."""

    def sweep(self, now_ms: int) -> None:
        """Close a silent, stuck or half-open connection; called about once a second.

        Args:
            now_ms: monotonic time.
        """
        # During a TLS handshake there is no channel; the handshake has a separate time-out.
        if self.is_attached and self._timeouts.is_idle(now_ms):
            self._frame_owner.idle(self)
            self.channel.close("idle")

    # ---- for subclasses

    @abstractmethod
    def complete(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response that was set; any thread."""

    @abstractmethod
    def add_in_progress(self, count: int) -> None:
        """Count requests that are answered later."""

    @abstractmethod
    def wrote_big_frame(self, size_bytes: int) -> None:
        """Note that a big frame was written."""

    @abstractmethod
    def _settle(self) -> None:
        """Pause or resume reading, as the peer and the limits demand."""

    @abstractmethod
    def _resume(self) -> None:
        """Continue where the slow peer stopped the connection."""

    def _attach(self, transport: asyncio.Transport) -> None:
        limits = self._limits
        # The transport pauses the connection at these marks: flow control starts there.
        transport.set_write_buffer_limits(limits.high_water_bytes, limits.low_water_bytes)
        self.transport = transport
        peer = self.proxied_source or transport.get_extra_info("peername")
        self.channel = Channel(
            self._loop,
            transport,
            (peer[0], peer[1]) if peer else ("0.0.0.0", 0),  # noqa: S104 - already gone
            hard_limit_bytes=limits.hard_limit_bytes,
            host=self,
        )
        self._timeouts = ConnectionTimeouts(self, limits, self._frame_owner.now_ms())
        self.is_attached = True

    def _pause_reading(self, is_paused: bool) -> None:
        # A closing transport refuses both calls.
        if is_paused != self.is_reading_paused and not self.transport.is_closing():
            self.is_reading_paused = is_paused
            if is_paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _check_reader(self) -> None:
        """Close the connection when the reader met a malformed frame."""
        if self._reader.error is not None and self.channel.is_open:
            reason, peer = str(self._reader.error), self.channel.remote_address
            _log.warning("malformed frame, connection closed: peer=%s reason=%s", peer, reason)
            self.channel.close(f"malformed frame: {reason}")

    def _write(self, responses: Responses) -> None:
        """Write finished responses in one call."""
        frames = responses.frames
        if frames:
            self.channel.write(frames[0] if len(frames) == 1 else frames)

    async def _await_response(
        self, command: RemotingCommand, coroutine: Awaitable[RemotingCommand | bytes | None]
    ) -> Responses:
        """Await a processor's coroutine; return its response, or an error response if it raises."""
        responses = Responses(self.channel)
        try:
            # Nothing may escape: the task has no observer, and the peer waits for a response.
            responses.add(command, await coroutine)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # this task is cancelled: the server stops
            responses.add_error(command, RuntimeError("cancelled from within"))
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            responses.add_error(command, error)
        return responses
