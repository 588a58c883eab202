"""Faults of a broker on demand, over real sockets: frozen, slow, or refusing connections.

The broker is a real one and keeps running; only data between it and its clients is held back or
cut off, so that clients observe a faulty broker.
"""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from rocketpy.remoting.connection.transport import Buffer, reset
from rocketpy.remoting.network.acceptor import Acceptor
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint, Listening
from rocketpy.remoting.network.socket_network import SocketListening, SocketNetwork
from rocketpy.runtime.ordered_set import OrderedSet


class FaultyNetwork:
    """Sockets of one broker with faults; implements `rocketpy.remoting.network.network.Network`.

    Any thread may call `freeze` and `heal` and set `delay_s`; `refuse` must run on the loop that
    listens.
    Connections of the broker to name servers are not affected.

    Attributes:
        is_frozen: whether data is held back; set by `freeze`.
        delay_s: delay of data from clients, seconds; may be set at any time.
    """

    def __init__(self) -> None:
        self.is_frozen: bool = False
        self.delay_s: float = 0.0
        self._sockets = SocketNetwork(around=self._gate)
        self._listening: list[SocketListening] = []
        self._gates: OrderedSet[Gate] = OrderedSet()
        self._lock = threading.Lock()

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> Listening:
        """Open a port; see `rocketpy.remoting.network.network.Network`.

        Raises:
            StartError: the port is taken, or the address is not ours.
        """
        listening = await self._sockets.listen(endpoint, selectors, admission)
        self._listening.append(listening)
        return listening

    async def connect(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Open a connection; see `rocketpy.remoting.network.network.Network`.

        Raises:
            OSError: refused, unreachable, no such host, or TLS failed.
        """
        await self._sockets.connect(make_protocol, host, port, tls=tls)

    def freeze(self, *, frozen: bool) -> None:
        """Hold back all data, or release it."""
        self.is_frozen = frozen
        if not frozen:
            self._run_on_gates(Gate.release)

    def refuse(self, *, refused: bool) -> None:
        """Reset all connections and close the ports, or open them again.

        Raises:
            StartError: another process took a port in between.
        """
        for listening in self._listening:
            if refused:
                listening.stop_accepting()
            else:
                listening.accept_again()
        if refused:
            self._run_on_gates(Gate.cut)

    def heal(self) -> None:
        """Release frozen data and end the delay."""
        self.delay_s = 0.0
        self.freeze(frozen=False)

    def opened(self, gate: "Gate") -> None:
        """Register a connection."""
        with self._lock:
            self._gates.add(gate)

    def closed(self, gate: "Gate") -> None:
        """Unregister a connection."""
        with self._lock:
            self._gates.discard(gate)

    def _gate(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        return Gate(self, protocol)

    def _run_on_gates(self, action: Callable[["Gate"], None]) -> None:
        with self._lock:
            gates = list(self._gates)
        for gate in gates:
            gate.loop.call_soon_threadsafe(action, gate)


class Gate(asyncio.Transport, asyncio.Protocol):
    """Filter between the transport of a connection and its protocol.

    Args:
        faults: the faults to apply.
        protocol: protocol of the broker.

    Attributes:
        loop: loop of the connection; set once it is open.
    """

    def __init__(self, faults: FaultyNetwork, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop
        self._faults = faults
        self._protocol = protocol
        self._transport: asyncio.Transport
        self._held_input: deque[bytes] = deque()  # empty bytes mean EOF
        self._held_output: list[bytes] = []
        self._is_lost = False

    # ---- the protocol of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._faults.opened(self)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Pass received data to the protocol, now or later."""
        if self._is_open:
            self._protocol.data_received(data)
        else:
            self._keep(data)

    def eof_received(self) -> bool | None:
        """Pass EOF to the protocol, after the data held back."""
        if self._is_open:
            return self._protocol.eof_received()
        self._keep(b"")
        return True

    def pause_writing(self) -> None:
        """Pause the protocol's writing: the client is slow."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol's writing."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop the data held back and notify the protocol."""
        self._is_lost = True
        self._faults.closed(self)
        self._held_input.clear()
        self._held_output.clear()
        self._protocol.connection_lost(exc)

    # ---- faults, on the connection's loop

    def release(self) -> None:
        """Release the data held back."""
        held, self._held_output = self._held_output, []
        for data in held:
            self._transport.write(data)
        while self._held_input and not self._faults.is_frozen:
            self._arrive()

    def cut(self) -> None:
        """Reset the connection, unless it was lost after `refuse` scheduled this call."""
        if not self._is_lost:
            reset(self._transport)

    @property
    def _is_open(self) -> bool:
        return not (self._held_input or self._faults.is_frozen or self._faults.delay_s)

    def _keep(self, data: bytes) -> None:
        self._held_input.append(data)
        self.loop.call_later(self._faults.delay_s, self._arrive)

    def _arrive(self) -> None:
        """Pass the oldest data held back, if it is due."""
        if self._faults.is_frozen or not self._held_input:
            return
        data = self._held_input.popleft()
        if data:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self._transport.close()

    # ---- the transport of the protocol

    def write(self, data: Buffer) -> None:
        """Send bytes to the client, unless frozen."""
        if self._faults.is_frozen or self._held_output:
            self._held_output.append(bytes(data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close after the written data was sent."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the transport is closing or closed."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Stop reading from the client."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of unsent bytes at which the protocol is paused and resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes not sent to the client."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Return information on the connection."""
        return self._transport.get_extra_info(name, default)
