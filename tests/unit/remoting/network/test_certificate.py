"""End of a certificate, read from its file."""

import random
import shutil
import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rocketpy.remoting.network.certificate import expires_ms

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl tool")


def made(folder: Path, days: int, *more: str) -> str:
    path = folder / f"{days}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", str(days), "-subj", "/CN=localhost", "-keyout", str(folder / "key"),
         "-out", str(path), *more],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return path.read_text()


def as_openssl_says(folder: Path, days: int) -> int:
    done = subprocess.run(
        ["openssl", "x509", "-enddate", "-noout", "-in", str(folder / f"{days}.pem")],
        check=True,
        capture_output=True,
        text=True,
    )
    text = done.stdout.strip().removeprefix("notAfter=").removesuffix(" GMT")
    end = datetime.strptime(text, "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
    return int(end.timestamp() * 1_000)


@pytest.mark.parametrize("days", [1, 30, 20_000])
def test_expires_is_what_openssl_says(tmp_path: Path, days: int) -> None:
    """Years from 2050 on have another form."""
    pem = made(tmp_path, days)
    assert expires_ms(pem) == as_openssl_says(tmp_path, days)


def test_expires_of_a_chain_is_its_earliest_end(tmp_path: Path) -> None:
    chain = made(tmp_path, 300) + "a comment\n" + made(tmp_path, 3) + made(tmp_path, 30)
    assert expires_ms(chain) == as_openssl_says(tmp_path, 3)


def test_expires_of_what_is_no_certificate_is_unknown(tmp_path: Path) -> None:
    assert expires_ms("") is None
    assert expires_ms("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----") is None
    pem = made(tmp_path, 30)
    assert expires_ms((tmp_path / "key").read_text()) is None
    der = ssl.PEM_cert_to_DER_cert(pem)
    rng = random.Random(1)
    for end in range(0, len(der), 7):
        assert expires_ms(ssl.DER_cert_to_PEM_cert(der[:end])) is None
    for _ in range(500):
        damaged = bytearray(der)
        damaged[rng.randrange(150)] = rng.randrange(256)
        expires_ms(ssl.DER_cert_to_PEM_cert(bytes(damaged)))
