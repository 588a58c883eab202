"""Check points and acks change hands: what one broker popped, the other gives back."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rocketpy
from rocketpy import PoppedMessage
from rocketpy.testing.cluster import SMALL_STORE, LocalCluster
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
PEER = Path(__file__).parents[2] / "peer" / "peer.sh"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")
    return tmp_path


@contextmanager
def apache(home: Path) -> Iterator[str]:
    """Apache's name server and broker on a store below a directory."""
    port = free_port()
    ports = {"PEER_NS_PORT": str(port), "PEER_PORT": str(free_port()), "PEER_HEAP": "1g"}
    env = {**os.environ, **ports}
    sizes = [f"{key}={value}" for key, value in SMALL_STORE.items()]
    with (home / "start.log").open("ab") as log:
        command = ["bash", str(PEER), "start", str(home), *sizes]
        try:
            subprocess.run(command, env=env, check=True, stdout=log, stderr=log)
            yield f"127.0.0.1:{port}"
        finally:
            subprocess.run(["bash", PEER, "stop", home], env=env, check=True)


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
            await client.producer().send("swapped", b"%d" % number)
        options = {"group": "g", "start": "earliest", "invisible_s": 20}
        async with client.pop_consumer("swapped", **options) as consumer:  # type: ignore[arg-type]
            messages = aiter(consumer)
            await anext(messages)
            second = await anext(messages)  # the first one is acked by now
            return second.body


async def come_back(namesrv: str) -> list[tuple[bytes, int]]:
    """What comes in a while that is longer than it takes to give back."""
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


async def test_apache_gives_back_what_we_popped(home: Path) -> None:
    async with ours(home) as cluster:
        left = await pop_two_and_ack_one(cluster.namesrv)
    with apache(home) as namesrv:
        assert await come_back(namesrv) == [(left, 1)]


async def test_we_give_back_what_apache_popped(home: Path) -> None:
    with apache(home) as namesrv:
        left = await pop_two_and_ack_one(namesrv)
    async with ours(home) as cluster:
        assert await come_back(cluster.namesrv) == [(left, 1)]
