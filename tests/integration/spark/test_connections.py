"""Reads and writes over TLS, and over connections with corrupted frames, without Spark."""

import random
import re
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from rocketpy.errors import ConfigError, NoNameServerError, RocketPyError
from rocketpy.testing.cluster import ClusterThread
from tests.integration.spark.engine import read_batch
from tests.integration.spark.task import in_task, write
from tests.spark.fill import fill, stored

__all__ = ["in_task"]

# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Create a key and a certificate for 127.0.0.1 with openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl tool")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
        f" -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    return key, cert


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory, certificate: Any) -> Iterator[ClusterThread]:
    key, cert = certificate
    properties = {"tls.server.keyPath": key, "tls.server.certPath": cert}
    with ClusterThread(tmp_path_factory.mktemp("secret"), properties=properties) as running:
        fill(running, "T", queues=2, count=60)
        yield running


def tls_options(cert: str) -> dict[str, str]:
    return {
        "tls.enable": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": cert,
    }  # fmt: skip


@pytest.mark.usefixtures("in_task")
def test_read_and_write_over_tls(secret: ClusterThread, certificate: tuple[str, str]) -> None:
    options = tls_options(certificate[1])
    assert read_batch(secret, subscribe="T", **options) == stored(secret, "T")
    secret.create_topic("Written", 2)
    report = write(options | {"nameservers": secret.namesrv}, "Written", 40)
    assert report.rows == sum(each.rows for each in report.stored) == 40
    assert read_batch(secret, subscribe="Written", **options) == stored(secret, "Written")
    assert stored(secret, "Written").total() == 40


@pytest.mark.usefixtures("in_task")
def test_tls_untrusted_server_fails_on_the_driver(secret: ClusterThread) -> None:
    """Without a trusted authority the connection fails, so it really is TLS."""
    options = {"tls.enable": "true", "tls.client.authServer": "true", "timeoutMs": "2000"}
    with pytest.raises(NoNameServerError, match="certificate"):
        read_batch(secret, subscribe="T", **options)
    with pytest.raises(NoNameServerError, match="certificate"):
        write(options | {"nameservers": secret.namesrv}, "Elsewhere", 1)


@pytest.mark.usefixtures("in_task")
def test_write_and_read_in_a_namespace_use_the_users_names(cluster: ClusterThread) -> None:
    cluster.create_topic("ns%W", 2)
    cluster.create_topic("W", 2)
    options = {"namespace": "ns", "nameservers": cluster.namesrv}
    assert write(options, "W", 30).rows == 30
    assert stored(cluster, "ns%W").total() == 30
    assert not stored(cluster, "W")
    assert read_batch(cluster, subscribe="W", namespace="ns") == stored(cluster, "ns%W")


# ---- corrupted frames

Meddle = Callable[[bytes], tuple[bytes, bool]]
"""Called with a frame for the client; returns the frame to send, and whether to stay connected."""


class Meddler:
    """Proxy between a client and a server that changes frames."""

    def __init__(self, server: str, meddle: Meddle) -> None:
        host, _, port = server.rpartition(":")
        self._server = host, int(port)
        self._meddle = meddle
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    @staticmethod
    def _ask(client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                server.sendall(data)
        server.close()

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), server.makefile("rb") as frames, client:
            while head := frames.read(4):
                frame, stays = self._meddle(head + frames.read(struct.unpack(">i", head)[0]))
                client.sendall(frame)
                if not stays:
                    client.shutdown(socket.SHUT_RDWR)
                    return


