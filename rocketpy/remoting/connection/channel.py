"""Interface of a connection to the layers above: address of the peer, send, call, close.

A channel belongs to one event loop. `send` may be called on any thread: frames gather in an
outbox, the loop is woken at most once for all of them, and they leave in one write.

Source: io.netty.channel.Channel as NettyRemotingAbstract uses it (5.4.0).
"""

import asyncio
import collections
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from rocketpy.errors import ConnectionLostError
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.calls import PendingCalls, PendingRequest
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.fair_turns import HeldRequest, TurnScheduler
from rocketpy.remoting.connection.transport import Buffer, WriteTransport, reset

_log = logging.getLogger(__name__)

Frame: TypeAlias = Buffer | Sequence[Buffer]

ROCKETPY_FIELD = "rocketpy"
ROCKETPY_MSGPACK = "msgpack"

_MAX_OPAQUE = 0x7FFFFFFF

# Larger frames are written at once: joining them would copy more than the call costs.
_JOINED_FRAME_BYTES = 64 * 1024


class ChannelHost(Protocol):
    """The connection behind a channel.

    Attributes:
        turns: where held requests wait until the peer keeps up.
    """

    turns: TurnScheduler

    def complete(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response that was set; any thread."""
        ...

    def add_in_progress(self, count: int) -> None:
        """Count requests that are answered later; on the channel's loop."""
        ...

    def wrote_big_frame(self, size_bytes: int) -> None:
        """Count the unsent output, as a big frame was written; on the channel's loop."""
        ...


class ChannelListener(Protocol):
    """Listener of connections, called on the loop of the connection's selector."""

    def on_open(self, channel: "Channel") -> None:
        """Note a new connection."""
        ...

    def on_close(self, channel: "Channel") -> None:
        """Note a lost connection; called once for each `on_open`."""
        ...

    def on_idle(self, channel: "Channel") -> None:
        """Note that a connection was silent too long and is about to be closed."""
        ...


def format_address(host: str, port: int) -> str:
    """Return `ip:port`, IPv6 in brackets and without its zone."""
    return f"[{host.partition('%')[0]}]:{port}" if ":" in host else f"{host}:{port}"


def host_bytes(host: str, port: int) -> bytes:
    """Return an address as stored in `bornHost`: 4 or 16 bytes of IP, then the port as i32."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.inet_pton(family, host.partition("%")[0]) + port.to_bytes(4, "big")


class Channel:
    """Accepted or opened connection, as processors and listeners use it.

    Attributes:
        remote_address: the peer, `ip:port` or `[ipv6]:port`.
        remote_host_bytes: the same as stored in `bornHost`: 8 or 20 bytes.
        is_open: whether frames still go out.
        is_rocketpy: the peer's first request said that it is RocketPy.
        attributes: for the layers above; use only on the channel's loop, or with their own lock.
        loop: the event loop this channel lives on.
        activity: count of writes; the idle check compares it.
        offers_msgpack: the next response is to name MSGPACK (see `ROCKETPY_FIELD`).
    """

    __slots__ = (
        "__weakref__",
        "_close_reason",
        "_hard_limit_bytes",
        "_host",
        "_is_lost",
        "_is_writable",
        "_loop_thread_id",
        "_next_opaque",
        "_outbox",
        "_outbox_is_scheduled",
        "_transport",
        "activity",
        "attributes",
        "in_flight",
        "is_open",
        "is_rocketpy",
        "loop",
        "offers_msgpack",
        "remote_address",
        "remote_host_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: WriteTransport,
        remote: tuple[str, int],
        *,
        hard_limit_bytes: int,
        host: ChannelHost,
    ) -> None:
        """Wrap a transport; call it on the loop's thread.

        Args:
            loop: the transport's event loop.
            transport: where frames go.
            remote: the peer's IP address and port.
            hard_limit_bytes: unsent bytes at which the connection is aborted.
            host: the connection.
        """
        self.loop: asyncio.AbstractEventLoop = loop
        self.set_remote(*remote)
        self.is_open: bool = True
        self.is_rocketpy: bool = False
        self.offers_msgpack: bool = False
        self.attributes: dict[str, object] = {}
        self.activity: int = 0
        self.in_flight: PendingCalls = PendingCalls(loop, self.remote_address)
        self._transport = transport
        self._hard_limit_bytes = hard_limit_bytes
        self._host = host
        # Compared on each send: cheaper than asking asyncio for the running loop.
        self._loop_thread_id = threading.get_ident()
        self._is_writable = True
        self._is_lost = False
        self._close_reason: str | None = None
        self._outbox: collections.deque[bytes] = collections.deque()
        self._outbox_is_scheduled = False
        self._next_opaque = 0

    def __repr__(self) -> str:
        state = f"closed: {self._close_reason}" if self._close_reason is not None else "open"
        return f"<Channel {self.remote_address} {state}>"

    @property
    def close_reason(self) -> str | None:
        """Why it was closed; None while open."""
        return self._close_reason

    @property
    def is_writable(self) -> bool:
        """Whether the peer keeps up; while False, no big response should be made for it."""
        return self._is_writable

    def set_remote(self, host: str, port: int) -> None:
        """Set the address of the peer."""
        if host.startswith("::ffff:") and "." in host:
            # An IPv4 peer of a socket bound to "::"; Apache, too, knows it by its IPv4 address.
            host = host.removeprefix("::ffff:")
        self.remote_address: str = format_address(host, port)
        self.remote_host_bytes: bytes = host_bytes(host, port)

    def take_first_request(self, request: RemotingCommand) -> None:
        """Note from a peer's first request whether it is RocketPy."""
        if not request.flag & 1 and request.ext_fields.get(ROCKETPY_FIELD) == "1":
            self.is_rocketpy = self.offers_msgpack = True

    def send(self, frame: Frame) -> None:
        """Send one or more complete frames; any thread; dropped when the channel is closed.

        Args:
            frame: bytes, or a sequence of buffers that belong together (copied once, here).
        """
        if self._close_reason is not None:
            return
        # Copied on the caller's thread: mapped memory may be gone when the loop runs.
        data = frame if isinstance(frame, bytes) else _joined(frame)
        if threading.get_ident() == self._loop_thread_id:
            self.write_soon(data)
            return
        self._outbox.append(data)
        # `deque.append` is atomic, on free-threaded interpreters too.
        # Without a lock: at worst two threads both wake the loop, and one finds nothing to write.
        if not self._outbox_is_scheduled:
            self._outbox_is_scheduled = True
            self.call_soon(self._drain_outbox)

    def defer(self, request: RemotingCommand) -> DeferredResponse:
        """Return a response that is set later; the processor returns it.

        The request counts as in progress until the response is set or the channel closes. There is
        no time-out here: the caller must make sure that a response is set in the end.
        """
        return DeferredResponse(request, self._host.complete)

    def defer_run(self, count: int) -> DeferredResponse:
        """Return a deferred response to several requests, which is set as one run of frames.

        As `defer`, for byte handlers; on the channel's loop.
        """
        self._host.add_in_progress(count)
        return DeferredResponse(make_request(0), self._host.complete, count)

    def resume(self, request: HeldRequest, pool: BusinessPool | None = None) -> None:
        """Answer a held request once the peer takes more, and so does the budget; any thread.

        It runs in a later iteration of the channel's loop, never inside this call. Within a channel
        requests run in order and one at a time, channels take turns. Dropped when the channel
        closes.

        Args:
            request: makes the response.
            pool: where it runs; None on the loop.
        """
        if threading.get_ident() == self._loop_thread_id:
            self._add_turn(request, pool)
        else:
            self.call_soon(self._add_turn, request, pool)

    def send_command(self, command: RemotingCommand) -> None:
        """Encode and send a command; any thread; dropped when the channel is closed."""
        if self.offers_msgpack and command.flag & 1:
            self.offer_msgpack(command)
        self.send(encode_command(command))

    def offer_msgpack(self, response: RemotingCommand) -> None:
        """Name MSGPACK in a response to a RocketPy peer, once for a connection."""
        self.offers_msgpack = False
        response.ext_fields = {**response.ext_fields, ROCKETPY_FIELD: ROCKETPY_MSGPACK}

    @property
    def has_unwritten(self) -> bool:
        """Whether frames wait for the end of this iteration of the loop."""
        return bool(self._outbox)

    def write(self, frame: Frame) -> None:
        """Write now; only on the channel's loop."""
        if self._close_reason is not None:
            return
        self.activity += 1
        data = frame if isinstance(frame, bytes) else _joined(frame)
        self._transport.write(data)
        # Small frames are not tracked: the high-water mark bounds them.
        if len(data) > _JOINED_FRAME_BYTES:
            self._host.wrote_big_frame(len(data))
        # Only a slow peer is checked: asking the transport costs each write a call.
        if not self._is_writable:
            waiting_bytes = self._transport.get_write_buffer_size()
            if waiting_bytes > self._hard_limit_bytes:
                self.abort(f"{waiting_bytes} bytes wait for a peer that does not read")

    def write_soon(self, frame: bytes) -> None:
        """Write together with other frames of this iteration of the loop; only on that loop.

        A pipelining caller then costs one system call per iteration, not one per request.
        """
        if self._close_reason is not None:
            return
        self._outbox.append(frame)
        if len(frame) > _JOINED_FRAME_BYTES:
            self._drain_outbox()
        # `call_soon` runs after all reads of this iteration, so their frames share a write.
        elif not self._outbox_is_scheduled:
            self._outbox_is_scheduled = True
            self.loop.call_soon(self._drain_outbox)

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request to the peer and wait for its response; on any running loop.

        Raises:
            RequestTimeoutError: no response within `timeout_ms`.
            ConnectionLostError: the channel is or gets closed.
        """
        if asyncio.get_running_loop() is self.loop:
            return await self._invoke(command, timeout_ms)
        if not self.is_open:
            raise self._closed_error(command)
        # Opaques and in-flight calls belong to the channel's loop.
        call = asyncio.run_coroutine_threadsafe(self._invoke(command, timeout_ms), self.loop)
        return await asyncio.wrap_future(call)

    def invoke_oneway(self, command: RemotingCommand) -> None:
        """Send a request that gets no response; any thread; dropped when closed."""
        command.opaque = self._take_opaque()
        command.flag |= 2
        self.send(encode_command(command))

    def close(self, reason: str) -> None:
        """Close once what was sent has left; any thread; later calls do nothing.

        Args:
            reason: a few words for logs and for the errors of waiting callers.
        """
        self._on_loop(self._close_now, reason)

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent output, in the kernel too; any thread."""
        self._on_loop(self._abort_now, reason)

    def lost(self, reason: str) -> None:
        """Note that the connection is gone; only on the channel's loop."""
        self._is_lost = True
        if self._close_reason is None:
            self._end(reason)
        self._outbox.clear()
        self._host.turns.drop(self)
        # Last: a failed call may use the channel, which must be closed by then.
        self.in_flight.fail_all(self._close_reason or reason)

    def set_writable(self, is_writable: bool) -> None:
        """Note whether the peer keeps up; only on the channel's loop."""
        self._is_writable = is_writable
        if is_writable:
            self._host.turns.resume(self)

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        """Run a callback on the channel's loop from any thread; False when that loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            # The loop was closed while a pool still had work: its peers are gone.
            _log.debug("loop closed, callback dropped: peer=%s", self.remote_address)
            return False
        return True

    def _add_turn(self, request: HeldRequest, pool: BusinessPool | None) -> None:
        if self._close_reason is None:
            self._host.turns.add(self, request, pool)

    def _on_loop(self, action: Callable[[str], None], reason: str) -> None:
        if threading.get_ident() == self._loop_thread_id:
            action(reason)
        else:
            self.call_soon(action, reason)

    def _end(self, reason: str) -> None:
        self._close_reason = reason
        self.is_open = False

    def _close_now(self, reason: str) -> None:
        if self._close_reason is None:
            # Frames that were sent before the close still leave.
            self._drain_outbox()
            self._end(reason)
            self._host.turns.drop(self)
            self._transport.close()

    def _abort_now(self, reason: str) -> None:
        if self._close_reason is None:
            self._end(reason)
            self._host.turns.drop(self)
        if not self._is_lost:
            # Not later: its descriptor may belong to another connection by then.
            reset(self._transport)

    def _drain_outbox(self) -> None:
        # Before the outbox is read: a frame that is added from now on schedules another call.
        self._outbox_is_scheduled = False
        outbox = self._outbox
        frames: list[Buffer] = []
        while outbox:
            frames.append(outbox.popleft())
        if frames:
            self.write(frames[0] if len(frames) == 1 else frames)

    async def _invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if not self.is_open:
            raise self._closed_error(command)
        opaque = command.opaque = self._take_opaque()
        future: asyncio.Future[RemotingCommand] = self.loop.create_future()
        deadline_s = self.loop.time() + timeout_ms / 1000
        self.in_flight.add(opaque, PendingRequest(command, future, timeout_ms, deadline_s))
        self.write(encode_command(command))
        return await future

    def _take_opaque(self) -> int:
        opaque = self._next_opaque
        self._next_opaque = (opaque + 1) & _MAX_OPAQUE
        return opaque

    def _closed_error(self, command: RemotingCommand) -> ConnectionLostError:
        return ConnectionLostError(
            f"connection to {self.remote_address} is closed ({self._close_reason}), "
            f"request {command.code} not sent"
        )


def _joined(frame: Frame) -> bytes:
    """Return the frame as new bytes: the only copy of mapped memory that a response makes."""
    if isinstance(frame, (bytearray, memoryview)):
        return bytes(frame)
    return frame if isinstance(frame, bytes) else b"".join(frame)
