"""Client side of one server address: connection, calls that wait for it, back-off.

All calls to one address share one connection. After a failed connect, further calls fail at once
for a time that grows with each failure, so that a dead server does not delay its callers.

Source: NettyRemotingClient.ChannelWrapper (5.4.0); the back-off is ours.
"""

import asyncio
import logging
import random
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from rocketpy.errors import ClosedError, ConnectError, IllegalMessageError, TooManyInFlightError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.proto.wire.compiled_requests import StoredAnswer, compiled_sends
from rocketpy.proto.wire.frame import decode_command
from rocketpy.proto.wire.request_template import PreparedRequest
from rocketpy.remoting.config import ConnectionLimits, RemotingClientConfig
from rocketpy.remoting.connection.calls import Call, PendingCalls, RpcHook
from rocketpy.remoting.connection.channel import ROCKETPY_FIELD, ROCKETPY_MSGPACK
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import ProcessorTable, Responses
from rocketpy.remoting.connection.fair_turns import TurnScheduler
from rocketpy.remoting.connection.frame_connection import FLUSH_BYTES, FrameConnection
from rocketpy.remoting.connection.pool_handoff import CompletedResponses
from rocketpy.remoting.network.network import Network
from rocketpy.runtime.ordered_set import OrderedSet

_log = logging.getLogger(__name__)

_COMPILED = compiled_sends()

