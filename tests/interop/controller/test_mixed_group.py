"""A replica of RocketPy and one of Apache in one group: each of them is the master in turn."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.errors import RocketPyError
from rocketpy.testing.cluster import SMALL_STORE
from tests.integration.broker.pair import until
from tests.integration.client.daemons import Daemon
from tests.interop.controller.apache_broker import ApacheBroker
from tests.interop.controller.apache_controller import ApacheController
from tests.interop.controller.test_apache_brokers import (
    LIMIT_S,
    NAME,
    TOPIC,
    World,
    is_sent,
    send,
)
from tests.peer.apache import require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


class OurBroker:
    """Broker of ours as a process, which a test may kill and start again."""

    def __init__(self, home: Path, namesrv: str, controller: str) -> None:
        home.mkdir(parents=True)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._home = home
        values = {
            **SMALL_STORE,
            "brokerClusterName": "DefaultCluster",
            "brokerName": NAME,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(free_port()),
            "storePathRootDir": str(home / "store"),
            "enableControllerMode": "true",
            "controllerAddr": controller,
            "haAllowedPeers": "127.0.0.1",
            # Apache's default; ours is 2.
            "minInSyncReplicas": "1",
        }
        words = [word for pair in values.items() for word in ("-D", "=".join(pair))]
        self._daemon = Daemon(home / "broker.log", "broker", "-n", namesrv, *words)

    @property
    def log(self) -> bytes:
        files = sorted((self._home / "store" / "commitlog").glob("*"))
        return b"".join(each.read_bytes() for each in files).rstrip(b"\0")

    def start(self) -> None:
        self._daemon.start()

    def kill(self) -> None:
        self._daemon.end()


Broker = OurBroker | ApacheBroker


class Mixed(World):
    """Group of one replica of each kind.

    Args:
        directory: of everything.
        apache: a controller of Apache instead of ours.
    """

    def __init__(self, directory: Path, apache: ApacheController | None = None) -> None:
        super().__init__(directory, is_beside=False)
        self.apache_controller = apache
        if apache is not None:
            self.controller = apache.address
            del self.daemons["controller"]
        self.ours = OurBroker(directory / "ours", self.namesrv, self.controller)
        self.apache = ApacheBroker(directory / "apache", self.namesrv, self.controller)

    async def start(self, first: Broker, second: Broker) -> None:
        """Start the group; the first replica becomes the master, and creates the topic."""
        await asyncio.to_thread(first.start)
        await self.until_set(1, 1)

        async def is_created() -> bool:
            async with rocketpy.admin.connect(self.namesrv) as admin:
                try:
                    await admin.create_topic(TOPIC, queues=1)
                except RocketPyError:
                    return False
                return True

        await until(is_created, "the topic is created", LIMIT_S)
        await asyncio.to_thread(second.start)
        await self.until_set(1, 1, 2)

    async def until_equal(self) -> None:
        async def is_equal() -> bool:
            return await asyncio.to_thread(lambda: self.ours.log == self.apache.log)

        await until(is_equal, "the logs are equal, byte for byte", LIMIT_S)

    async def until_read(self, broker: Broker, bodies: list[bytes]) -> None:
        async def has_all() -> bool:
            return set(bodies) <= set(await self.read(broker))

        await until(has_all, "every acknowledged message can be read", LIMIT_S)

    async def end(self) -> None:
        await self.close()
        self.ours.kill()
        self.apache.kill()
        for daemon in self.daemons.values():
            daemon.end()
        if self.apache_controller is not None:
            self.apache_controller.end()


def bodies_of(name: str, count: int = 20) -> list[bytes]:
    return [b"%s %d" % (name.encode(), number) for number in range(count)]


@asynccontextmanager
async def mixed(
    directory: Path, first: str, apache: ApacheController | None = None
) -> AsyncIterator[tuple[Mixed, Broker, Broker, list[bytes]]]:
    """Start a group with equal logs; yield it, the master, the other one, and what was sent."""
    world = Mixed(directory, apache)
    pair: tuple[Broker, Broker] = world.ours, world.apache
    one, two = pair if first == "ours" else pair[::-1]
    try:
        for daemon in world.daemons.values():
            await asyncio.to_thread(daemon.start)
        await world.start(one, two)
        sent = bodies_of("both")
        await send(world, sent)
        await world.until_equal()
        yield world, one, two, sent
    finally:
        await world.end()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    require_peer()
    return tmp_path


@pytest.mark.alternate
@pytest.mark.parametrize("first", ["ours", "apache"])
@pytest.mark.parametrize("controller", ["our controller", "controller of apache"])
async def test_killed_master_is_replaced_by_the_other_kind_and_returns(
    directory: Path, first: str, controller: str
) -> None:
    apache = None
    if controller == "controller of apache":
        apache = ApacheController(directory / "controller-of-apache")
        await asyncio.to_thread(apache.start)
    async with mixed(directory, first, apache) as (world, one, two, both):
        sent = [*both]
        one.kill()
        await world.until_set(2, 2)
        alone = bodies_of("without the first")
        await send(world, alone)
        sent += alone
        await world.until_read(two, sent)
        await asyncio.to_thread(one.start)
        await world.until_set(2, 1, 2)
        again = bodies_of("both again")
        await send(world, again)
        sent += again
        await world.until_equal()

        two.kill()
        await world.until_set(1, 1)
        last = bodies_of("without the second")
        await send(world, last)
        sent += last
        await world.until_read(one, sent)
        await asyncio.to_thread(two.start)
        await world.until_set(1, 1, 2)
        await send(world, [b"last"])
        await world.until_equal()


@pytest.mark.alternate
@pytest.mark.parametrize("first", ["ours", "apache"])
async def test_returning_master_cuts_off_what_the_other_kind_does_not_have(
    directory: Path, first: str
) -> None:
    async with mixed(directory, first) as (world, one, two, both):
        sent = [*both]
        # The controller keeps the set: only the second one has a right to be elected then.
        world.daemons["controller"].signal(signal.SIGKILL)
        two.kill()
        lost = bodies_of("only the first", 5)
        async with rocketpy.connect(world.namesrv) as client, client.producer() as producer:
            answers = [await is_sent(producer, body) for body in lost]
        one.kill()
        # Apache's master acknowledges alone at once, when the connection of its slave closes.
        if first == "ours":
            assert not any(answers)
        world.daemons["controller"].start()
        await asyncio.to_thread(two.start)
        await world.until_set(2, 2)
        after = bodies_of("after")
        await send(world, after)
        sent += after
        await asyncio.to_thread(one.start)
        await world.until_set(2, 1, 2)
        await send(world, [b"last"])
        await world.until_equal()
        stored = await world.read(two)
        assert set(sent) <= set(stored)
        assert not set(lost) & set(stored)
