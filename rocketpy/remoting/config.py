"""Settings of the remoting layer, and the limits of one connection.

Field names are Apache's keys in snake_case where Apache has the key (`listenPort`,
`serverSelectorThreads`, `writeBufferHighWaterMark`); limits that Apache lacks have ours.

Source: NettyServerConfig, NettyClientConfig, TlsSystemConfig (5.4.0).
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

from rocketpy.errors import ConfigError

MIB = 1024 * 1024


class TlsMode(enum.Enum):
    """Whether a server accepts TLS, plain text or both (`tls.server.mode`)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(enum.Enum):
    """Whether a TLS server asks for a client certificate (`tls.server.need.client.auth`)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """The `tls.server.*` keys.

    Attributes:
        mode: `disabled` refuses TLS, `permissive` takes both, `enforcing` refuses plain text, which
            is all that brokers speak to name servers (`rocketpy standalone` does not start).
        key_path: PEM file of the private key; TLS is off without key and certificate, and one of
            them alone is an error. One file may hold both.
        key_password: of the private key, empty for none.
        cert_path: PEM file of the certificate chain; like the other two files it is read again when
            it changes, for new connections.
        trust_cert_path: PEM file of the authorities that client certificates must come from.
        need_client_auth: whether clients must show a certificate.
    """

    mode: TlsMode = field(default=TlsMode.PERMISSIVE, metadata={"key": "tls.server.mode"})
    key_path: str = field(default="", metadata={"key": "tls.server.keyPath", "path": True})
    key_password: str = field(
        default="", repr=False, metadata={"key": "tls.server.keyPassword", "secret": True}
    )
    cert_path: str = field(default="", metadata={"key": "tls.server.certPath", "path": True})
    trust_cert_path: str = field(
        default="", metadata={"key": "tls.server.trustCertPath", "path": True}
    )
    need_client_auth: ClientAuth = field(
        default=ClientAuth.NONE, metadata={"key": "tls.server.need.client.auth"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientConfig:
    """The `tls.enable` and `tls.client.*` keys.

    Attributes:
        enable: speak TLS to every server.
        auth_server: check the server's certificate (Apache's default is not to).
        key_path: PEM file of the client's private key, empty for none.
        key_password: of the private key, empty for none.
        cert_path: PEM file of the client's certificate chain; like the other two files it is read
            again when it changes, for new connections.
        trust_cert_path: PEM file of the authorities that server certificates must come from.
    """

    enable: bool = field(default=False, metadata={"key": "tls.enable"})
    auth_server: bool = field(default=False, metadata={"key": "tls.client.authServer"})
    key_path: str = field(default="", metadata={"key": "tls.client.keyPath", "path": True})
    key_password: str = field(
        default="", repr=False, metadata={"key": "tls.client.keyPassword", "secret": True}
    )
    cert_path: str = field(default="", metadata={"key": "tls.client.certPath", "path": True})
    trust_cert_path: str = field(
        default="", metadata={"key": "tls.client.trustCertPath", "path": True}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingServerConfig:
    """Settings of a remoting server.

    Attributes:
        bind_address: interface to listen on.
        listen_port: TCP port, 0 for any free one.
        server_selector_threads: event loops; 1 is the loop that calls `start`, more are threads.
        server_socket_backlog: connections the kernel may queue before they are accepted.
        server_channel_max_idle_time_seconds: a connection silent both ways this long is closed.
        server_max_connections: connections in all; 0 is no limit.
        server_max_connections_per_ip: connections from one address; 0 is no limit.
        max_in_flight_per_connection: requests of one connection that wait in pools, coroutines or
            for their deferred response; reading from it pauses there.
        max_in_flight_bytes_per_connection: about what such requests hold; reading pauses there too.
        max_frame_bytes: a longer frame closes its connection.
        write_buffer_high_water_mark: bytes waiting for one peer at which reading from it pauses.
        write_buffer_low_water_mark: bytes waiting at which reading resumes.
        write_buffer_hard_limit_bytes: bytes waiting at which the peer is cut off.
        server_memory_limit_bytes: what all peers together may make the server hold: unfinished
            input, requests in progress, unsent output (half of it). Over it the connections that
            hold most are aborted. 0 is no limit.
        write_stall_timeout_ms: a peer above the high mark that takes nothing this long is cut off.
        frame_timeout_ms: a frame that is not whole this long after its first byte, and has gained
            less than 64 KiB in as long, closes its connection.
        first_frame_timeout_ms: a connection without a whole first frame this long is closed.
        server_socket_snd_buf_size: SO_SNDBUF, 0 leaves it to the kernel.
        server_socket_rcv_buf_size: SO_RCVBUF, 0 leaves it to the kernel.
        proxy_protocol: a PROXY header (v1 or v2) may open a connection and name its source.
            Only for servers behind a proxy: any peer may then claim any address.
        tls: the TLS settings.
    """

    bind_address: str = "0.0.0.0"  # noqa: S104 - Apache's default, reachable from outside
    listen_port: int = field(default=0, metadata={"min": 0, "max": 65_535})
    server_selector_threads: int = 1
    server_socket_backlog: int = 1024
    server_channel_max_idle_time_seconds: int = 120
    server_max_connections: int = 5000
    server_max_connections_per_ip: int = 0
    max_in_flight_per_connection: int = 4096
    max_in_flight_bytes_per_connection: int = 32 * MIB
    max_frame_bytes: int = 16 * MIB
    write_buffer_high_water_mark: int = MIB
    write_buffer_low_water_mark: int = MIB // 4
    write_buffer_hard_limit_bytes: int = 64 * MIB
    server_memory_limit_bytes: int = 512 * MIB
    write_stall_timeout_ms: int = 30_000
    first_frame_timeout_ms: int = 15_000
    frame_timeout_ms: int = 30_000
    server_socket_snd_buf_size: int = 0
    server_socket_rcv_buf_size: int = 0
    proxy_protocol: bool = False
    tls: TlsServerConfig = TlsServerConfig()

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not 0 <= self.listen_port <= 65535:
            raise ConfigError(f"{self.listen_port} is not a port (0 to 65535)", key="listenPort")
        if not 1 <= self.server_selector_threads <= 256:
            raise ConfigError("must be 1 to 256", key="serverSelectorThreads")
        _check_water_marks(
            self.write_buffer_low_water_mark,
            self.write_buffer_high_water_mark,
            self.write_buffer_hard_limit_bytes,
        )

    def config_warnings(self) -> Iterator[tuple[str, str]]:
        """Yield keys, and why their values do less than they seem to."""
        tls = self.tls
        if tls.mode is TlsMode.PERMISSIVE and tls.need_client_auth is ClientAuth.REQUIRE:
            reason = (
                "protects nothing while tls.server.mode is permissive: a client that connects in "
                "plain text shows no certificate; set tls.server.mode=enforcing"
            )
            yield "tls.server.need.client.auth", reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotingClientConfig:
    """Settings of a remoting client.

    Attributes:
        connect_timeout_millis: for TCP and, where on, the TLS handshake.
        client_channel_max_idle_time_seconds: a connection silent both ways this long is closed.
        client_async_semaphore_value: unanswered requests of the whole client; more are refused.
        reconnect_backoff_initial_ms: after the first failed connect, calls fail at once this long.
        reconnect_backoff_max_ms: what that time grows to at most.
        reconnect_backoff_factor: growth from one failed connect to the next.
        reconnect_backoff_jitter: each pause is changed by up to this share, either way.
        max_frame_bytes: a longer frame closes its connection; a longer request is not sent.
        write_buffer_high_water_mark: bytes waiting for one server before it counts as congested.
        write_buffer_low_water_mark: bytes waiting at which it no longer does.
        write_buffer_hard_limit_bytes: bytes waiting at which the connection is cut.
        write_stall_timeout_ms: a server above the high mark that takes nothing so long is cut off.
        frame_timeout_ms: a frame that is not whole this long after its first byte, and has gained
            less than 64 KiB in as long, closes its connection.
        use_msgpack: offer RocketPy servers the MSGPACK header serialization.
        tls: the TLS settings.
    """

    connect_timeout_millis: int = 3000
    client_channel_max_idle_time_seconds: int = 120
    client_async_semaphore_value: int = 65535
    reconnect_backoff_initial_ms: int = 100
    reconnect_backoff_max_ms: int = 1000
    reconnect_backoff_factor: float = 1.6
    reconnect_backoff_jitter: float = 0.2
    max_frame_bytes: int = 16 * MIB
    write_buffer_high_water_mark: int = 4 * MIB
    write_buffer_low_water_mark: int = MIB
    write_buffer_hard_limit_bytes: int = 64 * MIB
    write_stall_timeout_ms: int = 30_000
    frame_timeout_ms: int = 30_000
    use_msgpack: bool = True
    tls: TlsClientConfig = TlsClientConfig()

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        _check_water_marks(
            self.write_buffer_low_water_mark,
            self.write_buffer_high_water_mark,
            self.write_buffer_hard_limit_bytes,
        )


def _check_water_marks(low_bytes: int, high_bytes: int, limit_bytes: int) -> None:
    if not 0 <= low_bytes < high_bytes <= limit_bytes:
        raise ConfigError(
            f"low {low_bytes} < high {high_bytes} <= hard limit {limit_bytes} must hold",
            key="writeBufferHighWaterMark",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of each connection of a selector or client; see the configuration. 0 is no limit."""

    max_frame_bytes: int
    high_water_bytes: int
    low_water_bytes: int
    hard_limit_bytes: int
    write_stall_timeout_ms: int
    idle_timeout_ms: int
    first_frame_timeout_ms: int = 0
    frame_timeout_ms: int = 0
    max_in_flight: int = 0
    max_in_flight_bytes: int = 0
