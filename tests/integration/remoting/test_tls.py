import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import ConnectError, ConnectionLostError
from rocketpy.proto.wire.command import make_request, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig
from rocketpy.remoting.network import tls_context
from tests.integration.remoting.helpers import (
    BIG,
    ECHO,
    RawPeer,
    client,
    make_server,
    numbered,
    serving,
    until,
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl tool")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Key and certificate for localhost, made by openssl."""
    return make_certificate(tmp_path_factory.mktemp("tls"))


def server_tls(certificate: tuple[str, str], **settings: Any) -> TlsServerConfig:
    return TlsServerConfig(key_path=certificate[0], cert_path=certificate[1], **settings)


async def test_permissive_takes_tls_and_plain_on_one_port(certificate: tuple[str, str]) -> None:
    tls = TlsClientConfig(enable=True)
    async with (
        serving(tls=server_tls(certificate)) as (_, address),
        client(tls=tls) as secret,
        client() as plain,
    ):
        for caller in (secret, plain):
            response = await caller.invoke(address, make_request(ECHO, None, b"x" * 100_000), 3000)
            assert response.body == b"x" * 100_000
            responses = await asyncio.gather(
                *(caller.invoke(address, make_request(BIG), 5000) for _ in range(40))
            )
            assert {len(response.body) for response in responses} == {256 * 1024}


async def test_certificate_is_checked_when_asked(certificate: tuple[str, str]) -> None:
    trusting = TlsClientConfig(enable=True, auth_server=True, trust_cert_path=certificate[1])
    strict = TlsClientConfig(enable=True, auth_server=True)
    async with (
        serving(tls=server_tls(certificate)) as (_, address),
        client(tls=trusting) as knows,
        client(tls=strict) as stranger,
    ):
        assert (await knows.invoke(address, make_request(ECHO), 3000)).code == 0
        with pytest.raises(ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await stranger.invoke(address, make_request(ECHO), 3000)


def make_certificate(folder: Path) -> tuple[str, str]:
    """Return key and certificate for localhost, made by openssl."""
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        f" -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    return key, cert


async def test_renewed_certificates_of_both_sides_are_used_for_new_connections(
    certificate: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_context, "CHECK_INTERVAL_MS", 0)
    (tmp_path / "new").mkdir()
    newer = make_certificate(tmp_path / "new")
    used = (str(tmp_path / "key.pem"), str(tmp_path / "cert.pem"))

    def install(source: tuple[str, str]) -> None:
        for new, path in zip(source, used, strict=True):
            shutil.copy(new, path)

    install(certificate)
    server = server_tls(used, need_client_auth=ClientAuth.REQUIRE, trust_cert_path=used[1])

    def own(pair: tuple[str, str]) -> TlsClientConfig:
        return TlsClientConfig(
            enable=True, auth_server=True, key_path=pair[0], cert_path=pair[1],
            trust_cert_path=pair[1],
        )  # fmt: skip

    async def answers(caller: RemotingClient, address: str) -> bool:
        try:
            return (await caller.invoke(address, make_request(ECHO), 3000)).code == 0
        except (ConnectError, ConnectionLostError):
            return False

    async with (
        serving(tls=server) as (_, address),
        client(tls=own(used)) as stays,
        client(tls=own(used)) as connects_later,
    ):
        assert await answers(stays, address)
        async with client(tls=own(newer)) as early:
            assert not await answers(early, address)
        install(newer)
        assert await answers(stays, address), "its connection stays"
        async with client(tls=own(newer)) as renewed, client(tls=own(certificate)) as old:
            assert await answers(renewed, address)
            assert not await answers(old, address)
        assert await answers(connects_later, address), "it has read its files again"


async def test_enforcing_refuses_plain_text(certificate: tuple[str, str]) -> None:
    tls = server_tls(certificate, mode=TlsMode.ENFORCING)
    async with (
        serving(tls=tls) as (_, address),
        client(tls=TlsClientConfig(enable=True)) as secret,
        client() as plain,
    ):
        assert (await secret.invoke(address, make_request(ECHO), 3000)).code == 0
        with pytest.raises(ConnectionLostError, match="perhaps it accepts TLS only"):
            await plain.invoke(address, make_request(ECHO), 3000)
        peer = await RawPeer.connect(address)
        peer.send(numbered(ECHO, 1))
        assert await peer.is_closed_by_peer()
        await peer.close()


async def test_disabled_refuses_tls(certificate: tuple[str, str]) -> None:
    tls = server_tls(certificate, mode=TlsMode.DISABLED)
    async with (
        serving(tls=tls) as (_, address),
        client(tls=TlsClientConfig(enable=True)) as secret,
    ):
        with pytest.raises(ConnectError, match="TLS handshake failed, check the server's TLS mode"):
            await secret.invoke(address, make_request(ECHO), 3000)


async def failed(call: Awaitable[object]) -> bool:
    """Return whether a call fails with an error that names certificates."""
    try:
        await call
    except (ConnectError, ConnectionLostError) as error:
        return "certificate" in str(error)
    return False


async def test_client_certificate_is_required_when_configured(certificate: tuple[str, str]) -> None:
    key, cert = certificate
    tls = server_tls(certificate, need_client_auth=ClientAuth.REQUIRE, trust_cert_path=cert)
    async with (
        serving(tls=tls) as (_, address),
        client(tls=TlsClientConfig(enable=True, key_path=key, cert_path=cert)) as known,
        client(tls=TlsClientConfig(enable=True)) as unknown,
    ):
        assert (await known.invoke(address, make_request(ECHO), 3000)).code == 0
        assert await failed(unknown.invoke(address, make_request(ECHO), 3000))


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x00\x10\x01"])
async def test_missing_tls_handshake_times_out(certificate: tuple[str, str], first: bytes) -> None:
    async with serving(tls=server_tls(certificate), first_frame_timeout_ms=200) as (
        server,
        address,
    ):
        half = await RawPeer.connect(address)
        half.writer.write(first)
        assert await half.is_closed_by_peer()
        await until(lambda: server.connection_count == 0)
        await half.close()


async def test_stop_does_not_wait_for_a_peer_that_says_nothing(
    certificate: tuple[str, str],
) -> None:
    async with serving(tls=server_tls(certificate)) as (server, address):
        half = await RawPeer.connect(address)
        await until(lambda: server.connection_count == 1)
        await asyncio.wait_for(server.stop(100), 5)
        assert await half.is_closed_by_peer()
        assert server.connection_count == 0
        await half.close()


async def test_proxy_may_pass_tls_on(certificate: tuple[str, str]) -> None:
    server = make_server(tls=server_tls(certificate), proxy_protocol=True)
    server.register(98, lambda channel, c: make_response(c, 0, channel.remote_address))
    await server.start()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"PROXY TCP4 10.1.2.3 10.0.0.1 4567 10911\r\n")
    await writer.start_tls(context)
    peer = RawPeer(reader, writer)
    peer.send(numbered(98, 1))
    assert (await peer.receive()).remark == "10.1.2.3:4567"
    await peer.close()
    await server.stop()


async def test_connection_over_tls_can_be_reset(certificate: tuple[str, str]) -> None:
    server = make_server(tls=server_tls(certificate))
    server.register(98, lambda channel, c: channel.abort("deliberate"))
    await server.start()
    async with client(tls=TlsClientConfig(enable=True)) as caller:
        address = f"127.0.0.1:{server.port}"
        assert (await caller.invoke(address, make_request(ECHO), 3000)).code == 0
        with pytest.raises(ConnectionLostError):
            await caller.invoke(address, make_request(98), 3000)
        await until(lambda: server.connection_count == 0)
        assert (await caller.invoke(address, make_request(ECHO), 3000)).code == 0
    await server.stop()


async def test_broken_handshake_costs_its_own_connection_only(certificate: tuple[str, str]) -> None:
    async with serving(tls=server_tls(certificate)) as (_, address):
        bad = await RawPeer.connect(address)
        bad.writer.write(b"\x16\x03\x01\x00\x10" + b"\xff" * 16)
        await bad.reader.read()
        await bad.close()
        good = await RawPeer.connect(address)
        good.send(numbered(ECHO, 1))
        assert (await good.receive()).code == 0
        await good.close()


async def test_silent_peers_give_way_before_they_have_said_whether_they_speak_tls(
    certificate: tuple[str, str],
) -> None:
    async with (
        serving(tls=server_tls(certificate), server_max_connections=3) as (server, address),
        client(tls=TlsClientConfig(enable=True)) as honest,
    ):
        silent = [await RawPeer.connect(address) for _ in range(8)]
        assert (await honest.invoke(address, make_request(ECHO), 3000)).code == 0
        for peer in silent[:5]:
            assert await peer.is_closed_by_peer()
        assert server.connection_count == 3
        for peer in silent:
            await peer.close()
        await until(lambda: server.connection_count == 1)
