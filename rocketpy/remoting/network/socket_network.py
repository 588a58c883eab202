"""Network of sockets: a boss that accepts, one loop or several threads with loops.

Source: the boss and selector event loop groups of NettyRemotingServer (5.4.0).
"""

import asyncio
import errno
import functools
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rocketpy.errors import ProtocolError, StartError
from rocketpy.remoting.network.acceptor import AcceptedProtocol, Acceptor
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.boss import Boss
from rocketpy.remoting.network.event_loop import new_event_loop
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.remoting.network.protocol_detection import read_opening
from rocketpy.remoting.network.tls_transport import TlsTransport
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.os_resources import DescriptorGauge

_log = logging.getLogger(__name__)


Around = Callable[[asyncio.Protocol], asyncio.Protocol]
"""Wraps a protocol: the result is the protocol of the transport, and its transport."""


class SocketNetwork:
    """Network with the sockets of the machine.

    Args:
        around: wraps each accepted connection; None for none. For tests.
    """

    def __init__(self, *, around: Around | None = None) -> None:
        self._around = around

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Acceptor[Any]], admission: Admission
    ) -> "SocketListening":
        """Open a port; one selector lives on the running loop, several get a thread each.

        Raises:
            StartError: the port is taken, or the address is not of this machine.
        """
        return SocketListening(endpoint, selectors, admission, self._around)

    async def connect(
        self,
        make_protocol: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Open a connection on the running loop.

        Raises:
            OSError: refused, unreachable, no such host, or TLS failed.
        """
        await asyncio.get_running_loop().create_connection(
            make_protocol if tls is None else lambda: TlsTransport(make_protocol()),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls is not None else None,
        )


class SocketListening:
    """Listening socket, its boss, and the threads of the selectors."""

    def __init__(
        self,
        endpoint: ListenEndpoint,
        selectors: Sequence[Acceptor[Any]],
        admission: Admission,
        around: Around | None = None,
    ) -> None:
        """Start accepting on the running loop.

        Raises:
            StartError: the port is taken, or the address is not of this machine.
        """
        listener = _listening_socket(endpoint)
        self._port: int = listener.getsockname()[1]
        self._endpoint = endpoint
        self._admission = admission
        self._adopt = functools.partial(adopt, endpoint, around)
        self._own_selector = selectors[0]
        self._threads: list[SelectorThread] = []
        self._next_thread = 0
        if len(selectors) == 1:
            self._own_selector.bind(asyncio.get_running_loop())
        else:
            for index, selector in enumerate(selectors):
                thread = SelectorThread(selector, f"{endpoint.name}-selector-{index}")
                self._threads.append(thread)
                thread.start()
        self._descriptors = DescriptorGauge(SystemClock())
        self._boss = self._accepting(listener)

    @property
    def port(self) -> int:
        """Port of the server."""
        return self._port

    def stop_accepting(self) -> None:
        """Stop accepting and release the port."""
        self._boss.stop()

    def accept_again(self) -> None:
        """Open the port again, after `stop_accepting`; on the loop that listened.

        Raises:
            StartError: it is taken.
        """
        self._boss = self._accepting(_listening_socket(replace(self._endpoint, port=self._port)))

    def _accepting(self, listener: socket.socket) -> Boss:
        boss = Boss(listener, self._admission, self._hand_over, self._descriptors)
        boss.start(asyncio.get_running_loop())
        return boss

    async def drain(self, grace_ms: int) -> None:
        """Drain the selectors and end their threads."""
        if self._threads:
            await asyncio.gather(*(thread.stop(grace_ms) for thread in self._threads))
            self._threads.clear()
        else:
            await self._own_selector.drain(grace_ms)

    def _hand_over(self, sock: socket.socket, ip: str, is_crowded: bool) -> None:
        if self._threads:
            thread = self._threads[self._next_thread]
            self._next_thread = (self._next_thread + 1) % len(self._threads)
            # Round robin: connections live long, so their load evens out.
            thread.call(self._adopt, thread.selector, sock, ip, is_crowded)
        else:
            self._adopt(self._own_selector, sock, ip, is_crowded)


def adopt(
    endpoint: ListenEndpoint,
    around: Around | None,
    selector: Acceptor[Any],
    sock: socket.socket,
    ip: str,
    is_crowded: bool,
) -> None:
    """Give an admitted socket to a selector; on the selector's loop."""
    try:
        connection = selector.new_connection(ip, is_crowded=is_crowded)
    except ConnectionRefusedError:
        sock.close()
    else:
        opening = selector.open(connection, _open(endpoint, around, selector, connection, sock, ip))

        def ended(task: "asyncio.Future[None]") -> None:
            if task.cancelled():  # perhaps before its first step
                _never_opened(connection, sock, None)

        opening.add_done_callback(ended)


async def _open(
    endpoint: ListenEndpoint,
    around: Around | None,
    selector: Acceptor[Any],
    connection: AcceptedProtocol,
    sock: socket.socket,
    ip: str,
) -> None:
    """Give a connection its transport, over TLS where the peer starts a handshake."""
    timeout_s = endpoint.first_bytes_timeout_ms / 1000 or None
    context: ssl.SSLContext | None = None
    try:
        if endpoint.tls is not None or not endpoint.plain_allowed or endpoint.proxy_protocol:
            async with asyncio.timeout(timeout_s):
                opening = await read_opening(sock, proxy_protocol=endpoint.proxy_protocol)
            connection.proxied_source = opening.source
            context = _context(endpoint, is_tls=opening.is_tls)
        protocol = connection if context is None else TlsTransport(connection)
        await selector.loop.connect_accepted_socket(
            lambda: protocol if around is None else around(protocol),
            sock,
            ssl=context,
            ssl_handshake_timeout=timeout_s if context is not None else None,
        )
    except (OSError, ProtocolError) as error:  # TLS errors and time-outs are OSErrors
        # Peers that leave are normal and would fill the log.
        if not isinstance(error, ConnectionError):
            _log.warning("connection rejected: peer=%s reason=%s", ip, error)
        _never_opened(connection, sock, error)


def _context(endpoint: ListenEndpoint, *, is_tls: bool) -> ssl.SSLContext | None:
    """Return the TLS context to open a connection with.

    Raises:
        ProtocolError: the protocol of the peer is not allowed.
    """
    if is_tls and endpoint.tls is None:
        raise ProtocolError("TLS is disabled")
    if not is_tls and not endpoint.plain_allowed:
        raise ProtocolError(f"plain text is refused: {endpoint.plain_forbidden_by}")
    return endpoint.tls() if is_tls and endpoint.tls is not None else None


def _never_opened(
    connection: AcceptedProtocol, sock: socket.socket, error: Exception | None
) -> None:
    if not connection.is_attached:
        sock.close()
        connection.connection_lost(error)


class SelectorThread:
    """Thread and event loop of one selector."""

    def __init__(self, selector: Acceptor[Any], name: str) -> None:
        self.selector = selector
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; sockets may be handed over at once."""
        self._thread.start()

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function on the selector's loop; from any thread."""
        self._loop.call_soon_threadsafe(function, *args)

    async def stop(self, grace_ms: int) -> None:
        """Drain the selector, then end its loop and thread."""
        call = asyncio.run_coroutine_threadsafe(self.selector.drain(grace_ms), self._loop)
        await asyncio.wrap_future(call)
        # After the drain: its last callbacks must have run.
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2.0)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self.selector.bind, self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()


def _listening_socket(endpoint: ListenEndpoint) -> socket.socket:
    """Return a non-blocking listening socket.

    Raises:
        StartError: the port is taken, or the address is not of this machine.
    """
    address, port = endpoint.address, endpoint.port
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted broker must not wait for connections in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, endpoint.send_buffer_bytes)
        # Before `listen`: accepted sockets inherit both sizes.
        if endpoint.receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, endpoint.receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(endpoint.backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            why = (
                f"port {port} on {address} is taken: stop the program that listens there "
                f"or change {endpoint.port_key}"
            )
        else:
            why = f"cannot listen on {address} port {port}: {error.strerror or error}"
        raise StartError(why) from error
    return sock
