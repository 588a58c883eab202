"""Faults of a broker on demand, over real sockets: frozen, slow, or refusing connections.

The broker is the real one and goes on inside; only what passes between it and its clients is held
back or cut off, so that clients see what they see of such a broker.
"""

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from rocketpy.remoting.connection.transport import Buffer, reset
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint, Listening
from rocketpy.remoting.network.selector import Selector
from rocketpy.remoting.network.socket_network import SocketListening, SocketNetwork
from rocketpy.runtime.ordered_set import OrderedSet


class FaultyNetwork:
    """The machine's sockets for one broker, with faults; satisfies `network.network`.

    `freeze` and `slow` may be called from any thread, `refuse` on the loop that listens. What the
    broker sends of its own, to name servers, is not touched.

    Attributes:
        is_frozen: whether nothing passes.
        delay_s: how much later what clients send arrives, seconds.
    """

    def __init__(self) -> None:
        self.is_frozen: bool = False
        self.delay_s: float = 0.0
        self._sockets = SocketNetwork(around=self._gate)
        self._listening: list[SocketListening] = []
        self._gates: OrderedSet[Gate] = OrderedSet()
        self._lock = threading.Lock()

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Selector], admission: Admission
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
        """Let nothing pass, or let pass what was held back and all that comes."""
        self.is_frozen = frozen
        if not frozen:
            self._tell(Gate.release)

    def refuse(self, *, refused: bool) -> None:
        """Reset all connections and close the ports, or open them again.

        Raises:
            StartError: somebody else has taken a port meanwhile.
        """
        for listening in self._listening:
            if refused:
                listening.stop_accepting()
            else:
                listening.accept_again()
        if refused:
            self._tell(Gate.cut)

    def heal(self) -> None:
        """End what `freeze` and `slow` have begun."""
        self.delay_s = 0.0
        self.freeze(frozen=False)

    def opened(self, gate: "Gate") -> None:
        """Note a connection."""
        with self._lock:
            self._gates.add(gate)

    def closed(self, gate: "Gate") -> None:
        """Forget a connection."""
        with self._lock:
            self._gates.discard(gate)

    def _gate(self, protocol: asyncio.Protocol) -> asyncio.Protocol:
        return Gate(self, protocol)

    def _tell(self, what: Callable[["Gate"], None]) -> None:
        with self._lock:
            gates = list(self._gates)
        for gate in gates:
            gate.loop.call_soon_threadsafe(what, gate)


class Gate(asyncio.Transport, asyncio.Protocol):
    """Between a connection's transport, whose protocol it is, and its protocol.

    Args:
        faults: what is to go wrong.
        protocol: the broker's end.

    Attributes:
        loop: the connection's; there once it is open.
    """

    def __init__(self, faults: FaultyNetwork, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop
        self._faults = faults
        self._protocol = protocol
        self._transport: asyncio.Transport
        self._came: deque[bytes] = deque()  # an empty one is the end
        self._to_go: list[bytes] = []

    # ---- the protocol of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
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
        """Hand on that nothing more comes, after what is held back."""
        if self._is_open:
            return self._protocol.eof_received()
        self._keep(b"")
        return True

    def pause_writing(self) -> None:
        """Hand on that the client is slow."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that it is slow no more."""
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what is held back and tell the protocol."""
        self._faults.closed(self)
        self._came.clear()
        self._to_go.clear()
        self._protocol.connection_lost(exc)

    # ---- faults, on the connection's loop

    def release(self) -> None:
        """Let pass what was held back."""
        held, self._to_go = self._to_go, []
        for data in held:
            self._transport.write(data)
        while self._came and not self._faults.is_frozen:
            self._arrive()

    def cut(self) -> None:
        """Reset the connection."""
        reset(self._transport)

    @property
    def _is_open(self) -> bool:
        return not (self._came or self._faults.is_frozen or self._faults.delay_s)

    def _keep(self, data: bytes) -> None:
        self._came.append(data)
        self.loop.call_later(self._faults.delay_s, self._arrive)

    def _arrive(self) -> None:
        """Hand on the oldest of what is held back, if there is any, and it may pass."""
        if self._faults.is_frozen or not self._came:
            return
        data = self._came.popleft()
        if data:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self._transport.close()

    # ---- the transport of the protocol

    def write(self, data: Buffer) -> None:
        """Send bytes to the client, once it gets any."""
        if self._faults.is_frozen or self._to_go:
            self._to_go.append(bytes(data))
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Close once what was written has gone."""
        self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more from the client."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the counts of unsent bytes at which the protocol is paused and resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the client."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Return optional information about the connection."""
        return self._transport.get_extra_info(name, default)
