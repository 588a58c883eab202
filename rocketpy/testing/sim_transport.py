"""Simulated connection: its two ends, and the bytes in transit between them."""

import asyncio
import contextvars
import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rocketpy.testing.sim_loop import SimLoop

WINDOW_BYTES: Final = 256 << 10
_SLOW_PIECE_S: Final = 0.05
_HIGH_BYTES: Final = 64 << 10


class Machine(Protocol):
    """Interface of a host."""

    @property
    def name(self) -> str:
        """Address of the host."""
        ...

    @property
    def is_up(self) -> bool:
        """Whether its kernel responds."""
        ...

    @property
    def read_bytes_per_s(self) -> int | None:
        """Read rate of its programs, bytes per second; None for no limit."""
        ...


class Wire(Protocol):
    """Interface of the network between two hosts."""

    @property
    def loop(self) -> SimLoop:
        """Loop of the simulation."""
        ...

    def delay_s(self) -> float:
        """Return the delay of the next piece."""
        ...

    def can_pass(self, one: str, other: str) -> bool:
        """Return whether two hosts can reach each other."""
        ...

    def closed(self, connection: "SimConnection") -> None:
        """Remove a connection whose ends are both closed."""
        ...


@dataclass(slots=True)
class _Piece:
    """Bytes in transit; without any, the end of the stream, perhaps a reset."""

    due_s: float
    data: bytes
    is_reset: bool = False


class SimConnection:
    """Simulated connection with two ends.

    Attributes:
        number: serial number.
        ends: both ends, the connecting one first.
    """

    def __init__(
        self, wire: Wire, number: int, client: tuple[Machine, int], server: tuple[Machine, int]
    ) -> None:
        self.wire = wire
        self.number = number
        first, second = SimTransport(self, *client), SimTransport(self, *server)
        first.peer, second.peer = second, first
        self.ends: tuple[SimTransport, SimTransport] = (first, second)

    def __repr__(self) -> str:
        """Return both addresses."""
        one, other = (f"{end.machine.name}:{end.port}" for end in self.ends)
        return f"<SimConnection {one} - {other}>"

    def cut(self) -> None:
        """Reset both ends; any prefix of the data in transit still arrives."""
        for end in self.ends:
            end.cut()

    def wake(self) -> None:
        """Resume deliveries that waited for the network."""
        for end in self.ends:
            end.pump()
            end.deliver_soon()

    def end_gone(self) -> None:
        """Remove the connection once both ends are closed."""
        if all(end.is_gone for end in self.ends):
            self.wire.closed(self)


