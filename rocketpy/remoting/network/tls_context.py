"""TLS contexts from the configuration; the event loop's own TLS does the rest.

Certificates are renewed while a program runs: in place, by rename, or by a symbolic link to another
directory. Each new connection has a context of the files as they are now. One that expires soon, or
has expired, is a warning a day.

Source: TlsHelper, TlsSystemConfig, FileWatchService (5.4.0).
"""

import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig
from rocketpy.remoting.network.certificate import expires_ms
from rocketpy.runtime.clock import Clock

_log = logging.getLogger(__name__)

CHECK_INTERVAL_MS: Final = 1_000
"""Shortest time between two checks of the files: each costs a few calls of the system."""
SOON_MS: Final = 14 * 86_400_000
"""Time before its end from which a certificate is reported."""
_DAY_MS: Final = 86_400_000

_State = tuple[tuple[int, int, int] | None, ...]


class WatchedContext:
    """Context whose files are read again when they change; a callable that returns it.

    Files that cannot be used, such as a certificate whose key is not there yet, leave the context
    as it is, with a warning. Safe on any thread.

    Args:
        make: makes a context of the files; raises ConfigError.
        paths: the files; the first one is the own certificate, or empty.
        clock: monotonic time for checks, wall-clock time for the end of the certificate.

    Raises:
        ConfigError: the files cannot be used at the start.
    """

    def __init__(
        self, make: Callable[[], ssl.SSLContext], paths: Iterable[str], clock: Clock
    ) -> None:
        self._make = make
        certificate, *others = paths
        self._certificate = certificate
        self._paths = tuple(each for each in (certificate, *others) if each)
        self._clock = clock
        self._reported_ms: int | None = None
        # Before they are read: a change in between is noticed by the next check.
        self._known = self._state()
        self._context = make()
        self._expires_ms = _expires_ms(certificate)
        self._next_ms = clock.monotonic_ms() + CHECK_INTERVAL_MS
        self._report_end()

    def __call__(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms:
            self._next_ms = now_ms + CHECK_INTERVAL_MS
            found = self._state()
            if found != self._known:
                self._known = found
                self._load()
            self._report_end()
        return self._context

    def _load(self) -> None:
        try:
            self._context = self._make()
        except ConfigError as error:
            _log.warning("TLS files not usable, the ones before stay in use: error=%s", error)
        else:
            self._expires_ms, self._reported_ms = _expires_ms(self._certificate), None
            _log.info("TLS files read again: paths=%s", ",".join(self._paths))

    def _report_end(self) -> None:
        end_ms, time_ms = self._expires_ms, self._clock.time_ms()
        if end_ms is None or time_ms < end_ms - SOON_MS:
            return
        if self._reported_ms is not None and time_ms - self._reported_ms < _DAY_MS:
            return
        self._reported_ms = time_ms
        end = datetime.fromtimestamp(end_ms / 1000, UTC).isoformat()
        if time_ms >= end_ms:
            _log.warning("certificate has expired: path=%s expired=%s", self._certificate, end)
        else:
            _log.warning("certificate expires soon: path=%s expires=%s", self._certificate, end)

    def _state(self) -> _State:
        return tuple(map(_state_of, self._paths))


def _state_of(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - of the file behind a link
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _expires_ms(path: str) -> int | None:
    if not path:
        return None
    try:
        return expires_ms(Path(path).read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None  # was just read; the next check notices the change


def watch_server(config: TlsServerConfig, clock: Clock) -> WatchedContext | None:
    """Return the server's context; see `server_context`."""
    if server_context(config) is None:
        return None
    paths = (config.cert_path, config.key_path, config.trust_cert_path)
    return WatchedContext(lambda: _some(server_context(config)), paths, clock)


def watch_client(config: TlsClientConfig, clock: Clock) -> WatchedContext | None:
    """Return the client's context; see `client_context`."""
    if not config.enable:
        return None
    paths = (config.cert_path, config.key_path, config.trust_cert_path)
    return WatchedContext(lambda: _some(client_context(config)), paths, clock)


def watch_mutual(
    server: TlsServerConfig, client: TlsClientConfig, clock: Clock
) -> tuple[WatchedContext, WatchedContext]:
    """Return the contexts of both sides; see `mutual_contexts`."""
    paths = [(each.cert_path, each.key_path, each.trust_cert_path) for each in (server, client)]
    return (
        WatchedContext(lambda: mutual_contexts(server, client)[0], paths[0], clock),
        WatchedContext(lambda: mutual_contexts(server, client)[1], paths[1], clock),
    )


def _some(context: ssl.SSLContext | None) -> ssl.SSLContext:
    assert context is not None, "the configuration does not change"
    return context


def server_context(config: TlsServerConfig) -> ssl.SSLContext | None:
    """Return the server's context; None when TLS is off or has no certificate.

    Raises:
        ConfigError: a file is missing or no PEM, only one of certificate and key is named, or
            `enforcing` has none.
    """
    if config.mode is TlsMode.DISABLED:
        return None
    _check_pair(config.cert_path, config.key_path, "server")
    if not config.cert_path:
        # Otherwise the server would silently accept plain text only.
        if config.mode is TlsMode.ENFORCING:
            raise ConfigError(
                "enforcing needs tls.server.keyPath and tls.server.certPath", key="tls.server.mode"
            )
        if config.need_client_auth is ClientAuth.REQUIRE:
            raise ConfigError(
                "require needs tls.server.keyPath and tls.server.certPath: without them the server "
                "takes plain text only, and checks no client",
                key="tls.server.need.client.auth",
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
        ConfigError: a file is missing or no PEM, or only one of certificate and key is named.
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
    _check_pair(config.cert_path, config.key_path, "client")
    if config.cert_path:
        _load_key(
            context, config.cert_path, config.key_path, config.key_password, "tls.client.keyPath"
        )
    return context


def _check_pair(cert_path: str, key_path: str, side: str) -> None:
    """Check that certificate and key are both named, or neither: one alone would be ignored.

    Raises:
        ConfigError: one is missing.
    """
    if bool(cert_path) == bool(key_path):
        return
    missing, given = ("keyPath", "certPath") if cert_path else ("certPath", "keyPath")
    raise ConfigError(
        f"is empty, and without it tls.{side}.{given} would have no effect; one file may hold both",
        key=f"tls.{side}.{missing}",
    )


def _load_key(
    context: ssl.SSLContext, cert_path: str, key_path: str, password: str, key: str
) -> None:
    try:
        context.load_cert_chain(cert_path, key_path, password or "")
    except (OSError, ssl.SSLError) as error:
        reason = _reason(error, cert_path, key_path, password)
        raise ConfigError(f"cannot load {cert_path} and {key_path}: {reason}", key=key) from error


def _reason(error: OSError, cert_path: str, key_path: str, password: str) -> str:
    """Return why a pair cannot be loaded; OpenSSL says `PEM lib` about most of it."""
    texts = []
    for path in (cert_path, key_path):
        try:
            texts.append(Path(path).read_text(encoding="ascii", errors="replace"))
        except OSError as unreadable:
            return f"{path}: {unreadable.strerror}"
    if not re.search("-----BEGIN .*CERTIFICATE-----", texts[0]):
        return f"{cert_path} has no certificate in PEM"
    if not re.search("-----BEGIN .*PRIVATE KEY-----", texts[1]):
        return f"{key_path} has no private key in PEM"
    if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    if "ENCRYPTED" in texts[1]:
        return "the key is encrypted, and its password is " + ("wrong" if password else "missing")
    return str(error)


def _load_trust(context: ssl.SSLContext, path: str, key: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load {path}: {error}", key=key) from error


def mutual_contexts(
    server: TlsServerConfig, client: TlsClientConfig
) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return contexts of a server and a client that both present a certificate and verify one.

    Only certificates of the configured authorities are accepted, not those of the system. Host
    names are not compared: replicas are addressed by IP.

    Raises:
        ConfigError: a file is not named, missing, or no PEM.
    """
    contexts = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    contexts[1].check_hostname = False
    sides: tuple[tuple[str, TlsServerConfig | TlsClientConfig], ...] = (
        ("server", server),
        ("client", client),
    )
    for context, (side, config) in zip(contexts, sides, strict=True):
        for part in ("keyPath", "certPath", "trustCertPath"):
            name = part.replace("Path", "_path").replace("trustCert", "trust_cert")
            if not getattr(config, name):
                raise ConfigError("haTlsEnable needs it", key=f"tls.{side}.{part}")
        key = f"tls.{side}.keyPath"
        _load_key(context, config.cert_path, config.key_path, config.key_password, key)
        _load_trust(context, config.trust_cert_path, f"tls.{side}.trustCertPath")
        context.verify_mode = ssl.CERT_REQUIRED
    return contexts
