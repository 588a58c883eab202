import socket

import pytest

from rocketpy.errors import ProtocolError
from rocketpy.proto.command import encode_command, make_request, make_response
from rocketpy.remoting.first_bytes import FirstBytes, ProxyHeader, parse_proxy_header
from tests.unit.remoting.fakes import Rig

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
def test_whole_and_byte_by_byte(data: bytes, source: tuple[str, int] | None) -> None:
    assert parse_proxy_header(data + b"rest") == ProxyHeader(len(data), source)
    for end in range(1, len(data)):
        assert parse_proxy_header(data[:end]) is None


def test_other_bytes_are_no_header() -> None:
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
def test_malformed_headers_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_proxy_header(data)


def open_first_bytes(
    rig: Rig, *, plain_allowed: bool = True, proxy_protocol: bool = False
) -> FirstBytes:
    first = FirstBytes(
        rig.connection, tls=None, plain_allowed=plain_allowed, proxy_protocol=proxy_protocol
    )
    first.connection_made(rig.transport)  # type: ignore[arg-type]
    assert rig.owner.events == []
    return first


def test_plain_connection_takes_over() -> None:
    rig = Rig()
    rig.owner.table.register(2, lambda _, c: make_response(c), None)
    first = open_first_bytes(rig)
    first.data_received(encode_command(make_request(2)))
    assert rig.transport.protocol is rig.connection
    assert rig.owner.events == ["open"]
    assert len(rig.transport.responses()) == 1


def test_proxy_header_names_the_peer_before_anyone_is_told() -> None:
    rig = Rig()
    rig.owner.table.register(2, lambda c, r: make_response(r, 0, c.remote_address), None)
    first = open_first_bytes(rig, proxy_protocol=True)
    data = b"PROXY TCP4 10.1.2.3 10.9.9.9 12345 10911\r\n" + encode_command(make_request(2))
    first.data_received(data[:20])
    assert rig.owner.events == []
    first.data_received(data[20:])
    assert rig.transport.responses()[0].remark == "10.1.2.3:12345"


def test_bad_proxy_header_closes() -> None:
    rig = Rig()
    first = open_first_bytes(rig, proxy_protocol=True)
    first.data_received(b"PROXY nonsense\r\n")
    assert rig.transport.is_aborted


def test_plain_text_is_refused_when_tls_is_enforced() -> None:
    rig = Rig()
    first = open_first_bytes(rig, plain_allowed=False)
    first.data_received(encode_command(make_request(2)))
    assert rig.transport.is_aborted
    assert rig.owner.events == []


def test_tls_without_a_context_is_refused() -> None:
    rig = Rig()
    first = open_first_bytes(rig)
    first.data_received(b"\x16\x03\x01\x02\x00")
    assert rig.transport.is_aborted


def test_end_before_the_first_byte_is_passed_on() -> None:
    rig = Rig()
    first = open_first_bytes(rig)
    first.connection_lost(None)
    assert rig.owner.events == ["close"]
