"""What a connection opens with: a PROXY header, TLS, or plain frames.

This protocol reads the first bytes only, then gives its place to the connection (or to TLS in
front of it); the server uses it only where TLS or the PROXY protocol is configured.

Source: NettyRemotingServer.HandshakeHandler, TlsModeHandler (5.4.0); the PROXY protocol, versions
1 and 2 (haproxy.org, proxy-protocol.txt).
"""

import asyncio
import logging
import socket
import ssl
from typing import NamedTuple, cast

from rocketpy.errors import ProtocolError
from rocketpy.remoting.connection import Connection
from rocketpy.remoting.tls import TLS_HANDSHAKE_BYTE, TlsProtocol

_log = logging.getLogger(__name__)

_V1_START = b"PROXY "
_V1_MAX_BYTES = 107
_V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_FIXED_BYTES = 16
_V2_MAX_BYTES = 4096
_V2_TCP4 = 0x11
_V2_TCP6 = 0x21


class ProxyHeader(NamedTuple):
    """A whole PROXY header.

    Attributes:
        length_bytes: what to skip; 0 when there is no header.
        source: IP and port of the client; None when the proxy speaks for itself.
    """

    length_bytes: int
    source: tuple[str, int] | None


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read the PROXY header that a connection may open with.

    Returns:
        The header (length 0 when the bytes are something else), or None when more are needed.

    Raises:
        ProtocolError: it begins as a PROXY header and is none.
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


class FirstBytes(asyncio.Protocol):
    """Holds a connection's place until its first bytes have told what it speaks."""

    def __init__(
        self,
        connection: Connection,
        *,
        tls: ssl.SSLContext | None,
        plain_allowed: bool,
        proxy_protocol: bool,
    ) -> None:
        """Say what may come.

        Args:
            connection: gets the transport once it is known.
            tls: context for TLS connections; None refuses them.
            plain_allowed: whether a connection may go without TLS.
            proxy_protocol: whether a PROXY header may come first.
        """
        self._connection = connection
        self._tls = tls
        self._plain_allowed = plain_allowed
        self._expects_proxy = proxy_protocol
        self._data = b""
        self._raw: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; nobody is told yet."""
        self._raw = cast("asyncio.Transport", transport)
        self._connection.attach(self._raw)

    def data_received(self, data: bytes) -> None:
        """Look at what has come so far."""
        self._data += data
        try:
            if self._expects_proxy and not self._take_proxy_header():
                return
        except ProtocolError as error:
            self._refuse(str(error))
            return
        if self._data:
            self._give_place()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the end."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Nothing is written yet."""

    def resume_writing(self) -> None:
        """Nothing is written yet."""

    def _take_proxy_header(self) -> bool:
        header = parse_proxy_header(self._data)
        if header is None:
            return False
        self._expects_proxy = False
        self._data = self._data[header.length_bytes :]
        if header.source is not None:
            self._connection.channel.set_remote(*header.source)
        return True

    def _give_place(self) -> None:
        data, self._data = self._data, b""
        if data[0] == TLS_HANDSHAKE_BYTE:
            if self._tls is None:
                self._refuse("TLS is disabled")
                return
            tls = TlsProtocol(self._connection, self._tls, self._raw)
            self._raw.set_protocol(tls)
            tls.data_received(data)
        elif not self._plain_allowed:
            self._refuse("plain text where tls.server.mode is enforcing")
        else:
            self._raw.set_protocol(self._connection)
            self._connection.announce()
            self._connection.data_received(data)

    def _refuse(self, reason: str) -> None:
        _log.warning(
            "connection refused peer=%s reason=%s",
            self._connection.channel.remote_address,
            reason,
        )
        self._connection.channel.abort(reason)
