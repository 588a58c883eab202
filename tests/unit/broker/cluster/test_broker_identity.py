"""Names and addresses of a broker."""

import socket

import pytest

from rocketpy.broker.cluster import broker_identity
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import StartError
from rocketpy.runtime.os_resources import local_ip


def identity(broker_ip1: str) -> BrokerIdentity:
    return BrokerIdentity(BrokerConfig(broker_ip1=broker_ip1))


def test_identity_ip_address_is_used_unchanged() -> None:
    broker = identity("10.1.2.3")
    broker.listens_on(10911)
    assert broker.address == "10.1.2.3:10911"
    assert broker.store_host == bytes([10, 1, 2, 3]) + (10911).to_bytes(4, "big")


def test_identity_ipv6_store_host_has_20_bytes() -> None:
    broker = identity("::1")
    broker.listens_on(10911)
    assert broker.address == "[::1]:10911"
    assert broker.store_host == bytes(15) + b"\x01" + (10911).to_bytes(4, "big")


@pytest.mark.parametrize(("name", "asked"), [("broker-a", b"broker-a"), ("bröker", "bröker")])
def test_identity_host_name_is_published_and_its_address_stored(
    name: str, asked: bytes | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: bytes | str, port: object, **_: object) -> list[object]:
        assert host == asked
        v6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", 0, 0, 0))
        v4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("172.18.0.3", 0))
        return [v6, v4]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    broker = identity(name)
    broker.listens_on(7)
    assert broker.address == f"{name}:7"
    assert broker.store_host == bytes([172, 18, 0, 3, 0, 0, 0, 7])


def test_identity_unknown_host_name_is_start_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    broker = identity("no-such-host")
    with pytest.raises(StartError, match="brokerIP1: the host name 'no-such-host' cannot be"):
        broker.listens_on(10911)
    assert not broker.address


def test_identity_host_name_without_descriptors_names_their_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resolve(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(broker_identity, "has_descriptor", lambda: False)
    with pytest.raises(StartError, match=r"no file descriptor is left: raise ulimit -n"):
        identity("broker-a").listens_on(10911)


def test_identity_without_setting_uses_local_address() -> None:
    assert identity("").ip == local_ip()
