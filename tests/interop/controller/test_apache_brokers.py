"""Two brokers of Apache join our controller, which runs alone or beside our name server.

`mqadmin` asks and changes the controller meanwhile.
"""

import asyncio
import json
import random
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

import rocketpy
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.controller import BrokerReplicasInfo, ReplicasInfo
from rocketpy.proto.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.record.sys_flag import PULL_SUBSCRIPTION
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock
from tests.integration.broker.pair import until
from tests.integration.client.daemons import Daemon
from tests.interop.controller.apache_broker import ApacheBroker
from tests.interop.mqadmin.jvm import Mqadmin
from tests.peer.apache import require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, GROUP, NAME = "orders", "billing", "broker-a"
LIMIT_S = 200.0
"""A broker of Apache takes many seconds to join, and more on a busy machine."""


class Server(Protocol):
    """Broker that a test reads from."""

    address: str


class World:
    """Processes of a test, and its requests to them.

    Args:
        directory: of everything.
        is_beside: whether the controller is a part of the name server.
    """

    def __init__(self, directory: Path, *, is_beside: bool) -> None:
        self.namesrv = f"127.0.0.1:{free_port()}"
        self.controller = f"127.0.0.1:{free_port()}"
        keys = [
            "-D", f"controllerDLegerPeers=n0-{self.controller}",
            "-D", f"controllerStorePath={directory}/controller",
        ]  # fmt: skip
        local = ["-D", "bindAddress=127.0.0.1"]
        namesrv = ["namesrv", "-p", self.namesrv.partition(":")[2], *local,
                   "-D", f"dataDir={directory}/namesrv"]  # fmt: skip
        if is_beside:
            namesrv += ["-D", "enableControllerInNamesrv=true", *keys]
        self.daemons = {"namesrv": Daemon(directory / "namesrv.log", *namesrv)}
        if not is_beside:
            words = ["controller", *local, *keys]
            self.daemons["controller"] = Daemon(directory / "controller.log", *words)
        self.brokers = {
            name: ApacheBroker(directory / name, self.namesrv, self.controller)
            for name in ("one", "two")
        }
        self._client: RemotingClient | None = None
        self.measured: dict[str, float] = {}

    async def ask(
        self, address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        if self._client is None:
            self._client = RemotingClient(
                RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1)
            )
        return await self._client.invoke(
            address, make_request(code, {**(fields or {})}, body), 10_000
        )

    async def info(self) -> ReplicasInfo:
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self.ask(self.controller, code, body=json.dumps([NAME]).encode())
        return BrokerReplicasInfo.decode(response.body).replicas_info_table.get(
            NAME, ReplicasInfo()
        )

    async def hears_replicas(self) -> bool:
        """Return whether all members of the set are alive for the controller."""
        try:
            return all(each.alive for each in (await self.info()).in_sync_replicas)
        except RocketPyError:  # the connection was to the process before
            return False

    async def until_set(self, master: int | None, *members: int) -> ReplicasInfo:
        """Wait for a master (None: any) and its sync-state set."""

        async def is_there() -> bool:
            found = await self.info()
            ids = {each.broker_id for each in found.in_sync_replicas}
            return master in {None, found.master_broker_id} and ids == set(members)

        await until(is_there, f"master {master}, set {members}", LIMIT_S)
        return await self.info()

    async def read(self, broker: Server) -> list[bytes]:
        """Return the bodies of a topic.

        A slave fetches topics every minute: as the new master it may have made another one, with
        the usual number of queues.
        """
        queues = [await self._read(broker, number) for number in range(8)]
        return [body for each in queues for body in each]

    async def _read(self, broker: Server, queue_id: int) -> list[bytes]:
        bodies: list[bytes] = []
        offset = 0
        while True:
            header = PullMessageRequestHeader(
                consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, queue_offset=offset,
                max_msg_nums=32, sys_flag=PULL_SUBSCRIPTION, commit_offset=0,
                suspend_timeout_millis=0, subscription="*", sub_version=0,
            )  # fmt: skip
            response = await self.ask(broker.address, RequestCode.PULL_MESSAGE, header.to_ext())
            if response.code != 0:
                return bodies
            bodies += [each.body for each in decode_messages(response.body)]
            found = PullMessageResponseHeader.from_ext(response.ext_fields)
            offset = found.next_begin_offset

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    require_peer()
    made = World(tmp_path, is_beside=request.param == "beside")
    for daemon in made.daemons.values():
        daemon.start()
    yield made
    for broker in made.brokers.values():
        broker.kill()
    for daemon in made.daemons.values():
        daemon.end()


