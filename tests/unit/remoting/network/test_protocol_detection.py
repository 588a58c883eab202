import asyncio
import socket
from collections.abc import Iterator

import pytest

from rocketpy.errors import ProtocolError
from rocketpy.proto.wire.command import encode_command, make_request
from rocketpy.remoting.network.protocol_detection import (
    Detected,
    ProxyHeader,
    parse_proxy_header,
    read_opening,
)

V2 = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(command: int, family: int, addresses: bytes) -> bytes:
    return V2 + bytes([0x20 | command, family]) + len(addresses).to_bytes(2, "big") + addresses


TCP4 = socket.inet_aton("10.1.2.3") + socket.inet_aton("10.9.9.9") + b"\x30\x39\x2a\x9f"
TCP6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + b"\x30\x39\x2a\x9f"


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 12345 10911\r\n", ("10.1.2.3", 12345)),
        (b"PROXY TCP6 2001:db8::1 ::1 12345 10911\r\n", ("2001:db8::1", 12345)),
        (b"PROXY UNKNOWN\r\n", None),
        (v2(1, 0x11, TCP4), ("10.1.2.3", 12345)),
        (v2(1, 0x11, TCP4 + b"\x04\x00\x01\x00"), ("10.1.2.3", 12345)),
        (v2(1, 0x21, TCP6), ("2001:db8::1", 12345)),
        (v2(0, 0x00, b""), None),
        (v2(1, 0x31, bytes(216)), None),
    ],
)
def test_proxy_header_is_parsed_complete_and_byte_by_byte(
    data: bytes, source: tuple[str, int] | None
) -> None:
    assert parse_proxy_header(data + b"rest") == ProxyHeader(len(data), source)
    for end in range(1, len(data)):
        assert parse_proxy_header(data[:end]) is None


def test_other_bytes_have_no_proxy_header() -> None:
    assert parse_proxy_header(b"\x00\x00\x00\x20") == ProxyHeader(0, None)
    assert parse_proxy_header(b"\x16\x03\x01") == ProxyHeader(0, None)


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 10.1.2.3 10.9.9.9 12345\r\n",
        b"PROXY TCP4 10.1.2.333 10.9.9.9 12345 1\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 99999 1\r\n",
        b"PROXY TCP4 10.1.2.3 10.9.9.9 x 1\r\n",
        b"PROXY UDP4 10.1.2.3 10.9.9.9 1 1\r\n",
        b"PROXY " + b"x" * 200,
        V2 + b"\x11\x11\x00\x0c" + TCP4,
        v2(2, 0x11, TCP4),
        v2(1, 0x11, b"1234"),
        V2 + b"\x21\x11\xff\xff",
    ],
)
def test_malformed_proxy_header_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_proxy_header(data)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


HEADER = b"PROXY TCP4 10.1.2.3 10.9.9.9 12345 10911\r\n"
FRAME = encode_command(make_request(2))


@pytest.mark.parametrize("data", [b"\x16\x03\x01", FRAME])
async def test_detection_leaves_first_bytes_in_socket(
    pair: tuple[socket.socket, socket.socket], data: bytes
) -> None:
    ours, theirs = pair
    theirs.send(data)
    assert await read_opening(ours, proxy_protocol=False) == Detected(data[0] == 0x16, None)
    assert ours.recv(1000) == data


@pytest.mark.parametrize("step", [1, 20, 1000])
async def test_detection_consumes_proxy_header_only(
    pair: tuple[socket.socket, socket.socket], step: int
) -> None:
    ours, theirs = pair
    data = HEADER + b"\x16\x03\x01"
    opening = asyncio.ensure_future(read_opening(ours, proxy_protocol=True))
    for at in range(0, len(data), step):
        theirs.send(data[at : at + step])
        await asyncio.sleep(0)
    assert await opening == Detected(is_tls=True, source=("10.1.2.3", 12345))
    assert ours.recv(1000) == b"\x16\x03\x01"


async def test_detection_without_proxy_header_consumes_nothing(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.send(FRAME)
    assert await read_opening(ours, proxy_protocol=True) == Detected(is_tls=False, source=None)
    assert ours.recv(1000) == FRAME


@pytest.mark.parametrize("pieces", [[b"PROXY nonsense\r\n"], [b"PRO", b"POST / HTTP/1.1\r\n"]])
async def test_partial_match_of_proxy_header_is_refused(
    pair: tuple[socket.socket, socket.socket], pieces: list[bytes]
) -> None:
    ours, theirs = pair
    opening = asyncio.ensure_future(read_opening(ours, proxy_protocol=True))
    for piece in pieces:
        theirs.send(piece)
        for _ in range(5):
            await asyncio.sleep(0)
    with pytest.raises(ProtocolError):
        await opening


async def test_detection_fails_when_peer_closes_before_first_byte(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(ConnectionError):
        await read_opening(ours, proxy_protocol=False)
