"""HA port over TLS: both sides present a certificate of the same authority, or are refused."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.replication.acknowledgements import Acknowledgements
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.broker.replication.handshake import PairIdentity
from rocketpy.broker.replication.store_log import LogCopy, StoreLog
from rocketpy.remoting.config import TlsClientConfig, TlsServerConfig
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.remoting.network.socket_network import SocketNetwork
from rocketpy.remoting.network.tls_context import watch_mutual
from rocketpy.runtime.clock import SystemClock
from tests.integration.remoting.helpers import until
from tests.unit.broker.replication.kit import FILE_BYTES, Addresses, FakeStore

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl tool")

CONFIG = ReplicationConfig(in_sync_replicas=2, ha_tls_enable=True)


def certificate(directory: Path, name: str) -> tuple[str, str]:
    """Return key and certificate of a new authority."""
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subprocess.run(
        f"openssl {words} -subj /CN={name} -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    return str(key), str(cert)


def contexts(own: tuple[str, str], trusted: tuple[str, str]) -> Any:
    files: Any = {"key_path": own[0], "cert_path": own[1], "trust_cert_path": trusted[1]}
    return watch_mutual(TlsServerConfig(**files), TlsClientConfig(**files), SystemClock())


async def start(store: FakeStore, copy: FakeStore, server_tls: Any, client_tls: Any) -> Any:
    clock, network = SystemClock(), SocketNetwork()
    server = HaServer(
        CONFIG,
        identity=PairIdentity(cluster="c", name="b", broker_id=0, secret=b""),
        log=StoreLog(store, FILE_BYTES),
        replicas=store.replicas,
        acknowledgements=Acknowledgements(CONFIG, waits=True),
        clock=clock,
        timer=lambda: 0.0,
        new_nonce=lambda: bytes(32),
    )
    endpoint = ListenEndpoint(
        name="ha", address="127.0.0.1", port=0, tls=server_tls, plain_allowed=False,
        first_bytes_timeout_ms=5_000,
    )  # fmt: skip
    await server.start(network, endpoint)

    async def speaks_pair(_address: str) -> int:
        return 1

    client = HaClient(
        CONFIG,
        identity=PairIdentity(cluster="c", name="b", broker_id=1, secret=b""),
        copy=LogCopy(copy, FILE_BYTES, confirms_disk=False),
        network=network,
        tls=client_tls,
        master=lambda: Addresses("127.0.0.1:1", f"127.0.0.1:{server.port}"),
        ask_protocol=speaks_pair,
        clock=clock,
        new_nonce=lambda: bytes(32),
    )
    client.start()
    return server, client


async def test_pair_with_certificates_of_one_authority_replicates(tmp_path: Path) -> None:
    own = certificate(tmp_path, "own")
    log, copy = FakeStore(bytes(300_000), identity="x"), FakeStore()
    server, client = await start(log, copy, *contexts(own, own))
    try:
        await until(lambda: log.replicas.confirmed == 300_000)
        assert copy.data == log.data
        end = log.put(b"more")
        await until(lambda: log.replicas.confirmed == end)
    finally:
        await client.stop()
        await server.stop()


@pytest.mark.parametrize("side", ["master", "slave"])
async def test_certificate_of_another_authority_is_refused(tmp_path: Path, side: str) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    log, copy = FakeStore(b"one", identity="x"), FakeStore()
    server_tls, _ = contexts(own, other if side == "slave" else own)
    _, client_tls = contexts(own, other if side == "master" else own)
    server, client = await start(log, copy, server_tls, client_tls)
    try:
        await until(lambda: bool(client.state.reason))
        assert copy.data == b""
        assert log.replicas.confirmed == 0
    finally:
        await client.stop()
        await server.stop()