async def send(world: World, bodies: list[bytes]) -> None:
    """Send each body until it is acknowledged in full."""
    async with rocketpy.connect(world.namesrv) as client, client.producer() as producer:
        for body in bodies:
            async with asyncio.timeout(LIMIT_S):
                while not await is_sent(producer, body):  # noqa: ASYNC110 - over the network
                    await asyncio.sleep(0.1)


async def is_sent(producer: Any, body: bytes) -> bool:
    try:
        result = await producer.send(TOPIC, body)
    except RocketPyError:
        return False
    return bool(result.status.name == "SEND_OK")


async def create_topic(world: World, admin: Mqadmin) -> None:
    async def is_created() -> bool:
        words = ("-t", TOPIC, "-r", "1", "-w", "1")
        shown = await asyncio.to_thread(admin.run, "updateTopic", "-c", "DefaultCluster", *words)
        return "success" in shown

    await until(is_created, "the topic is created", LIMIT_S)


@pytest.mark.parametrize("world", ["alone"], indirect=True)
async def test_brokers_of_apache_join_fail_over_and_return(world: World) -> None:
    one, two = world.brokers["one"], world.brokers["two"]
    admin = Mqadmin(world.namesrv)
    try:
        one.start()
        await world.until_set(1, 1)
        two.start()
        before = await world.until_set(1, 1, 2)
        assert before.master_address == one.address
        assert all(each.alive for each in before.in_sync_replicas)
        await create_topic(world, admin)
        first = [b"before %d" % number for number in range(20)]
        await send(world, first)

        world.daemons["controller"].signal(signal.SIGKILL)
        away = [b"away %d" % number for number in range(20)]
        await send(world, away)
        world.daemons["controller"].start()
        await until(
            world.hears_replicas, "both send heartbeats to the restarted controller", LIMIT_S
        )
        assert await world.until_set(1, 1, 2) == before

        killed_s = time.monotonic()
        one.kill()
        while (found := await world.info()).master_broker_id != 2:
            assert time.monotonic() < killed_s + LIMIT_S
            await asyncio.sleep(0.005)
        world.measured["elected_s"] = time.monotonic() - killed_s
        assert found.master_epoch == before.master_epoch + 1
        assert [each.broker_id for each in found.in_sync_replicas] == [2]
        after = [b"after %d" % number for number in range(20)]
        await send(world, after[:1])
        world.measured["sent_s"] = time.monotonic() - killed_s
        await send(world, after[1:])
        stored = await world.read(two)
        assert set(first + away + after) <= set(stored)

        one.start()
        await world.until_set(2, 1, 2)

        words = ("-a", world.controller, "-b", "1", "-bn", NAME, "-c", "DefaultCluster")
        shown = await asyncio.to_thread(admin.run, "electMaster", *words)
        elected = await world.until_set(1, 1, 2)
        assert elected.master_address == one.address
        assert elected.master_epoch == found.master_epoch + 1, shown
        await send(world, [b"last"])

        async def has_all() -> bool:
            return {*first, *away, *after, b"last"} <= set(await world.read(one))

        await until(has_all, "the returned master has every message", LIMIT_S)
        print(world.measured, shown)
    finally:
        admin.close()
        await world.close()


@pytest.mark.parametrize("world", ["beside"], indirect=True)
async def test_mqadmin_asks_and_changes_the_controller(world: World) -> None:
    one, two = world.brokers["one"], world.brokers["two"]
    admin = Mqadmin(world.namesrv)
    run = admin.run

    async def shown(*words: str) -> str:
        return await asyncio.to_thread(run, *words)

    try:
        one.start()
        await world.until_set(1, 1)
        two.start()
        await world.until_set(1, 1, 2)
        metadata = await shown("getControllerMetaData", "-a", world.controller)
        assert f"ControllerLeaderAddress\t{world.controller}" in metadata
        found = await shown("getSyncStateSet", "-a", world.controller, "-b", NAME)
        assert f"#MasterAddr\t{one.address}" in found
        assert "#SyncStateSetNums\t2" in found
        epochs = await shown("getBrokerEpoch", "-b", NAME)
        assert "#Epoch: EpochEntry{epoch=1" in epochs
        update = await shown(
            "updateControllerConfig", "-a", world.controller,
            "-k", "enableElectUncleanMaster", "-v", "true",
        )  # fmt: skip
        assert "success" in update
        settings = await shown("getControllerConfig", "-a", world.controller)
        assert "enableElectUncleanMaster" in settings
        two.kill()
        await world.until_set(1, 1)
        clean = ("-a", world.controller, "-bn", NAME, "-c", "DefaultCluster", "-b", "2")
        cleaned = await shown("cleanBrokerMetadata", *clean)
        assert "success" in cleaned
        left = await world.info()
        assert [each.broker_id for each in left.in_sync_replicas] == [1]
        assert left.not_in_sync_replicas == []
    finally:
        admin.close()
        await world.close()
