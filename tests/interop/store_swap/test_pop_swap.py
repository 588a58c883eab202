"""Pop check points and acks across swaps: the second broker redelivers messages of the first."""

import asyncio
from pathlib import Path

import pytest

import rocketpy
from rocketpy import PoppedMessage
from rocketpy.testing.cluster import SMALL_STORE, LocalCluster
from tests.peer.apache import Apache, require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.long]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    require_peer()
    return tmp_path


def apache(home: Path) -> Apache:
    """Apache's name server and broker on a store below a directory."""
    sizes = tuple(f"{key}={value}" for key, value in SMALL_STORE.items())
    return Apache(home, sizes, heap="1g")


def ours(home: Path) -> LocalCluster:
    """Our broker on the same store, under the same names."""
    properties = {
        "brokerName": "apache-a",
        "storePathRootDir": str(home / "store"),
        "storePathCommitLog": str(home / "store/commitlog"),
    }
    return LocalCluster(home, properties=properties)


async def pop_two_and_ack_one(namesrv: str) -> bytes:
    """Returns the body of the one that is not acked."""
    async with rocketpy.connect(namesrv) as client:
        for number in range(2):
            await client.producer(timeout=30).send("swapped", b"%d" % number)
        options = {"group": "g", "start": "earliest", "invisible_time": 20}
        async with client.pop_consumer("swapped", **options) as consumer:  # type: ignore[arg-type]
            messages = aiter(consumer)
            await anext(messages)
            second = await anext(messages)  # the first one is acked by now
            return second.body


async def come_back(namesrv: str) -> list[tuple[bytes, int]]:
    """Return the messages received within more than the revive time."""
    got: list[tuple[bytes, int]] = []

    async def handle(message: PoppedMessage) -> None:
        got.append((message.body, message.retries))

    async with (
        rocketpy.connect(namesrv) as client,
        client.pop_consumer("swapped", group="g", start="earliest", handler=handle),
    ):
        async with asyncio.timeout(90):
            while not got:  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.1)
        await asyncio.sleep(5)
    return got


async def test_apache_revives_messages_popped_by_rocketpy(home: Path) -> None:
    async with ours(home) as cluster:
        left = await pop_two_and_ack_one(cluster.namesrv)
    with apache(home).borrowed() as servers:
        assert await come_back(servers.namesrv) == [(left, 1)]


async def test_rocketpy_revives_messages_popped_by_apache(home: Path) -> None:
    with apache(home).running() as servers:
        left = await pop_two_and_ack_one(servers.namesrv)
    async with ours(home) as cluster:
        assert await come_back(cluster.namesrv) == [(left, 1)]
