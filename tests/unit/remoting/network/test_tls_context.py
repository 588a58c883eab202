"""TLS contexts from the configuration; TLS itself is tested on loopback."""

import logging
import os
import ssl
from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import TlsClientConfig, TlsMode, TlsServerConfig
from rocketpy.remoting.network import tls_context
from rocketpy.remoting.network.tls_context import (
    CHECK_INTERVAL_MS,
    WatchedContext,
    client_context,
    server_context,
    watch_client,
    watch_server,
)
from tests.unit.broker.fakes import FakeClock


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


@pytest.mark.parametrize(("given", "missing"), [("cert_path", "keyPath"), ("key_path", "certPath")])
def test_tls_certificate_or_key_alone_is_refused(given: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=rf"tls\.server\.{missing}"):
        server_context(TlsServerConfig(**{given: "both.pem"}))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"tls\.client\.{missing}"):
        client_context(TlsClientConfig(enable=True, **{given: "both.pem"}))  # type: ignore[arg-type]
    off = TlsServerConfig(mode=TlsMode.DISABLED, **{given: "both.pem"})  # type: ignore[arg-type]
    assert server_context(off) is None


_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("certificate", "key", "password", "reason"),
    [
        ("", "", "", "tls.crt has no certificate in PEM"),
        (_CERTIFICATE, "\x30\x82", "", "tls.key has no private key in PEM"),
        (_CERTIFICATE, "-----BEGIN ENCRYPTED PRIVATE KEY-----", "", "password is missing"),
        (_CERTIFICATE, "-----BEGIN ENCRYPTED PRIVATE KEY-----", "p", "password is wrong"),
        (_CERTIFICATE, None, "", "tls.key: No such file"),
    ],
)
def test_tls_error_gives_reason_in_place_of_pem_lib(
    tmp_path: Path, certificate: str, key: str | None, password: str, reason: str
) -> None:
    paths = tmp_path / "tls.crt", tmp_path / "tls.key"
    paths[0].write_text(certificate)
    if key is not None:
        paths[1].write_text(key)
    config = TlsServerConfig(cert_path=str(paths[0]), key_path=str(paths[1]), key_password=password)
    with pytest.raises(ConfigError, match=reason):
        server_context(config)


def test_tls_client_accepts_any_certificate_unless_auth_server_is_set() -> None:
    assert client_context(TlsClientConfig()) is None
    trusting = client_context(TlsClientConfig(enable=True))
    assert trusting is not None
    assert (trusting.verify_mode, trusting.check_hostname) == (ssl.CERT_NONE, False)
    checking = client_context(TlsClientConfig(enable=True, auth_server=True))
    assert checking is not None
    assert (checking.verify_mode, checking.check_hostname) == (ssl.CERT_REQUIRED, True)


class Files:
    """Certificate and key of one content each, and the contexts that were made of them."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.folder = folder
        self.paths = [folder / "tls.crt", folder / "tls.key"]
        self.made: list[str] = []
        for path in self.paths:
            path.write_text("1")
        self.watched = WatchedContext(self.make, map(str, [*self.paths, ""]), self.clock)

    def make(self) -> ssl.SSLContext:
        try:
            cert, key = (path.read_text() for path in self.paths)
        except OSError as error:
            raise ConfigError(str(error), key="tls.server.certPath") from error
        if cert != key:
            raise ConfigError(f"{cert} and {key} do not match", key="tls.server.keyPath")
        self.made.append(cert)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def later(self) -> ssl.SSLContext:
        self.clock.now_ms += CHECK_INTERVAL_MS
        return self.watched()


def in_place(files: Files, text: str) -> None:
    for path in files.paths:
        path.write_text(text)


def by_rename(files: Files, text: str) -> None:
    for path in files.paths:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)


@pytest.mark.parametrize("renew", [in_place, by_rename])
def test_watched_context_is_made_again_when_its_files_change(tmp_path: Path, renew: object) -> None:
    assert callable(renew)
    files = Files(tmp_path)
    first = files.watched()
    assert files.later() is first
    renew(files, "22")
    assert files.watched() is first, "the files are not looked at with each connection"
    second = files.later()
    assert second is not first
    assert files.later() is second
    assert files.made == ["1", "22"]


def test_watched_context_follows_a_link_to_another_directory(tmp_path: Path) -> None:
    for text in ("1", "2"):
        (tmp_path / text).mkdir()
        for name in ("tls.crt", "tls.key"):
            (tmp_path / text / name).write_text(text)
    data = tmp_path / "..data"
    data.symlink_to(tmp_path / "1")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    files = Files(tmp_path)
    files.paths = [mounted / "tls.crt", mounted / "tls.key"]
    for path in files.paths:
        path.symlink_to(data / path.name)
    watched = WatchedContext(files.make, map(str, files.paths), files.clock)
    first = watched()
    new = tmp_path / "..new"
    new.symlink_to(tmp_path / "2")
    os.rename(new, data)
    files.clock.now_ms += CHECK_INTERVAL_MS
    assert watched() is not first
    assert files.made[-2:] == ["1", "2"]


def test_watched_context_stays_with_a_warning_while_its_files_do_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = Files(tmp_path)
    first = files.watched()
    files.paths[0].write_text("22")  # the certificate first, then the key
    for _ in range(3):
        assert files.later() is first
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert ["22 and 1 do not match" in each.getMessage() for each in warned] == [True]
    files.paths[1].write_text("22")
    assert files.later() is not first
    files.paths[0].unlink()
    second = files.later()
    files.paths[0].write_text("22")
    assert files.later() is not second
    assert files.made == ["1", "22", "22"]


def test_watched_context_needs_usable_files_at_the_start(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        watch_server(TlsServerConfig(key_path=missing, cert_path=missing), FakeClock())
    with pytest.raises(ConfigError, match=r"missing\.pem"):
        watch_client(TlsClientConfig(enable=True, trust_cert_path=missing), FakeClock())
    assert watch_server(TlsServerConfig(), FakeClock()) is None
    assert watch_client(TlsClientConfig(), FakeClock()) is None


def test_watched_context_reports_a_certificate_near_its_end_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    day_ms = 86_400_000
    end_ms = 1_000 * day_ms
    monkeypatch.setattr(tls_context, "expires_ms", lambda pem: end_ms if pem == "1" else None)
    files = Files(tmp_path)
    files.clock.now_ms = end_ms - 20 * day_ms
    files.watched = WatchedContext(files.make, map(str, files.paths), files.clock)
    caplog.clear()
    for _ in range(25 * 24):
        files.clock.now_ms += day_ms // 24
        files.watched()
    lines = [each.getMessage() for each in caplog.records]
    assert [line.partition(":")[0] for line in lines] == (
        ["certificate expires soon"] * 14 + ["certificate has expired"] * 6
    )
    assert lines[0].endswith(f"path={files.paths[0]} expires=1972-09-27T00:00:00+00:00")
    in_place(files, "22")
    files.clock.now_ms += day_ms
    files.watched()
    assert [each.getMessage() for each in caplog.records] == lines, "the new one has no end here"
