"""Protocol detection: a connection starts with a PROXY header, TLS, or plain frames.

Done on the socket, before it gets a transport, and only where TLS or the PROXY protocol is
configured. The bytes stay in the kernel, so that the event loop's TLS can start with them.

Source: NettyRemotingServer.HandshakeHandler, TlsModeHandler (5.4.0); the PROXY protocol, versions
1 and 2 (haproxy.org, proxy-protocol.txt).
"""

import asyncio
import socket
from typing import NamedTuple

from rocketpy.errors import ProtocolError

_TLS_HANDSHAKE_BYTE = 0x16
# As long as the longest PROXY header that is accepted.
_PEEKED_BYTES = 4096
_V1_START = b"PROXY "
# The longest line that the specification allows, end of line included.
_V1_MAX_BYTES = 107
_V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_FIXED_BYTES = 16
_V2_MAX_BYTES = 4096
_V2_TCP4 = 0x11
_V2_TCP6 = 0x21


class ProxyHeader(NamedTuple):
    """Complete PROXY header.

    Attributes:
        length_bytes: what to skip; 0 when there is no header.
        source: IP and port of the client; None when the proxy speaks for itself.
    """

    length_bytes: int
    source: tuple[str, int] | None


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the PROXY header at the start of a connection.

    Returns:
        The header (length 0 when the bytes are something else), or None when more are needed.

    Raises:
        ProtocolError: it starts like a PROXY header but is not valid.
    """
    if data.startswith(_V1_START[: len(data)]):
        return _parse_v1(data)
    if data.startswith(_V2_SIGNATURE[: len(data)]):
        return _parse_v2(data)
    return ProxyHeader(0, None)


def _parse_v1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _V1_MAX_BYTES)
    if end < 0:
        if len(data) >= _V1_MAX_BYTES:
            raise ProtocolError("PROXY line without an end")
        return None
    words = data[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(end + 2, None)
    if len(words) != 6 or words[1] not in {"TCP4", "TCP6"}:
        raise ProtocolError("malformed PROXY line")
    family = socket.AF_INET if words[1] == "TCP4" else socket.AF_INET6
    try:
        ip = socket.inet_ntop(family, socket.inet_pton(family, words[2]))
        port = int(words[4])
    except (OSError, ValueError) as error:
        raise ProtocolError(f"malformed PROXY line: {error}") from error
    if not 0 <= port <= 65535:
        raise ProtocolError("malformed PROXY line: port out of range")
    return ProxyHeader(end + 2, (ip, port))


def _parse_v2(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_FIXED_BYTES:
        return None
    version_command, family = data[12], data[13]
    end = _V2_FIXED_BYTES + int.from_bytes(data[14:16], "big")
    if version_command >> 4 != 2 or version_command & 0xF > 1 or end > _V2_MAX_BYTES:
        raise ProtocolError("malformed PROXY v2 header")
    if len(data) < end:
        return None
    # LOCAL: a health check of the proxy itself.
    if version_command & 0xF == 0:
        return ProxyHeader(end, None)
    if family == _V2_TCP4 and end >= 28:
        source = socket.inet_ntop(socket.AF_INET, data[16:20])
        return ProxyHeader(end, (source, int.from_bytes(data[24:26], "big")))
    if family == _V2_TCP6 and end >= 52:
        source = socket.inet_ntop(socket.AF_INET6, data[16:32])
        return ProxyHeader(end, (source, int.from_bytes(data[48:50], "big")))
    if family in {_V2_TCP4, _V2_TCP6}:
        raise ProtocolError("PROXY v2 header too short for its addresses")
    return ProxyHeader(end, None)


class Detected(NamedTuple):
    """Detected protocol of a connection.

    Attributes:
        is_tls: it speaks TLS.
        source: IP and port of the client as a PROXY header names them; None without one.
    """

    is_tls: bool
    source: tuple[str, int] | None


async def read_opening(sock: socket.socket, *, proxy_protocol: bool) -> Detected:
    """Wait for a connection's first bytes and detect its protocol; consume a PROXY header only.

    Args:
        sock: connected and non-blocking, without a transport; the running loop watches it.
        proxy_protocol: whether a PROXY header may come first.

    Raises:
        ProtocolError: it starts like a PROXY header but is not valid.
        ConnectionError: closed by the peer.
    """
    source: tuple[str, int] | None = None
    taken = b""
    while True:
        await _readable(sock)
        try:
            # Peeked: the event loop's TLS has to read the handshake itself.
            data = sock.recv(_PEEKED_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        if not data:
            raise ConnectionResetError("closed by the peer")
        if not proxy_protocol:
            return Detected(data[0] == _TLS_HANDSHAKE_BYTE, source)
        header = parse_proxy_header(taken + data)
        if header is None:
            # All of it belongs to the header; left in the kernel it would wake the loop for ever.
            taken += sock.recv(len(data))
            continue
        if header.length_bytes < len(taken):
            raise ProtocolError("malformed PROXY header")
        if header.length_bytes:
            sock.recv(header.length_bytes - len(taken))
        source, proxy_protocol = header.source, False


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(sock, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(sock)
