import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest

from rocketpy.errors import StartError
from rocketpy.remoting.http_listener import HttpAnswer, HttpListener, Page


@contextmanager
def listening(**pages: Page) -> Iterator[int]:
    listener = HttpListener("127.0.0.1", 0, {f"/{name}": page for name, page in pages.items()})
    listener.start()
    try:
        yield listener.port
    finally:
        listener.stop()


def page(status: HTTPStatus = HTTPStatus.OK, body: bytes = b"{}") -> Page:
    async def answer() -> HttpAnswer:
        return HttpAnswer(status, body)

    return answer


def asked(port: int, method: str, target: str) -> tuple[int, str | None, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        return response.status, response.getheader("Content-Type"), response.read()
    finally:
        connection.close()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as peer:
        peer.sendall(data)
        received = b""
        while chunk := peer.recv(4096):
            received += chunk
        return received


def test_http_listener_answers_its_pages() -> None:
    failing = page(HTTPStatus.SERVICE_UNAVAILABLE, b'{"ready":false}')
    with listening(live=page(), ready=failing) as port:
        assert asked(port, "GET", "/live") == (200, "application/json", b"{}")
        assert asked(port, "GET", "/live?verbose=1")[0] == 200
        assert asked(port, "GET", "/ready") == (503, "application/json", b'{"ready":false}')


def test_http_listener_refuses_other_paths_and_methods() -> None:
    with listening(live=page()) as port:
        assert asked(port, "GET", "/")[0] == 404
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            assert asked(port, method, "/live")[0] == 405
        assert b"\r\nAllow: GET\r\n" in raw(port, b"POST /live HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n\r\n", b"400"),
        (b"GET\r\n\r\n", b"400"),
        (b"GET /live\r\n\r\n", b"400"),
        (b"GET /live HTTP/2.0\r\n\r\n", b"400"),
        (b"\xff\xfe\x00 \xff \xff\r\n\r\n", b"400"),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 9_000, b"431"),
        (b"GET /live HTTP/1.0\r\n\r\n", b"200"),
        (b"GET /live HTTP/1.1\r\n\r\nGET /live HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_http_listener_answers_each_request_head_once(data: bytes, status: bytes) -> None:
    with listening(live=page()) as port:
        answer = raw(port, data)
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.count(b"HTTP/1.1") == 1


def test_http_listener_failing_page_is_status_500_and_the_listener_stays() -> None:
    async def broken() -> HttpAnswer:
        raise ValueError("no")

    with listening(broken=broken, live=page()) as port:
        assert asked(port, "GET", "/broken")[0] == 500
        assert asked(port, "GET", "/live")[0] == 200


def test_http_listener_full_of_idle_connections_closes_the_oldest_and_answers() -> None:
    with listening(live=page()) as port, contextlib.ExitStack() as closing:
        idle = [
            closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
            for _ in range(16)
        ]
        for number in range(3):
            assert asked(port, "GET", "/live")[0] == 200
            with contextlib.suppress(ConnectionResetError):
                assert idle[number].recv(1) == b""


def test_http_listener_taken_port_is_a_start_error() -> None:
    with listening() as port:
        with pytest.raises(StartError, match="healthListenPort"):
            HttpListener("127.0.0.1", port, {}).start()


def test_http_listener_stop_closes_the_port_and_ends_the_thread() -> None:
    before = threading.active_count()
    listener = HttpListener("127.0.0.1", 0, {})
    listener.stop()
    listener = HttpListener("127.0.0.1", 0, {})
    listener.start()
    peer = socket.create_connection(("127.0.0.1", listener.port), timeout=30)
    listener.stop()
    listener.stop()
    with peer:
        assert peer.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", listener.port), timeout=30)
    assert threading.active_count() == before
