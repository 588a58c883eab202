"""docker-compose.yml: its services run as processes, with a client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from tests.integration.compose.stack import Stack, running
from tests.integration.compose.traffic import Load

MESSAGES = 40


pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running(Stack(tmp_path)) as made:
        yield made


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
    lost = load.acknowledged.keys() - load.received
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
