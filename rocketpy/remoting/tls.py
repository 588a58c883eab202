"""TLS: contexts from the configuration, and a server's TLS by hand over memory buffers.

The server learns only from a connection's first byte that it is TLS, when asyncio's own TLS could
no longer see that byte. So the record layer runs here, between the raw transport and the
connection; a plain connection never passes through it.

Source: TlsHelper, TlsSystemConfig, NettyRemotingServer.TlsModeHandler (5.4.0).
"""

import asyncio
import logging
import ssl
from typing import Any

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig
from rocketpy.remoting.connection import Connection
from rocketpy.remoting.transport import Buffer

_log = logging.getLogger(__name__)

TLS_HANDSHAKE_BYTE = 0x16
_READ_BYTES = 256 * 1024


def server_context(config: TlsServerConfig) -> ssl.SSLContext | None:
    """Return the server's context; None when TLS is off or has no certificate.

    Raises:
        ConfigError: a file is missing or no PEM, or ``enforcing`` has no certificate.
    """
    if config.mode is TlsMode.DISABLED:
        return None
    if not config.key_path or not config.cert_path:
        if config.mode is TlsMode.ENFORCING:
            raise ConfigError(
                "enforcing needs tls.server.keyPath and tls.server.certPath", key="tls.server.mode"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(context, config.cert_path, config.key_path, config.key_password, "tls.server.keyPath")
    if config.trust_cert_path:
        _load_trust(context, config.trust_cert_path, "tls.server.trustCertPath")
    context.verify_mode = {
        ClientAuth.NONE: ssl.CERT_NONE,
        ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
        ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
    }[config.need_client_auth]
    return context


def client_context(config: TlsClientConfig) -> ssl.SSLContext | None:
    """Return the client's context; None when TLS is off.

    Raises:
        ConfigError: a file is missing or no PEM.
    """
    if not config.enable:
        return None
    context = ssl.create_default_context()
    if not config.auth_server:
        # Apache's default: encrypt, but take any certificate.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.trust_cert_path:
        _load_trust(context, config.trust_cert_path, "tls.client.trustCertPath")
    if config.cert_path and config.key_path:
        _load_key(
            context, config.cert_path, config.key_path, config.key_password, "tls.client.keyPath"
        )
    return context


def _load_key(
    context: ssl.SSLContext, cert_path: str, key_path: str, password: str, key: str
) -> None:
    try:
        context.load_cert_chain(cert_path, key_path, password or "")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load {cert_path} and {key_path}: {error}", key=key) from error


def _load_trust(context: ssl.SSLContext, path: str, key: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load {path}: {error}", key=key) from error


class TlsProtocol(asyncio.Protocol):
    """The TLS record layer of one accepted connection: protocol below, transport above."""

    def __init__(
        self, connection: Connection, context: ssl.SSLContext, raw: asyncio.Transport
    ) -> None:
        """Put TLS between a raw transport and a connection that is not announced yet."""
        self._connection = connection
        self._raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_established = False

    # ---- the protocol that the raw transport sees

    def data_received(self, data: bytes) -> None:
        """Take encrypted bytes."""
        self._incoming.write(data)
        try:
            if not self._is_established and not self._shake_hands():
                return
            plain, is_ended = self._decrypt()
        except ssl.SSLError as error:
            self._flush()
            _log.warning(
                "TLS failed, connection closed peer=%s reason=%s",
                self._connection.channel.remote_address,
                error.reason or error,
            )
            self._connection.channel.close(f"TLS: {error.reason or error}")
            return
        self._flush()
        if plain:
            self._connection.data_received(plain)
        if is_ended:
            self._connection.channel.close("closed by the peer")

    def eof_received(self) -> bool:
        """Close when the peer has finished sending."""
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """Pass on that the peer does not keep up."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the peer keeps up again."""
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the end."""
        self._connection.connection_lost(exc)

    # ---- the transport that the connection sees

    def write(self, data: Buffer, /) -> None:
        """Encrypt and queue bytes."""
        view = memoryview(data)
        while view:
            view = view[self._ssl.write(view) :]
        self._flush()

    def close(self) -> None:
        """Say goodbye and close once everything is written."""
        if self._is_established and not self._raw.is_closing():
            try:
                self._ssl.unwrap()
            except ssl.SSLError as error:
                # The peer's goodbye is still to come, or it broke the rules: we leave either way.
                _log.debug("TLS goodbye unanswered reason=%s", error.reason)
            self._flush()
        self._raw.close()

    def abort(self) -> None:
        """Close now."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more from the peer."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes queued, encrypted."""
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str) -> Any:  # noqa: ANN401 - as asyncio has it
        """What is known about the connection."""
        return self._raw.get_extra_info(name)

    def _shake_hands(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        self._is_established = True
        self._connection.use_transport(self)
        self._connection.announce()
        return True

    def _decrypt(self) -> tuple[bytes, bool]:
        chunks: list[bytes] = []
        while True:
            try:
                chunk = self._ssl.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(chunks), False
            except ssl.SSLZeroReturnError:
                return b"".join(chunks), True
            if not chunk:
                return b"".join(chunks), True
            chunks.append(chunk)

    def _flush(self) -> None:
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())
