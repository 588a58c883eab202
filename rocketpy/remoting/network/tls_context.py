"""TLS contexts from the configuration; the event loop's own TLS does the rest.

Source: TlsHelper, TlsSystemConfig (5.4.0).
"""

import ssl

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig


def server_context(config: TlsServerConfig) -> ssl.SSLContext | None:
    """Return the server's context; None when TLS is off or has no certificate.

    Raises:
        ConfigError: a file is missing or no PEM, or `enforcing` has no certificate.
    """
    if config.mode is TlsMode.DISABLED:
        return None
    if not config.key_path or not config.cert_path:
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
