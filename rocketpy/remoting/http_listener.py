"""Small HTTP/1.1 listener for health checks and metrics, on a separate thread and loop.

It answers GET requests for a few fixed paths, one request per connection. The thread answers while
the loop of the server is busy, as in a recovery. Everything is bounded: connections, the size of a
request head, and the time until it is complete.
"""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias

from rocketpy.errors import StartError

_log = logging.getLogger(__name__)

_CONNECTIONS_MAX: Final = 16
_HEAD_BYTES_MAX: Final = 8_192
_HEAD_TIMEOUT_S: Final = 5.0
_STOP_TIMEOUT_S: Final = 2.0
_ACCEPT_PAUSE_S: Final = 0.1
_JSON: Final = "application/json"


class HttpAnswer(NamedTuple):
    """Answer to a GET request.

    Attributes:
        status: code of the status line.
        body: content.
        content_type: its type.
    """

    status: HTTPStatus
    body: bytes
    content_type: str = _JSON


Page: TypeAlias = Callable[[], Awaitable[HttpAnswer]]
"""Makes the answer for a path; called on the listener's thread."""


class HttpListener:
    """Listener on one address.

    Args:
        address: local address.
        port: 0 chooses a free one.
        pages: pages by path, which begins with a slash.
        advice: what to do when the port cannot be opened.
    """

    def __init__(
        self,
        address: str,
        port: int,
        pages: Mapping[str, Page],
        *,
        advice: str = "change healthListenPort or healthBindAddress",
    ) -> None:
        self.port: int = port
        self._address = address
        self._pages = pages
        self._advice = advice
        self._connections: dict[_HttpConnection, None] = {}  # the oldest first
        self._tasks: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event
        self._has_started = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="http-listener", daemon=True)

    def start(self) -> None:
        """Listen; returns when the port is open.

        Raises:
            StartError: the port is taken, or the address is not of this machine.
        """
        self._thread.start()
        self._has_started.wait()
        if self._error is not None:
            self._thread.join()
            raise StartError(
                f"cannot listen on {self._address}:{self.port} for health checks: "
                f"{self._error.strerror}; {self._advice}"
            ) from self._error

    def stop(self) -> None:
        """Close the port and every connection; idempotent, also before `start`."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        try:
            listening = socket.create_server((self._address, self.port), family=family)
        except OSError as error:
            self._error = error
            self._has_started.set()
            return
        with listening:
            listening.setblocking(False)
            self.port = listening.getsockname()[1]
            self._loop = asyncio.get_running_loop()
            self._has_started.set()
            self._listen(listening)
            await self._stopping.wait()
            self._loop.remove_reader(listening)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_STOP_TIMEOUT_S / 2)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)  # closes their sockets

    def _listen(self, listening: socket.socket) -> None:
        """Accept connections from now on."""
        # Neither a server of asyncio nor `sock_accept`: when they are stopped, both may lose a
        # connection that was just accepted, and leave it open.
        if self._loop is not None and not self._stopping.is_set():
            self._loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        assert self._loop is not None
        try:
            peer, _ = listening.accept()
        except BlockingIOError:  # the peer is gone already
            return
        except OSError as error:  # no descriptor is left
            _log.warning("health connection not accepted: reason=%s", error)
            self._loop.remove_reader(listening)
            self._loop.call_later(_ACCEPT_PAUSE_S, self._listen, listening)
            return
        peer.setblocking(False)
        attaching = self._loop.connect_accepted_socket(lambda: _HttpConnection(self), peer)
        task = asyncio.ensure_future(attaching)
        # In a callback, because a task that is cancelled before its first step runs no handler.
        task.add_done_callback(lambda done: _close_unless_attached(peer, done))
        self._keep(task)

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- called by connections, on the listener's loop

    def opened(self, connection: "_HttpConnection") -> None:
        """Count a connection; the oldest one makes room for it, so that probes are answered."""
        self._connections[connection] = None
        if len(self._connections) > _CONNECTIONS_MAX:
            next(iter(self._connections)).abort()

    def closed(self, connection: "_HttpConnection") -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)

    def answer(self, connection: "_HttpConnection", path: str) -> None:
        """Make the answer for a path, and write it."""
        self._keep(asyncio.ensure_future(self._answer(connection, path)))

    async def _answer(self, connection: "_HttpConnection", path: str) -> None:
        page = self._pages.get(path)
        if page is None:
            connection.finish(_plain(HTTPStatus.NOT_FOUND))
            return
        try:
            connection.finish(await page())
        except Exception:  # noqa: BLE001 - dispatch: becomes status 500, the listener stays
            _log.exception("page failed: path=%s", path)
            connection.finish(_plain(HTTPStatus.INTERNAL_SERVER_ERROR))


class _HttpConnection(asyncio.Protocol):
    """Connection that answers one request and closes."""

    def __init__(self, owner: HttpListener) -> None:
        self._owner = owner
        self._head = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._owner.opened(self)
        # Also bounds a peer that does not read the answer.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_HEAD_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answer once the head is complete; what follows it is ignored."""
        if self._is_answered:
            return
        self._head += data
        head, end, _ = self._head.partition(b"\r\n\r\n")
        if len(head) > _HEAD_BYTES_MAX:
            self.finish(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif end:
            self._answer(head.partition(b"\r\n")[0])

    def _answer(self, line: bytes) -> None:
        words = line.decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self.finish(_plain(HTTPStatus.BAD_REQUEST))
        elif words[0] != "GET":
            self.finish(_plain(HTTPStatus.METHOD_NOT_ALLOWED), "Allow: GET\r\n")
        else:
            self._is_answered = True
            self._owner.answer(self, words[1].partition("?")[0])

    def connection_lost(self, _exc: Exception | None) -> None:
        """Forget the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._owner.closed(self)

    def finish(self, answer: HttpAnswer, header: str = "") -> None:
        """Write the answer and close."""
        self._is_answered = True
        status = answer.status
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(answer.body)}\r\n"
            f"Cache-Control: no-store\r\n{header}Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + answer.body)
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()


def _close_unless_attached(peer: socket.socket, attaching: asyncio.Future[Any]) -> None:
    if attaching.cancelled():
        peer.close()
    elif attaching.exception() is not None:
        peer.close()
        _log.warning("health connection lost: reason=%s", attaching.exception())


def _plain(status: HTTPStatus) -> HttpAnswer:
    return HttpAnswer(status, f"{status.phrase}\n".encode(), "text/plain; charset=utf-8")