class SimTransport(asyncio.Transport):
    """Transport of one end of a connection.

    Attributes:
        peer: the other end.
        machine: host of this end.
        is_gone: whether `connection_lost` was called, or never will be.
    """

    peer: "SimTransport"

    def __init__(self, connection: SimConnection, machine: Machine, port: int) -> None:
        super().__init__()
        self.connection = connection
        self.machine = machine
        self.port = port
        self.is_gone: bool = False
        self._loop = connection.wire.loop
        self._context = contextvars.copy_context()
        self._protocol: asyncio.Protocol | None = None
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._incoming: deque[_Piece] = deque()
        self._incoming_bytes = 0
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self._reads_again_s = 0.0

    def start(self, protocol: asyncio.Protocol) -> None:
        """Set the protocol of the end, which then belongs to its process."""
        self._context = contextvars.copy_context()
        self._protocol = protocol
        protocol.connection_made(self)
        self.deliver_soon()

    # -- asyncio.Transport ---------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio's
        """Return `peername` or `sockname`."""
        found = {
            "peername": (self.peer.machine.name, self.peer.port),
            "sockname": (self.machine.name, self.port),
        }
        return found.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        assert self._protocol is not None
        return self._protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes for the peer."""
        if self._is_closing or not data:
            return
        self._outgoing.append(bytes(data))
        self._outgoing_bytes += len(data)
        self.pump()
        if self._outgoing_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self.get_protocol().pause_writing()

    def can_write_eof(self) -> bool:
        """Return False: half-closing is not simulated."""
        return False

    def close(self) -> None:
        """Close after all data was sent."""
        if not self._is_closing:
            self._is_closing = True
            self.pump()

    def abort(self) -> None:
        """Close now; the peer sees a reset."""
        if not self.is_gone:
            self._is_closing = True
            self._forget_outgoing()
            self._send(_Piece(0, b"", is_reset=True))
            self._lose_soon(None)

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._is_closing

    def is_reading(self) -> bool:
        """Return whether the protocol reads."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Stop reading; arriving data waits."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Resume reading."""
        self._is_reading = True
        self.deliver_soon()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes not sent yet."""
        return self._outgoing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high mark."""
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of `pause_writing` and `resume_writing`."""
        self._high_bytes = _HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    # -- outgoing data -------------------------------------------------------------------------

    def pump(self) -> None:
        """Send as much as the window allows."""
        if self.is_gone:
            return
        peer = self.peer
        if peer.is_gone:
            self._pump_to_nobody()
            return
        while self._outgoing and peer.has_room:
            self._send(_Piece(0, self._take_piece()))
        if self._is_writing_paused and self._outgoing_bytes <= self._low_bytes:
            self._is_writing_paused = False
            self._run_soon(self.get_protocol().resume_writing)
        if self._is_closing and not self._outgoing:
            self._send(_Piece(0, b""))
            self._lose_soon(None)

    def _pump_to_nobody(self) -> None:
        """Write to a closed peer: its kernel resets, or there is no response."""
        if not self._outgoing and self._is_closing:
            self._lose_soon(None)
        elif self._outgoing and self.peer.machine.is_up:
            self._forget_outgoing()
            self._receive(_Piece(self._arrival(self), b"", is_reset=True))

    def _take_piece(self) -> bytes:
        """Take the first bytes; a write may be torn at any position."""
        data = self._outgoing.popleft()
        rng = self._loop.rng
        torn, where = (
            rng.random(),
            rng.random(),
        )  # always drawn, so that lengths do not change later random numbers
        if len(data) > 1 and torn < 0.1:
            size = 1 + int(where * (len(data) - 1))
            self._outgoing.appendleft(data[size:])
            data = data[:size]
        self._outgoing_bytes -= len(data)
        return data

    def _send(self, piece: _Piece) -> None:
        if not self.peer.is_gone:
            piece.due_s = self._arrival(self.peer)
            self.peer._receive(piece)  # noqa: SLF001 - the other end of the same thing

    def _arrival(self, end: "SimTransport") -> float:
        """Return the arrival time of a piece sent now, after earlier pieces."""
        incoming = end._incoming  # noqa: SLF001
        due_s = self._loop.time() + self.connection.wire.delay_s()
        return max(due_s, incoming[-1].due_s) if incoming else due_s

    def _forget_outgoing(self) -> None:
        self._outgoing.clear()
        self._outgoing_bytes = 0

    # -- incoming data -------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Return whether the window has space."""
        return self._incoming_bytes < WINDOW_BYTES

    def deliver_soon(self) -> None:
        """Deliver data that has arrived."""
        self._run_soon(self._deliver)

    def _receive(self, piece: _Piece) -> None:
        self._incoming.append(piece)
        self._incoming_bytes += len(piece.data)
        self._loop.call_at(piece.due_s, self._deliver, context=self._context.copy())

    def _deliver(self) -> None:
        while self._incoming and not self.is_gone and self._protocol is not None:
            piece = self._incoming[0]
            if self._incoming[-1].is_reset and not self._is_reading:
                piece = self._incoming[-1]
            now_s = self._loop.time()
            wire = self.connection.wire
            if piece.due_s > now_s:
                return
            if not wire.can_pass(self.machine.name, self.peer.machine.name):
                return
            if piece.is_reset:
                self._lose(ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))
                return
            if not self._is_reading or (self._reads_again_s > now_s and piece.data):
                return
            self._take(piece)

    def _take(self, piece: _Piece) -> None:
        """Pass one piece to the protocol, or as much as a slow reader reads."""
        assert self._protocol is not None
        data, rate = piece.data, self.machine.read_bytes_per_s
        if rate is not None and data:
            data = data[: max(1, int(rate * _SLOW_PIECE_S))]
            self._reads_again_s = self._loop.time() + len(data) / rate
            self._loop.call_at(self._reads_again_s, self._deliver, context=self._context.copy())
        if len(data) < len(piece.data):
            piece.data = piece.data[len(data) :]
        else:
            self._incoming.popleft()
        self._incoming_bytes -= len(data)
        if self._is_closing:
            return
        if data:
            self._protocol.data_received(data)
            self.peer._run_soon(self.peer.pump)  # noqa: SLF001
        elif not self._protocol.eof_received():
            self.close()

    # -- close ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Lose the connection; any prefix of the data in transit arrives first."""
        if self.is_gone:
            return
        keep = self._loop.rng.randint(0, self._incoming_bytes)
        kept: deque[_Piece] = deque()
        for piece in self._incoming:
            if not piece.data or not keep:
                break
            piece.data = piece.data[:keep]
            keep -= len(piece.data)
            kept.append(piece)
        self._incoming = kept
        self._incoming_bytes = sum(len(piece.data) for piece in kept)
        self._forget_outgoing()
        self._receive(_Piece(self._arrival(self), b"", is_reset=True))

    def refuse(self) -> None:
        """Close a connection that the server does not admit."""
        self._send(_Piece(0, b""))
        self.vanish()

    def vanish(self) -> None:
        """Vanish silently, with the process or the machine."""
        self._is_closing = self.is_gone = True
        self._forget_outgoing()
        self._incoming.clear()
        self._incoming_bytes = 0
        self.connection.end_gone()

    def _lose_soon(self, error: Exception | None) -> None:
        self._run_soon(lambda: self._lose(error))

    def _lose(self, error: Exception | None) -> None:
        if self.is_gone:
            return
        self.is_gone = self._is_closing = True
        self._forget_outgoing()
        self._incoming.clear()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        self.connection.end_gone()

    def _run_soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon(function, context=self._context.copy())
