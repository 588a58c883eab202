"""Simulated network: delays, cuts in mid-frame, half-open peers, partitions, slow readers.

Each `SimHost` has a name, which is its address, and satisfies `Network`;
the traffic of a program goes through its host. A connection is two pipes. A
pipe keeps the order of its bytes, delivers them in pieces of any size after any delay within
`SimNetwork.latency_ms`, and holds at most a window of unread bytes; beyond it the writer's buffer
grows, as with TCP.

Faults, drawn from the loop's seed:

- `SimNetwork.cut`: a connection is reset; any prefix of the data in transit still arrives;
- `SimHost.lose_power`: all its connections vanish silently. The peers stay half-open until
  they send data to the host after it is back (reset), or time out;
- `SimHost.kill_process`: the process ends, the kernel resets its connections;
- `SimNetwork.partition` and `heal`: no data passes between two groups of hosts; connections survive
  and deliver waiting data afterwards, connection attempts hang;
- `SimHost.read_bytes_per_s`: a slow reader.
"""

import asyncio
import contextvars
import errno
import itertools
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from rocketpy.errors import StartError
from rocketpy.remoting.network.acceptor import Acceptor
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint, Listening
from rocketpy.testing.sim_loop import SimLoop
from rocketpy.testing.sim_transport import SimConnection, SimTransport

_FIRST_PORT: Final = 40_000


class SimNetwork:
    """All hosts and the connections between them.

    Args:
        loop: loop of the simulation; its seed decides delays and faults.
        latency_ms: least and most delay of a piece of bytes, one way.

    Attributes:
        latency_ms: least and most delay; may be changed at any time.
        connections: connections open on at least one side, oldest first.
    """

    def __init__(self, loop: SimLoop, *, latency_ms: tuple[float, float] = (0.1, 2.0)) -> None:
        self.loop = loop
        self.latency_ms = latency_ms
        self.connections: list[SimConnection] = []
        self._numbers = itertools.count(1)
        self._hosts: dict[str, SimHost] = {}
        self._groups: list[frozenset[str]] = []

    def host(self, name: str) -> "SimHost":
        """Return the host with a name; creates it if it does not exist."""
        if name not in self._hosts:
            self._hosts[name] = SimHost(self, name)
        return self._hosts[name]

    def partition(self, *groups: Iterable[str]) -> None:
        """Partition hosts into groups without connectivity; hosts in no group reach all."""
        self._groups = [frozenset(group) for group in groups]

    def heal(self) -> None:
        """End the partition; waiting data is delivered."""
        self._groups = []
        for connection in list(self.connections):
            connection.wake()

    def can_pass(self, one: str, other: str) -> bool:
        """Return whether two hosts can reach each other."""
        homes = [
            {number for number, group in enumerate(self._groups) if name in group}
            for name in (one, other)
        ]
        return not all(homes) or homes[0] == homes[1]

    def cut(self, connection: "SimConnection") -> None:
        """Reset a connection; any prefix of the data in transit still arrives."""
        connection.cut()

    def cut_one(self) -> bool:
        """Cut a random connection; returns False without one."""
        if self.connections:
            self.cut(self.loop.rng.choice(self.connections))
        return bool(self.connections)

    def open(self, client: tuple["SimHost", int], server: tuple["SimHost", int]) -> SimConnection:
        """Open a connection between two hosts."""
        connection = SimConnection(self, next(self._numbers), client, server)
        self.connections.append(connection)
        return connection

    def closed(self, connection: SimConnection) -> None:
        """Remove a connection that is closed on both sides."""
        if connection in self.connections:
            self.connections.remove(connection)

    def ends_of(self, host: "SimHost") -> list[SimTransport]:
        """Return the ends of connections on a host."""
        ends = [end for connection in self.connections for end in connection.ends]
        return [end for end in ends if end.machine is host and not end.is_gone]

    def delay_s(self) -> float:
        """Draw the delay of a piece."""
        return self.loop.rng.uniform(*self.latency_ms) / 1_000


class SimHost:
    """Simulated machine; satisfies `rocketpy.remoting.network.network.Network`.

    Attributes:
        name: also its address.
        is_up: False between `lose_power` and `boot`.
        read_bytes_per_s: read rate of its programs; None for no limit.
    """

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name
        self.is_up: bool = True
        self.read_bytes_per_s: int | None = None
        self.listening: dict[int, SimListening] = {}
        self._ports = itertools.count(_FIRST_PORT)

    def __repr__(self) -> str:
        """The name."""
        return f"<SimHost {self.name}>"

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> Listening:
        """Open a port; all selectors share the loop.

        Raises:
            StartError: the port is taken.
        """
        port = endpoint.port or next(self._ports)
        if port in self.listening:
            raise StartError(
                f"port {port} on {self.name} is taken: stop the program that listens there "
                f"or change {endpoint.port_key}"
            )
        for selector in selectors:
            selector.bind(self.network.loop)
        listening = self.listening[port] = SimListening(self, port, selectors, admission)
        return listening

    async def connect(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Open a connection.

        Raises:
            OSError: the connection is refused, or uses TLS, which is not simulated.
        """
        if tls is not None:
            raise OSError(errno.EPROTONOSUPPORT, "the simulated network has no TLS")
        peer = self.network.host(host)
        await asyncio.sleep(self.network.delay_s())
        while not (peer.is_up and self.network.can_pass(self.name, host)):  # noqa: ASYNC110
            await asyncio.sleep(1.0)  # retry a silent peer, as the kernel does with SYN
        listening = peer.listening.get(port)
        await asyncio.sleep(self.network.delay_s())
        if listening is None or not listening.admits(self.name):
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses")
        connection = self.network.open((self, next(self._ports)), (peer, port))
        listening.accept(connection.ends[1])
        connection.ends[0].start(make_protocol())

    def kill_process(self) -> None:
        """Kill the process: the kernel closes its ports and resets its connections."""
        self.listening.clear()
        for end in self.network.ends_of(self):
            end.vanish()
            end.peer.cut()

    def lose_power(self) -> None:
        """Lose power: peers are not notified."""
        self.is_up = False
        self.listening.clear()
        for end in self.network.ends_of(self):
            end.vanish()

    def boot(self) -> None:
        """Boot the machine, without its old connections."""
        self.is_up = True
        for connection in list(self.network.connections):
            connection.wake()


class SimListening:
    """An open port; satisfies `rocketpy.remoting.network.network.Listening`."""

    def __init__(
        self, host: SimHost, port: int, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> None:
        self._host = host
        self._port = port
        self._selectors = selectors
        self._admission = admission
        self._next = 0
        self._context = contextvars.copy_context()

    @property
    def port(self) -> int:
        """Address of the port."""
        return self._port

    def admits(self, ip: str) -> bool:
        """Return whether a connection is admitted."""
        return self._context.copy().run(self._admission.admit, ip)

    def accept(self, end: SimTransport) -> None:
        """Pass an admitted connection to a selector, in the server's process."""
        selector = self._selectors[self._next % len(self._selectors)]
        self._next += 1
        self._context.copy().run(self._start, selector, end)

    @staticmethod
    def _start(selector: Acceptor[Any], end: SimTransport) -> None:
        try:
            protocol = selector.new_connection(end.peer.machine.name)
        except ConnectionRefusedError:
            end.refuse()
        else:
            end.start(protocol)

    def stop_accepting(self) -> None:
        """Release the port."""
        if self._host.listening.get(self._port) is self:
            del self._host.listening[self._port]

    async def drain(self, grace_ms: int) -> None:
        """Drain every selector."""
        await asyncio.gather(*(selector.drain(grace_ms) for selector in self._selectors))
