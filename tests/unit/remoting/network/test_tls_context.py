"""TLS contexts from the configuration; TLS itself is tested on loopback."""

import ssl
from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import TlsClientConfig, TlsMode, TlsServerConfig
from rocketpy.remoting.network.tls_context import client_context, server_context


def test_tls_without_certificate_is_off_unless_enforced() -> None:
    assert server_context(TlsServerConfig()) is None
    assert (
        server_context(TlsServerConfig(mode=TlsMode.DISABLED, key_path="k", cert_path="c")) is None
    )
    with pytest.raises(ConfigError, match=r"tls\.server\.keyPath"):
        server_context(TlsServerConfig(mode=TlsMode.ENFORCING))


def test_tls_error_names_unusable_file(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        server_context(TlsServerConfig(key_path=missing, cert_path=missing))
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    with pytest.raises(ConfigError, match=r"broken\.pem"):
        client_context(TlsClientConfig(enable=True, trust_cert_path=str(broken)))


def test_tls_client_accepts_any_certificate_unless_auth_server_is_set() -> None:
    assert client_context(TlsClientConfig()) is None
    trusting = client_context(TlsClientConfig(enable=True))
    assert trusting is not None
    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_NONE, False)
    checking = client_context(TlsClientConfig(enable=True, auth_server=True))
    assert checking is not None
    assert (checking.verify_mode, checking.check_hostname) == (ssl.CERT_REQUIRED, True)
