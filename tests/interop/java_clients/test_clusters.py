"""More than one server, TLS, and where a new group starts on an old topic."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.config import TlsMode, TlsServerConfig
from rocketpy.remoting.connection.channel import Channel
from tests.interop.java_clients.cluster import Servers
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for
from tests.sampling import sample

VERSIONS = pytest.mark.parametrize("version", sample(["5.4.0", "4.9.8"], 2))


@contextmanager
def own_client(
    version: str,
    namesrv: str,
    home: Path,
    *,
    tls: bool = False,
    rebalance_ms: int | None = 1_000,
) -> Iterator[JavaClient]:
    client = JavaClient(version, namesrv, home, tls=tls, rebalance_ms=rebalance_ms)
    try:
        yield client
    finally:
        client.close()


@VERSIONS
def test_two_brokers_two_name_servers(jdk: None, tmp_path: Path, version: str) -> None:
    with (
        Servers(tmp_path, name_servers=2, brokers=2) as servers,
        # The one test that keeps the client's own interval of 20 s.
        own_client(version, servers.namesrv, tmp_path / "home", rebalance_ms=None) as java,
    ):
        producer = java.producer()
        sent = java.send(producer, "Two", count=16)
        assert {(one["broker"], one["queueId"]) for one in sent} == {
            (broker, queue) for broker in ("broker-a", "broker-b") for queue in range(4)
        }
        consumer = java.push("gTwo", "Two")
        assert len(java.receive(consumer, 16)) == 16
        servers.stop_broker(1)
        after = java.send(producer, "Two", count=12, body="after")
        assert {one["broker"] for one in after} == {"broker-a"}
        assert bodies(java.receive(consumer, 12)) == sorted(f"after-{n}" for n in range(12))


@VERSIONS
def test_tls(jdk: None, tmp_path: Path, version: str) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    tls = TlsServerConfig(mode=TlsMode.ENFORCING, key_path=str(key), cert_path=str(certificate))
    with (
        Servers(tmp_path, tls=tls) as servers,
        own_client(version, servers.namesrv, tmp_path / "home", tls=True) as java,
    ):
        producer = java.producer()
        java.send(producer, "Tls", count=5)
        java.send(producer, "Tls", count=1, size=1 << 20)
        java.send(producer, "Tls", mode="async", count=50)
        consumer = java.push("gTls", "Tls")
        assert len(java.receive(consumer, 56)) == 56


@VERSIONS
def test_new_group_starts_at_consume_from_where(jdk: None, tmp_path: Path, version: str) -> None:
    # Messages that are no longer in memory make a topic old; a young one is given whole.
    old = {"accessMessageInMemoryMaxRatio": "0"}
    pulled: set[tuple[str, str]] = set()

    def note_pulls(_channel: Channel, request: RemotingCommand) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            pulled.add((request.ext_fields["consumerGroup"], request.ext_fields["queueId"]))

    with (
        Servers(tmp_path, properties=old, guards={0: note_pulls}) as servers,
        own_client(version, servers.namesrv, tmp_path / "home") as java,
    ):
        producer = java.producer()
        java.send(producer, "Where", count=8, body="old")
        time.sleep(2)  # the setting's resolution is a second
        between = time.strftime("%Y%m%d%H%M%S")
        time.sleep(1)
        java.send(producer, "Where", count=8, body="middle")
        last = java.push("gLast", "Where", **{"from": "last"})
        first = java.push("gFirst", "Where", **{"from": "first"})
        timed = java.push("gTimed", "Where", **{"from": between})
        wait_for(lambda: java.owned(last) == [0, 1, 2, 3])
        assert len(java.receive(first, 16)) == 16
        assert bodies(java.receive(timed, 8)) == [f"middle-{number}" for number in range(8)]
        # It knows where it starts when it has pulled.
        wait_for(lambda: {("gLast", f"{queue}") for queue in range(4)} <= pulled)
        java.send(producer, "Where", count=8, body="new")
        assert bodies(java.receive(last, 8)) == [f"new-{number}" for number in range(8)]


def test_new_group_gets_a_young_topic_whole(java: JavaClient, topic: str, group: str) -> None:
    java.send(java.producer(), topic, count=8)
    consumer = java.push(group, topic, **{"from": "last"})
    assert len(java.receive(consumer, 8)) == 8
    java.stop(consumer)
