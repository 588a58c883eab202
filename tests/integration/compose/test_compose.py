"""docker-compose.yml: commands, health checks, and a client of the services."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from tests.integration.compose.stack import Stack, load

MESSAGES = 40


pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        pytest.skip("this machine has one loopback address only")
    made = Stack(tmp_path)
    try:
        yield made
    finally:
        made.kill()


def test_every_service_has_what_it_needs() -> None:
    document = load()
    assert set(document["services"]) == {"namesrv", "broker-a", "broker-b"}
    for name, service in document["services"].items():
        [volume] = service["volumes"]
        assert volume == f"{name}:/data"
        assert name in document["volumes"]
        assert service["healthcheck"]["test"][:4] == ["CMD", "rocketpy", "cluster", "ping"]
        assert service["image"] == "rocketpy"
        assert service["restart"] == "unless-stopped"
        [published] = service["ports"]
        address, outside, inside = published.split(":")
        assert address == "127.0.0.1"  # there is no authentication
        assert outside == inside  # what a broker tells clients is right for those outside, too
        assert any(inside in word for word in service["command"])
        assert any(inside in word for word in service["healthcheck"]["test"])


def test_every_service_is_confined_and_bounds_its_logs() -> None:
    for service in load()["services"].values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["ulimits"]["nofile"] >= 4_096
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
        assert "--ready" in service["healthcheck"]["test"]


async def exchange(namesrv: str) -> tuple[set[str], set[bytes]]:
    """Send to both brokers and receive everything; returns broker names and bodies."""
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic("compose", queues=4)
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer()
        results = [await producer.send("compose", f"m{n}".encode()) for n in range(MESSAGES)]
        received: set[bytes] = set()
        consumer = client.consumer("compose", group="readers", start="earliest")
        async with consumer, asyncio.timeout(60):
            async for message in consumer:
                received.add(message.body)
                if len(received) == MESSAGES:
                    break
    return {result.queue.broker_name for result in results}, received


def test_services_start_response_and_stop(stack: Stack) -> None:
    stack.start()
    assert all(stack.check(service) == 0 for service in stack.services.values())

    brokers, received = asyncio.run(exchange(stack.services["namesrv"].endpoint))
    assert brokers == {"broker-a", "broker-b"}
    assert received == {f"m{n}".encode() for n in range(MESSAGES)}
    for name in ("broker-a", "broker-b"):
        assert list((stack.services[name].directory / "store" / "commitlog").iterdir())

    for name in ("broker-b", "broker-a", "namesrv"):
        assert stack.stop(name) == 0, stack.services[name].log
        assert stack.check(stack.services[name]) == 1
    assert not list(stack.elsewhere.iterdir())
