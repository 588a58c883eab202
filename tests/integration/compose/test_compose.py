"""docker-compose.yml: commands, health checks, and a client of the services."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import RocketPyError
from tests.integration.compose.stack import Stack, load

MESSAGES = 40


pytestmark = pytest.mark.timeout(400)


@contextmanager
def running(made: Stack) -> Iterator[Stack]:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.2", 0))
    except OSError:
        pytest.skip("this machine has one loopback address only")
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(Stack(tmp_path)) as made:
        yield made


def test_every_service_has_what_it_needs() -> None:
    document = load()
    pair = {"pair-master", "pair-slave"}
    assert set(document["services"]) == {"namesrv", "broker-a", "broker-b", *pair}
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
        assert service.get("profiles") == (["pair"] if name in pair else None)
        secret = any("/run/secrets/replication" in word for word in service["command"])
        assert secret == (name in pair) == (service.get("secrets") == ["replication"])


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


# ---- the profile `pair`


class Load:
    """Sends and receives without a pause.

    Attributes:
        acknowledged: bodies whose send was answered SEND_OK.
        received: bodies that the consumer got.
    """

    def __init__(self, client: rocketpy.Client) -> None:
        self.acknowledged: set[bytes] = set()
        self.received: set[bytes] = set()
        self._client = client
        self._changed = asyncio.Event()

    async def send(self) -> None:
        producer = self._client.producer(timeout=5)
        number = 0
        while True:
            number += 1
            body = b"%d" % number
            with suppress(RocketPyError):  # unknown, as long as one side is away
                result = await producer.send("compose", body)
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged.add(body)
                    self._changed.set()
            await asyncio.sleep(0.01)

    async def receive(self) -> None:
        consumer = self._client.consumer("compose", group="readers", start="earliest")
        async with consumer:
            async for message in consumer:
                self.received.add(message.body)
                self._changed.set()

    async def all_received(self) -> None:
        """Wait until everything that was acknowledged by now was received."""
        wanted = set(self.acknowledged)
        await self._until(lambda: wanted <= self.received)

    async def more(self, count: int = 50) -> None:
        """Wait until further messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        await self._until(lambda: len(self.acknowledged) >= wanted)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


async def kill_each_side(stack: Stack) -> None:
    master, slave = stack.services["pair-master"], stack.services["pair-slave"]
    namesrv = stack.services["namesrv"].endpoint
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic("compose", queues=4)
    async with rocketpy.connect(namesrv, route_refresh_interval=1) as client:
        load = Load(client)
        tasks = [asyncio.create_task(load.send()), asyncio.create_task(load.receive())]
        await load.more()
        for killed in (slave, master, slave, master):
            assert killed.process is not None
            killed.process.kill()
            killed.process.wait()
            # The other side has everything: a slave serves it without its master.
            await load.all_received()
            await asyncio.to_thread(stack.run, killed)
            await asyncio.to_thread(stack.wait_healthy, killed)
            await load.more()
        tasks[0].cancel()
        await load.all_received()
        tasks[1].cancel()
        await asyncio.wait(tasks)
    lost = load.acknowledged - load.received
    assert not lost, f"{len(lost)} of {len(load.acknowledged)}"


def test_pair_loses_nothing_acknowledged_when_each_side_is_killed(tmp_path: Path) -> None:
    with running(Stack(tmp_path, ("namesrv", "pair-master", "pair-slave"))) as stack:
        stack.start()
        asyncio.run(kill_each_side(stack))
        for name in ("pair-slave", "pair-master", "namesrv"):
            assert stack.stop(name) == 0, stack.services[name].log
        logs = [
            b"".join(
                path.read_bytes()
                for path in sorted((stack.services[name].directory / "store/commitlog").iterdir())
            ).rstrip(b"\0")
            for name in ("pair-master", "pair-slave")
        ]
        assert logs[0].startswith(logs[1]), "the slave's log is a part of the master's"
