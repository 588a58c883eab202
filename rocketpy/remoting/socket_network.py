"""The real network: TCP sockets, a boss that accepts, one loop or several threads of loops.

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

from rocketpy.errors import ProtocolError, StartError
from rocketpy.remoting.admission import Admission
from rocketpy.remoting.boss import Boss
from rocketpy.remoting.connection import Connection
from rocketpy.remoting.event_loop import new_event_loop
from rocketpy.remoting.first_bytes import read_opening
from rocketpy.remoting.network import ListenEndpoint, Listening
from rocketpy.remoting.paced_transport import PacedTransport
from rocketpy.remoting.selector import Selector
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.descriptors import DescriptorGauge

_log = logging.getLogger(__name__)


class SocketNetwork:
    """Listens and connects with the machine's sockets."""

    async def listen(
        self, endpoint: ListenEndpoint, selectors: Sequence[Selector], admission: Admission
    ) -> Listening:
        """Open a port; one selector lives on the running loop, several get a thread each.

        Raises:
            StartError: the port is taken, or the address is not ours.
        """
        return SocketListening(_listening_socket(endpoint), endpoint, selectors, admission)

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
            make_protocol if tls is None else lambda: PacedTransport(make_protocol()),
            host,
            port,
            ssl=tls,
            server_hostname=host if tls is not None else None,
        )


class SocketListening:
    """A listening socket, its boss, and where the selectors run."""

    def __init__(
        self,
        listener: socket.socket,
        endpoint: ListenEndpoint,
        selectors: Sequence[Selector],
        admission: Admission,
    ) -> None:
        """Start accepting on the running loop."""
        self._port: int = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._adopt = functools.partial(adopt, endpoint)
        self._own_selector = selectors[0]
        self._threads: list[SelectorThread] = []
        self._next_thread = 0
        if len(selectors) == 1:
            self._own_selector.bind(loop)
        else:
            for index, selector in enumerate(selectors):
                thread = SelectorThread(selector, f"{endpoint.name}-selector-{index}")
                self._threads.append(thread)
                thread.start()
        descriptors = DescriptorGauge(SystemClock())
        self._boss = Boss(listener, admission, self._hand_over, descriptors)
        self._boss.start(loop)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    def stop_accepting(self) -> None:
        """Accept nothing more and give the port back."""
        self._boss.stop()

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
            thread.call(self._adopt, thread.selector, sock, ip, is_crowded)
        else:
            self._adopt(self._own_selector, sock, ip, is_crowded)


def adopt(
    endpoint: ListenEndpoint, selector: Selector, sock: socket.socket, ip: str, is_crowded: bool
) -> None:
    """Give an admitted socket to a selector; on the selector's loop."""
    try:
        connection = selector.new_connection(ip, is_crowded=is_crowded)
    except ConnectionRefusedError:
        sock.close()
    else:
        opening = selector.open(connection, _open(endpoint, selector, connection, sock, ip))

        def ended(task: "asyncio.Future[None]") -> None:
            if task.cancelled():  # perhaps before its first step
                _never_opened(connection, sock, None)

        opening.add_done_callback(ended)


async def _open(
    endpoint: ListenEndpoint,
    selector: Selector,
    connection: Connection,
    sock: socket.socket,
    ip: str,
) -> None:
    """Give a connection its transport, over TLS where the peer begins with it."""
    timeout_s = endpoint.first_bytes_timeout_ms / 1000 or None
    context: ssl.SSLContext | None = None
    try:
        if endpoint.tls is not None or not endpoint.plain_allowed or endpoint.proxy_protocol:
            async with asyncio.timeout(timeout_s):
                opening = await read_opening(sock, proxy_protocol=endpoint.proxy_protocol)
            connection.proxied_source = opening.source
            context = _context(endpoint, is_tls=opening.is_tls)
        await selector.loop.connect_accepted_socket(
            lambda: connection if context is None else PacedTransport(connection),
            sock,
            ssl=context,
            ssl_handshake_timeout=timeout_s if context is not None else None,
        )
    except (OSError, ProtocolError) as error:  # TLS errors and time-outs are OSErrors
        if not isinstance(error, ConnectionError):
            _log.warning("connection refused peer=%s reason=%s", ip, error)
        _never_opened(connection, sock, error)


def _context(endpoint: ListenEndpoint, *, is_tls: bool) -> ssl.SSLContext | None:
    """Return the TLS context to open a connection with.

    Raises:
        ProtocolError: the peer speaks what is not allowed.
    """
    if is_tls and endpoint.tls is None:
        raise ProtocolError("TLS is disabled")
    if not is_tls and not endpoint.plain_allowed:
        raise ProtocolError("plain text where tls.server.mode is enforcing")
    return endpoint.tls if is_tls else None


def _never_opened(connection: Connection, sock: socket.socket, error: Exception | None) -> None:
    if not connection.is_attached:
        sock.close()
        connection.connection_lost(error)


class SelectorThread:
    """A selector with a thread and loop of its own."""

    def __init__(self, selector: Selector, name: str) -> None:
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
        StartError: the port is taken, or the address is not ours.
    """
    address, port = endpoint.address, endpoint.port
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if endpoint.send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, endpoint.send_buffer_bytes)
        if endpoint.receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, endpoint.receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(endpoint.backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} on {address} is taken: stop who listens there or change listenPort"
        else:
            why = f"cannot listen on {address} port {port}: {error.strerror or error}"
        raise StartError(why) from error
    return sock