_RESPONSE, _ONEWAY = 1, 2
_JSON, _MSGPACK = 0, 2
# Refuses URLs, credentials and lists, which would otherwise end as a failed look-up.
_HOST = re.compile(r"[^\s/\\@,;]+")
_SHORTEST_SILENCE_MS = 1_000
_SILENCE_S = 1.0
"""Age of a request that servers answer at once, after which the server may have been replaced."""
_FORGOTTEN_MS = 60_000
"""Far above the longest pause between two attempts to connect."""


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` (IPv6 in brackets).

    Raises:
        ConnectError: it is not an address.
    """
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= 65535
    if not is_port or not _HOST.fullmatch(host):
        raise ConnectError(f"{address!r} is not an address (host:port)")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _reason(error: Exception, *, uses_tls: bool) -> str:
    """Return the text of an error; an aborted handshake has none."""
    reason = str(error) or type(error).__name__
    if uses_tls and isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
        reason += "; the TLS handshake failed, check the server's TLS mode and the certificates"
    return reason


class PeerContext(Protocol):
    """Interface of a client to its peers."""

    config: RemotingClientConfig
    table: ProcessorTable
    limits: ConnectionLimits
    hooks: list[RpcHook]
    loop: asyncio.AbstractEventLoop
    rng: random.Random
    tls: Callable[[], ssl.SSLContext] | None
    network: Network
    turns: TurnScheduler

    def next_opaque(self) -> int:
        """Return the next opaque."""
        ...

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        ...

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        ...

    def silent(self, address: str) -> None:
        """Note that a server does not answer requests that it should have answered at once."""
        ...

    def disconnected(self, address: str) -> None:
        """Note that a connection to a server has ended."""
        ...


class ClientConnection(FrameConnection):
    """An opened connection: its responses end calls, its requests come from the server.

    Requests of the server are rare and served as they arrive. While the server does not take what
    is sent, nothing more is read from it or served.

    Attributes:
        speaks_msgpack: the server has named MSGPACK.
        is_retired: the server sent GO_AWAY; the connection closes when its last call ends.
    """

    def __init__(self, peer: "ServerPeer") -> None:
        super().__init__(peer, peer.loop)
        # Declared here too: type checkers take an increment for a declaration without a value.
        self.reads: int = 0
        self.frame_reads: int = 0
        self.has_first_command = True
        self.has_sent = False
        self.speaks_msgpack: bool = False
        self.is_retired = False
        self._peer = peer
        self._held: list[RemotingCommand] = []
        self._later_count = 0
        self._seen_reads = 0
        self._read_ms = peer.now_ms()

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Also watch for calls that time out."""
        super().connection_made(transport)
        self.channel.in_flight.on_timeout = self._on_timeout

    def lost_reason(self, exc: Exception | None) -> str:
        """Also name the usual cause of a connection on which the server has sent nothing.

        A server that refuses a certificate says so after the handshake, from the client's view.
        """
        reason = super().lost_reason(exc)
        if self.reads:
            return reason
        cause = "refuses this client's certificate" if self._peer.uses_tls else "accepts TLS only"
        return f"{reason} without an answer; perhaps it {cause}"

    def data_received(self, data: bytes) -> None:
        """Give responses to their calls and serve requests."""
        self.reads += 1
        if self.is_reading_paused:  # this was on its way when reading stopped
            self._reader.keep(data)
        else:
            self._read(data)

    # ---- responses

    def take_response(self, response: RemotingCommand) -> None:
        """Give a response to its call; GO_AWAY sends the call to a new connection, once."""
        pending = self.channel.in_flight.take(response.opaque)
        if pending is not None:
            self._answer(pending, response)

    def _read(self, data: bytes) -> None:
        reader = self._reader
        has_answers = False
        if (
            _COMPILED is not None
            and not self._peer.hooks
            and reader.error is None
            and self.channel.is_open
        ):
            data = reader.take(data)
            # Answers to sends need no command object; anything else is left to the reader.
            size, answers = _COMPILED.read_answers(data, self._limits.max_frame_bytes)
            if size:
                has_answers = True
                self._take_answers(data, answers)
                data = data[size:]
        commands = reader.feed(data) if data or reader.pending_bytes else None
        if commands or has_answers:
            self.frame_reads += 1
        if commands:
            self._serve(commands)
        if reader.error is not None:
            self._check_reader()
        self._close_if_retired()

    def _take_answers(self, data: bytes, answers: Sequence[StoredAnswer]) -> None:
        """Give answers to sends to their calls, without a command where the call allows it."""
        in_flight, begin = self.channel.in_flight, 0
        for answer in answers:
            end = answer[1]
            call = in_flight.take(answer[0])
            if call is not None and not call.stored(answer):
                self._answer(call, decode_command(data[begin:end]))
            begin = end

    def _answer(self, pending: Call, response: RemotingCommand) -> None:
        if not self.speaks_msgpack and response.ext_fields:
            self._read_offer(response)
        if response.code == ResponseCode.GO_AWAY and self._peer.went_away(self, pending):
            return
        if self._peer.hooks:
            self._peer.run_after_hooks(pending.command, response)
        pending.answer(response)

    def _read_offer(self, response: RemotingCommand) -> None:
        if response.ext_fields.get(ROCKETPY_FIELD) == ROCKETPY_MSGPACK:
            self.speaks_msgpack = self._peer.uses_msgpack

    # ---- requests of the server

    def _serve(self, commands: list[RemotingCommand]) -> None:
        responses = Responses(self.channel)
        table = self._peer.table
        for index, command in enumerate(commands):
            if command.flag & _RESPONSE:
                self.take_response(command)
                continue
            route = table.routes.get(command.code) or table.default
            responses.process(route.processor, command)
            if responses.size_bytes >= FLUSH_BYTES:
                self._finish(responses)
                responses = Responses(self.channel)
                if not self.channel.is_writable:
                    self._held = commands[index + 1 :]
                    break
        self._finish(responses)

    def _finish(self, responses: Responses) -> None:
        """Write responses, and count the requests that are answered later."""
        self._write(responses)
        self._later_count += responses.later_count
        for command, coroutine in responses.coroutines:
            self._peer.spawn(self._respond_later(command, coroutine))

    async def _respond_later(
        self, command: RemotingCommand, coroutine: Awaitable[RemotingCommand | bytes | None]
    ) -> None:
        self._completed(await self._await_response(command, coroutine), 1)

    def complete(self, deferred: DeferredResponse, response: object) -> None:
        """Write a deferred response that was set; any thread."""
        CompletedResponses(self.channel, self._completed).add(deferred, response)

    def add_in_progress(self, count: int) -> None:
        """Count requests that are answered later."""
        self._later_count += count

    def wrote_big_frame(self, size_bytes: int) -> None:
        """Ignore big frames: a client has no memory budget for its peers."""

    def _completed(self, responses: Responses, count: int) -> None:
        self._later_count -= count
        self._write(responses)

    # ---- flow control and time

    @property
    def is_busy(self) -> bool:
        """Whether responses to the server are still to be sent."""
        return self._later_count > 0

    def _settle(self) -> None:
        self._pause_reading(not self.channel.is_writable)

    def _resume(self) -> None:
        """Serve what was held back, in order, then read on; as long as the server keeps up."""
        held, self._held = self._held, []
        self._serve(held)
        if self.channel.is_open and self.channel.is_writable and self._reader.pending_bytes:
            self._read(b"")
        self._settle()

    def _close_if_retired(self) -> None:
        if self.is_retired and self.channel.is_open and not self.channel.in_flight:
            self.channel.close("server went away")

    def sweep(self, now_ms: int) -> None:
        """Also notice when something was last read.

        Args:
            now_ms: monotonic time.
        """
        if self.reads != self._seen_reads:
            self._seen_reads = self.reads
            self._read_ms = now_ms
        elif self.channel.in_flight.is_overdue(_SILENCE_S):
            self._peer.silent()
        self._close_if_retired()
        super().sweep(now_ms)

    def _on_timeout(self, pending: Call) -> None:
        """Close a connection that has been silent for as long as a call waited: it may be dead."""
        if self.silence_ms >= max(pending.timeout_ms, _SHORTEST_SILENCE_MS):
            self.channel.abort("silent for longer than a request may take")

    @property
    def silence_ms(self) -> int:
        """Time since something was read, in steps of the sweep."""
        return self._peer.now_ms() - self._read_ms if self.reads == self._seen_reads else 0


class ServerPeer:
    """Server at one address, with at most one connection that accepts calls."""

    def __init__(self, address: str, context: PeerContext) -> None:
        """Set up a peer; the first call connects.

        Raises:
            ConnectError: `address` is not `host:port`.
        """
        self.address = address
        self.loop: asyncio.AbstractEventLoop = context.loop
        self.hooks: list[RpcHook] = context.hooks
        self.uses_msgpack: bool = context.config.use_msgpack
        self.table: ProcessorTable = context.table
        self.limits: ConnectionLimits = context.limits
        self.turns: TurnScheduler = context.turns
        self.connections: OrderedSet[ClientConnection] = OrderedSet()
        self._host, self._port = split_address(address)
        self._context = context
        self._config = context.config
        self._next_opaque = context.next_opaque
        self._max_in_flight = context.config.client_async_semaphore_value
        self._max_frame_bytes = context.config.max_frame_bytes
        self._connection: ClientConnection | None = None
        self._waiting = PendingCalls(context.loop, address, is_connecting=True)
        self._waiting_count = 0
        self._is_connecting = False
        self._is_closed = False
        self._failures_count = 0
        self._retry_at_ms = 0
        self._used_ms = context.now_ms()  # last time that a call needed a connect, monotonic
        self._failure = ""

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self._context.tls is not None

    @property
    def is_connected(self) -> bool:
        """Whether a call would go out at once."""
        return self._connection is not None and self._connection.channel.is_open

    # ---- calls

    def start(self, pending: Call) -> None:
        """Send a request, now or once connected; errors go to its future."""
        connection = self._connection
        if connection is not None and connection.channel.is_open:
            self._transmit(connection, pending)
        else:
            self._await_connection(pending)

    def went_away(self, connection: ClientConnection, pending: Call) -> bool:
        """Retire a connection whose server shuts down; return whether the call is sent again."""
        connection.is_retired = True
        if self._connection is connection:
            self._connection = None
            _log.info("server sent GO_AWAY, reconnecting: address=%s", self.address)
        # Once: two servers that both shut down must not pass a call back and forth.
        is_resent = not pending.was_resent and not pending.is_over
        if is_resent:
            pending.was_resent = True
            self.start(pending)
        if not connection.channel.in_flight:
            connection.channel.close("server went away")
        return is_resent

    def run_after_hooks(self, command: RemotingCommand, response: RemotingCommand) -> None:
        """Call the hooks with a response."""
        for hook in self.hooks:
            try:
                hook.after_response(self.address, command, response)
            except Exception:  # noqa: BLE001 - user's hook: the call has its response either way
                _log.exception("after_response hook failed: address=%s", self.address)

    # ---- FrameConnectionOwner

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        return self._context.now_ms()

    def opened(self, connection: ClientConnection) -> None:
        """Keep a connection until it is gone."""
        self.connections.add(connection)

    def closed(self, connection: ClientConnection) -> None:
        """Forget a connection; the next call opens a new one."""
        self.connections.discard(connection)
        if self._connection is connection:
            self._connection = None
        self._context.disconnected(self.address)

    def idle(self, connection: ClientConnection) -> None:
        """Do nothing: an idle connection is closed by the sweep."""

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        self._context.spawn(coroutine)

    # ---- life

    def sweep(self, now_ms: int) -> None:
        """Close silent and stuck connections, and notice a server that does not answer.

        Args:
            now_ms: monotonic time.
        """
        for connection in list(self.connections):
            connection.sweep(now_ms)
        if self._waiting.is_overdue(_SILENCE_S):
            self.silent()

    def silent(self) -> None:
        """Note that requests are overdue."""
        self._context.silent(self.address)

    def abandon(self, reason: str) -> None:
        """Fail the calls to a server that another one has replaced, if it is silent.

        Args:
            reason: for the errors.
        """
        for pending in self._waiting.take_all():
            if not pending.is_over:
                pending.fail(ConnectError(f"not connected to {self.address}: {reason}"))
        for connection in list(self.connections):
            if connection.channel.in_flight and connection.silence_ms >= _SHORTEST_SILENCE_MS:
                connection.channel.abort(reason)

    def is_forgotten(self, now_ms: int) -> bool:
        """Return whether the address was not called for so long that it can be forgotten.

        Args:
            now_ms: monotonic time.
        """
        is_busy = self.connections or self._is_connecting or self._waiting
        return not is_busy and now_ms - self._used_ms >= _FORGOTTEN_MS

    def close(self) -> None:
        """Fail waiting calls and close the connections."""
        self._is_closed = True
        for pending in self._waiting.take_all():
            pending.fail(ClosedError("the remoting client was closed"))
        for connection in list(self.connections):
            connection.channel.close("client closed")

    # ---- inside

    def _transmit(self, connection: ClientConnection, pending: Call) -> None:
        command = pending.command
        channel = connection.channel
        in_flight = channel.in_flight
        # A server that does not answer must not fill the client's memory.
        if len(in_flight) >= self._max_in_flight:
            pending.fail(
                TooManyInFlightError(f"{len(in_flight)} requests to {self.address} are unanswered"),
            )
            return
        opaque = command.opaque = self._next_opaque()
        # The first request marks this client as RocketPy.
        if not connection.has_sent and self.uses_msgpack:
            command.ext_fields[ROCKETPY_FIELD] = "1"
        if connection.speaks_msgpack:
            if command.serialize_type == _JSON:
                command.serialize_type = _MSGPACK
        elif command.serialize_type == _MSGPACK:
            command.serialize_type = _JSON
        try:
            for hook in self.hooks:
                hook.before_request(self.address, command)
            if command.__class__ is PreparedRequest:
                frame = command.frame()
            else:
                frame = encode_command(command)
        except Exception as error:  # noqa: BLE001 - user's hook or values: belongs to this call only
            pending.fail(error)
            return
        # The server would close the connection, with all its other calls.
        if len(frame) > self._max_frame_bytes:
            words = f"a request of {len(frame)} bytes exceeds the limit of a frame"
            more = "max_frame_bytes here, maxFrameBytes of the server"
            pending.fail(IllegalMessageError(f"{words}, {self._max_frame_bytes} bytes ({more})"))
            return
        connection.has_sent = True
        # Alone, a request leaves at once; among others it shares their write.
        is_alone = not in_flight and not channel.has_unwritten
        if not command.flag & _ONEWAY:
            in_flight.add(opaque, pending)
        else:
            pending.answer(command)
        if is_alone:
            channel.write(frame)
        else:
            channel.write_soon(frame)

    def _await_connection(self, pending: Call) -> None:
        if self._is_closed:
            pending.fail(ClosedError("the remoting client was closed"))
            return
        self._used_ms = self._context.now_ms()
        if not self._is_connecting:
            pause_ms = self._retry_at_ms - self._context.now_ms()
            if pause_ms > 0:
                pending.fail(ConnectError(self._failure, retry_in_ms=pause_ms))
                return
            # One connect for all calls that wait.
            self._is_connecting = True
            self.spawn(self._connect())
        if len(self._waiting) >= self._max_in_flight:
            words = f"{len(self._waiting)} requests wait for a connection to {self.address}"
            pending.fail(TooManyInFlightError(words))
            return
        self._waiting_count += 1
        self._waiting.add(self._waiting_count, pending)

    async def _connect(self) -> None:
        connection = ClientConnection(self)
        timeout_ms = self._config.connect_timeout_millis
        tls = self._context.tls
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._context.network.connect(
                    lambda: connection, self._host, self._port, tls=tls and tls()
                )
        except TimeoutError:
            self._connect_failed(f"cannot connect to {self.address} within {timeout_ms} ms")
        except (OSError, ValueError) as error:
            # OSError includes ssl.SSLError; a host name that no IDNA rule allows is a UnicodeError,
            # one with a NUL in it another ValueError.
            self._connect_failed(
                f"cannot connect to {self.address}: {_reason(error, uses_tls=self.uses_tls)}"
            )
        else:
            self._connected(connection)
        finally:
            self._is_connecting = False

    def _connected(self, connection: ClientConnection) -> None:
        self._failures_count = 0
        self._retry_at_ms = 0
        if self._is_closed:
            connection.channel.close("client closed")
            return
        self._connection = connection
        # In the order of the calls, so that pipelined sends stay in order.
        for pending in self._waiting.take_all():
            if not pending.is_over:
                self._transmit(connection, pending)

    def _connect_failed(self, failure: str) -> None:
        config = self._config
        # Jitter: clients of a restarted server must not all connect at the same moment.
        jitter = config.reconnect_backoff_jitter
        pause_ms = config.reconnect_backoff_initial_ms * (
            1 + self._context.rng.uniform(-jitter, jitter)
        )
        pause_ms *= config.reconnect_backoff_factor ** min(self._failures_count, 64)
        pause_ms = min(pause_ms, config.reconnect_backoff_max_ms)
        self._failures_count += 1
        self._failure = failure
        self._retry_at_ms = self._context.now_ms() + int(pause_ms)
        for pending in self._waiting.take_all():
            pending.fail(ConnectError(failure, retry_in_ms=int(pause_ms)))
