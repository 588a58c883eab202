"""Interface between remoting and the network: listening and connecting.

Everything above it (selectors, connections, channels) knows transports and event loops only, never
sockets or threads, so it runs the same over a simulated network, on one loop, in virtual time.
`remoting/network/socket_network.py` is the real network; `rocketpy.testing` has the simulated one.

A transport is an `asyncio.Transport`. Its extra info `peername` (IP address, port) names the peer.
"""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rocketpy.remoting.network.acceptor import Acceptor
from rocketpy.remoting.network.admission import Admission


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenEndpoint:
    """Address and options of a listening server.

    Attributes:
        name: of the server, for thread names.
        address: IP address to bind.
        port: TCP port; 0 for any free one.
        backlog: connections that may wait to be accepted.
        send_buffer_bytes: SO_SNDBUF of accepted connections; 0 leaves it to the kernel.
        receive_buffer_bytes: SO_RCVBUF of accepted connections; 0 leaves it to the kernel.
        tls: returns the context for a peer that speaks TLS; None refuses them.
        plain_allowed: whether peers may go without TLS.
        plain_forbidden_by: the setting that forbids it, for the log.
        proxy_protocol: whether a PROXY header may come first and name the client.
        first_bytes_timeout_ms: how long a peer may take to say what it speaks, and for the TLS
            handshake, where one of these three is in force; 0 is no limit.
        port_key: key of the port, for the error about one that is taken.
    """

    name: str
    address: str
    port: int
    backlog: int = 1024
    send_buffer_bytes: int = 0
    receive_buffer_bytes: int = 0
    tls: Callable[[], ssl.SSLContext] | None = None
    plain_allowed: bool = True
    plain_forbidden_by: str = "tls.server.mode is enforcing"
    proxy_protocol: bool = False
    first_bytes_timeout_ms: int = 0
    port_key: str = "listenPort"


class Listening(Protocol):
    """An open port and the selectors behind it."""

    @property
    def port(self) -> int:
        """Port of the server."""
        ...

    def stop_accepting(self) -> None:
        """Stop accepting and release the port."""
        ...

    async def drain(self, grace_ms: int) -> None:
        """Drain every selector (`Selector.drain`) and end its thread; after `stop_accepting`."""
        ...


class Network(Protocol):
    """Network of a server or client."""

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> Listening:
        """Open a port and give its connections to the selectors in turn.

        Each selector is bound to the loop it is to live on (`Selector.bind`, on that loop) before
        it gets a connection. For each new peer: ask `admission.admit`; when it says yes, take a
        protocol from `Selector.new_connection` and give it a transport, on the selector's loop;
        when either says no, close.

        Raises:
            StartError: the port is taken, or the address is not ours.
        """
        ...

    async def connect(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Open a connection on the running loop; returns once `connection_made` was called.

        Args:
            make_protocol: returns the protocol that gets the transport.
            host: name or IP address.
            port: TCP port.
            tls: speak TLS with this context; None for plain text.

        Raises:
            OSError: refused, unreachable, no such host, or TLS failed.
        """
        ...
