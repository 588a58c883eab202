"""TLS transport: output is fed to TLS in pieces, as the peer takes them."""

import asyncio

import pytest

from rocketpy.remoting.network.tls_transport import PIECE_BYTES, TlsTransport


class Tls(asyncio.Transport):
    """TLS transport that holds output until the peer takes it; full at two pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.waiting = bytearray()
        self.is_closed = self.is_aborted = False
        self.biggest_write = 0
        self.protocol: TlsTransport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.biggest_write = max(self.biggest_write, len(data))
        self.waiting += data
        if len(self.waiting) >= 2 * PIECE_BYTES:
            self.protocol.pause_writing()

    def peer_takes_all(self) -> None:
        was_full = len(self.waiting) >= 2 * PIECE_BYTES
        self.sent += self.waiting
        self.waiting.clear()
        if was_full:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted


class App(asyncio.Protocol):
    """Protocol that notes its calls."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def data_received(self, data: bytes) -> None:
        self.events.append(f"data {data.decode()}")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def tls() -> Tls:
    return Tls()


@pytest.fixture
def paced(app: App, tls: Tls) -> TlsTransport:
    paced = tls.protocol = TlsTransport(app)
    paced.connection_made(tls)
    paced.set_write_buffer_limits(8 * PIECE_BYTES, PIECE_BYTES)
    return paced


def test_tls_transport_keeps_output_of_slow_peer_in_counted_queue(
    paced: TlsTransport, app: App, tls: Tls
) -> None:
    frame = bytes(range(256)) * (PIECE_BYTES // 16)  # 16 pieces
    paced.write(frame)
    assert len(tls.waiting) == 2 * PIECE_BYTES
    assert tls.biggest_write == PIECE_BYTES
    assert paced.get_write_buffer_size() == len(frame)
    assert app.events == ["pause"]
    while tls.waiting:
        tls.peer_takes_all()
    assert tls.sent == frame
    assert app.events == ["pause", "resume"]


def test_tls_transport_keeps_order_of_small_frames_behind_big_one(
    paced: TlsTransport, tls: Tls
) -> None:
    big = b"b" * (3 * PIECE_BYTES + 1)
    for frame in (b"first", big, b"second", b"third"):
        paced.write(frame)
    while tls.waiting:
        tls.peer_takes_all()
    assert tls.sent == b"first" + big + b"secondthird"


def test_tls_transport_resumes_protocol_when_queue_is_empty(
    paced: TlsTransport, app: App, tls: Tls
) -> None:
    paced.set_write_buffer_limits(1, 0)
    paced.write(b"x" * (2 * PIECE_BYTES + 1))
    assert app.events == ["pause"]
    tls.peer_takes_all()
    assert tls.waiting == b"x", "less than fills it: no word from it any more"
    assert app.events == ["pause", "resume"]


def test_tls_transport_close_sends_queue_and_stops_reading(
    paced: TlsTransport, app: App, tls: Tls
) -> None:
    paced.write(b"x" * (3 * PIECE_BYTES))
    paced.close()
    assert paced.is_closing()
    assert not tls.is_closed
    paced.data_received(b"late")
    paced.write(b"late")
    tls.peer_takes_all()
    assert tls.is_closed
    tls.peer_takes_all()
    assert tls.sent == b"x" * (3 * PIECE_BYTES)
    assert app.events == []


def test_tls_transport_abort_and_loss_drop_queue(paced: TlsTransport, app: App, tls: Tls) -> None:
    paced.write(b"x" * (9 * PIECE_BYTES))
    paced.abort()
    assert tls.is_aborted
    assert paced.get_write_buffer_size() == len(tls.waiting)
    paced.connection_lost(None)
    assert app.events == ["pause", "lost"]
