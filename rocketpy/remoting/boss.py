"""The boss: accepts connections, keeps to the limits, hands sockets to the selectors in turn.

Limits are checked before anything is built for a connection, so that a flood costs an accept and
a close each.

Source: the boss event loop group of NettyRemotingServer (5.4.0); the limits are ours.
"""

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable

from rocketpy.errors import StartError
from rocketpy.runtime.clock import Clock

_log = logging.getLogger(__name__)

_ACCEPTS_PER_WAKE_UP = 64
_REFUSAL_LOG_INTERVAL_MS = 1_000
_NO_RESOURCES_PAUSE_S = 1.0
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionTally:
    """How many connections there are, in all and by address; any thread."""

    def __init__(self, max_count: int, max_per_ip_count: int) -> None:
        """Set the limits; 0 is no limit."""
        self._max_count = max_count
        self._max_per_ip_count = max_per_ip_count
        self._lock = threading.Lock()
        self._by_ip: dict[str, int] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """Connections there are."""
        return self._count

    def admit(self, ip: str) -> str | None:
        """Count one more connection; return why not when a limit is reached."""
        with self._lock:
            if self._count >= self._max_count > 0:
                return f"{self._max_count} connections are open (serverMaxConnections)"
            of_ip_count = self._by_ip.get(ip, 0)
            if of_ip_count >= self._max_per_ip_count > 0:
                return f"{of_ip_count} connections from {ip} (serverMaxConnectionsPerIp)"
            self._by_ip[ip] = of_ip_count + 1
            self._count += 1
            return None

    def release(self, ip: str) -> None:
        """Count one connection less."""
        with self._lock:
            self._count -= 1
            left_count = self._by_ip[ip] - 1
            if left_count:
                self._by_ip[ip] = left_count
            else:
                del self._by_ip[ip]


class Boss:
    """Accepts on the main loop."""

    def __init__(
        self,
        listener: socket.socket,
        tally: ConnectionTally,
        hand_over: Callable[[socket.socket, str], None],
        clock: Clock,
    ) -> None:
        """Take a listening socket.

        Args:
            listener: non-blocking, already listening; closed by ``stop``.
            tally: counts and limits.
            hand_over: gets each admitted socket and its IP address; must ``release`` it later.
            clock: for the pace of refusal logs.
        """
        self._listener = listener
        self._tally = tally
        self._hand_over = hand_over
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refused_count = 0
        self._refusal_logged_ms: int | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Accept on this loop from now on."""
        self._loop = loop
        loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Accept nothing more and give the port back."""
        if self._loop is not None:
            self._loop.remove_reader(self._listener)
            self._loop = None
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                self._pause(error)
                return
            ip = address[0]
            refusal = self._tally.admit(ip)
            if refusal is None:
                sock.setblocking(False)
                self._hand_over(sock, ip)
            else:
                sock.close()
                self._log_refusal(refusal)

    def _pause(self, error: OSError) -> None:
        """Out of descriptors or memory: the connection stays in the backlog, try again soon."""
        assert self._loop is not None
        _log.error("cannot accept, pausing error=%s", error)
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_NO_RESOURCES_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self._listener, self._accept)

    def _log_refusal(self, refusal: str) -> None:
        self._refused_count += 1
        now_ms = self._clock.monotonic_ms()
        last_ms = self._refusal_logged_ms
        if last_ms is None or now_ms - last_ms >= _REFUSAL_LOG_INTERVAL_MS:
            self._refusal_logged_ms = now_ms
            _log.warning("connections refused count=%d reason=%s", self._refused_count, refusal)
            self._refused_count = 0


def listen(
    address: str, port: int, *, backlog: int, send_buffer_bytes: int, receive_buffer_bytes: int
) -> socket.socket:
    """Return a non-blocking listening socket.

    Args:
        address: IP address to bind.
        port: 0 for any free one.
        backlog: connections the kernel may queue.
        send_buffer_bytes: SO_SNDBUF of accepted sockets; 0 leaves it to the kernel.
        receive_buffer_bytes: SO_RCVBUF of accepted sockets; 0 leaves it to the kernel.

    Raises:
        StartError: the port is taken, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if send_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.setblocking(False)
        sock.bind((address, port))
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            why = f"port {port} on {address} is taken: stop who listens there or change listenPort"
        else:
            why = f"cannot listen on {address} port {port}: {error.strerror or error}"
        raise StartError(why) from error
    return sock