def cut(frame: bytes) -> tuple[bytes, bool]:
    return frame[: len(frame) // 2], False


def wrong_opaque(frame: bytes) -> tuple[bytes, bool]:
    """Return a response with an unknown opaque, of the same length."""
    changed = re.sub(rb'"opaque":(\d+)', lambda found: b'"opaque":' + b"9" * len(found[1]), frame)
    assert changed != frame
    return changed, True


@pytest.fixture
def meddled(
    cluster: ClusterThread,
) -> Iterator[Callable[[Meddle], str]]:
    """Put a proxy between the broker and its clients; return the name server's address."""
    made: list[Meddler] = []

    def between(meddle: Meddle) -> str:
        broker = cluster.broker_addresses[0]
        made.append(Meddler(broker, meddle))
        inside, outside = (str(each).encode() for each in (broker.rpartition(":")[2], made[0].port))
        assert len(inside) == len(outside), "a frame's length would change"
        names = Meddler(cluster.namesrv, lambda frame: (frame.replace(inside, outside), True))
        made.append(names)
        return f"127.0.0.1:{names.port}"

    yield between
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster")) as running:
        fill(running, "T", queues=1, count=300)
        yield running


def is_pull(frame: bytes) -> bool:
    return b"nextBeginOffset" in frame


@pytest.mark.alternate
@pytest.mark.parametrize("harm", [cut, wrong_opaque])
def test_read_with_some_corrupted_responses_loses_no_rows(
    harm: Meddle, cluster: ClusterThread, meddled: Callable[[Meddle], str]
) -> None:
    seen = 0

    def now_and_then(frame: bytes) -> tuple[bytes, bool]:
        nonlocal seen
        seen += is_pull(frame)
        return harm(frame) if is_pull(frame) and seen in {2, 5} else (frame, True)

    options = {"subscribe": "T", "nameservers": meddled(now_and_then), "timeoutMs": "1000"}
    assert read_batch(cluster, **options) == stored(cluster, "T")
    assert seen > 5


@pytest.mark.parametrize("harm", [cut, wrong_opaque])
def test_read_with_only_corrupted_responses_fails(
    harm: Meddle, cluster: ClusterThread, meddled: Callable[[Meddle], str]
) -> None:
    def always(frame: bytes) -> tuple[bytes, bool]:
        return harm(frame) if is_pull(frame) else (frame, True)

    options = {"subscribe": "T", "nameservers": meddled(always), "fetch.timeoutMs": "1500"}
    with pytest.raises(RocketPyError, match=r"T.*broker-a|broker-a.*T"):
        read_batch(cluster, timeoutMs="1000", **options)


HARMS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "changed": lambda rng, body: bytes(
        rng.randrange(256) if rng.random() < 3 / len(body) else each for each in body
    ),
    "cut": lambda rng, body: body[: rng.randrange(len(body))],
    "zeros": lambda rng, body: body[: rng.randrange(len(body))].ljust(len(body), b"\0"),
    "twice": lambda _, body: body + body,
}


@pytest.mark.parametrize("harm", HARMS)
def test_read_of_corrupted_records_raises(
    harm: str, cluster: ClusterThread, meddled: Callable[[Meddle], str]
) -> None:
    rng = random.Random(harm)

    def spoil(frame: bytes) -> tuple[bytes, bool]:
        head_end = 8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)
        if not is_pull(frame) or len(frame) == head_end:
            return frame, True
        rest = frame[4:head_end] + HARMS[harm](rng, frame[head_end:])
        return len(rest).to_bytes(4, "big") + rest, True

    limits = {"timeoutMs": "1000", "fetch.timeoutMs": "500", "checkCrc": "true"}
    columns = "brokerName,queueId,queueOffset,body"
    options = {"subscribe": "T", "nameservers": meddled(spoil), "columns": columns, **limits}
    everything = stored(cluster, "T")
    for skips in ({}, {"onDamaged": "skip", "onDataLoss": "skip"}) * 4:
        try:
            found = read_batch(cluster, **options, **skips)
        except RocketPyError:
            continue
        assert not found - everything
        assert skips or found == everything
    assert read_batch(cluster, subscribe="T") == everything


def as_static(frame: bytes) -> tuple[bytes, bool]:
    """Return the route of a static topic, as Apache's name servers do."""
    head_end = 8 + (int.from_bytes(frame[4:8], "big") & 0xFFFFFF)
    body = frame[head_end:]
    if b'"queueDatas"' in body:
        mapping = b'"topicQueueMappingByBroker":{"broker-a":{"topic":"T","totalQueues":1}},'
        body = b"{" + mapping + body[1:]
    rest = frame[4:head_end] + body
    return len(rest).to_bytes(4, "big") + rest, True


def test_static_topic_fails_on_the_driver(cluster: ClusterThread) -> None:
    names = Meddler(cluster.namesrv, as_static)
    namesrv = f"127.0.0.1:{names.port}"
    with pytest.raises(ConfigError, match="T is a static topic"):
        read_batch(cluster, subscribe="T", nameservers=namesrv)
    with pytest.raises(ConfigError, match="T is a static topic"):
        write({"nameservers": namesrv}, "T", 1)
    names.close()
