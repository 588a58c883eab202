"""Two controllers with a real etcd: one leads, the other one takes over when it is killed.

Skipped without etcd; see tests/etcd.py.
"""

import asyncio
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rocketpy.controller.config import Peer
from rocketpy.controller.etcd.client import EtcdGateway
from rocketpy.controller.etcd.etcd_log import EtcdStateLog
from rocketpy.controller.events import AnyEvent, MasterElected
from rocketpy.errors import ConnectError, ResourceShortError, RocketPyError, StoreReadOnlyError
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock
from tests.etcd import etcd_program
from tests.integration.broker.pair import until
from tests.integration.client.daemons import Daemon
from tests.ports import free_port
from tests.unit.controller.group_kit import NAME, applied, groups_of

NAMES = {"clusterName": "c1", "brokerName": "broker-a"}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an etcd that runs for these tests."""
    program = etcd_program("etcd")
    if program is None:
        pytest.skip("needs etcd (make etcd)")
    directory = tmp_path_factory.mktemp("etcd")
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    words = [
        program, "--data-dir", str(directory / "data"),
        "--listen-client-urls", clients, "--advertise-client-urls", clients,
        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
        "--initial-cluster", f"default={peers}",
    ]  # fmt: skip
    with (directory / "etcd.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    yield clients
    process.kill()
    process.wait(60)


async def shared_log(endpoint: str, group: str, number: int) -> EtcdStateLog:
    etcd = EtcdGateway(["http://127.0.0.1:1", endpoint], 5_000)
    log = EtcdStateLog(etcd, group, lambda: Peer(f"n{number}", "h:1"), SystemClock())

    async def answers() -> bool:
        try:
            await log.look()
        except ResourceShortError:
            return False
        return True

    await until(answers, "etcd answers")
    return log


async def test_leader_stores_and_its_successor_loads(endpoint: str) -> None:
    one, two = [await shared_log(endpoint, "stores", number) for number in range(2)]
    assert await one.campaign()
    assert list(await one.load()) == []
    steps: list[list[AnyEvent]] = [
        applied(1),
        [MasterElected(NAME, 1, 1, 1)],
        applied(1, name="other"),
    ]
    for step in steps:
        await one.append(step)
    assert await one.keep()
    assert not await two.campaign()
    assert two.leader == Peer("n0", "h:1")
    await one.close()
    assert not one.is_leader
    assert await two.campaign()
    expected = groups_of(*[event for step in steps for event in step]).snapshot()
    assert list(await two.load()) == expected
    with pytest.raises(StoreReadOnlyError):
        await one.append(applied(2))
    await two.close()


class Controllers:
    """Two controllers as processes."""

    def __init__(self, directory: Path, endpoint: str) -> None:
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        peers = ";".join(f"n{number}-{each}" for number, each in enumerate(self.addresses))
        self.daemons = [
            Daemon(
                directory / f"{number}.log", "controller", "-D", "bindAddress=127.0.0.1",
                "-D", f"controllerDLegerPeers={peers}", "-D", f"controllerDLegerSelfId=n{number}",
                "-D", "controllerStorage=etcd", "-D", f"etcdEndpoints={endpoint}",
                "-D", f"controllerStorePath={directory}/{number}",
            )
            for number in range(2)
        ]  # fmt: skip
        self.client = RemotingClient(
            RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1)
        )

    async def ask(self, number: int, code: int, **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in {**NAMES, **fields}.items()}
        return await self.client.invoke(self.addresses[number], make_request(code, texts), 10_000)

    async def leader(self) -> int | None:
        """Return the number of the controller that says that it leads."""
        for number in range(2):
            try:
                answer = await self.ask(number, RequestCode.CONTROLLER_GET_METADATA_INFO)
            except (ConnectError, RocketPyError):
                continue
            if answer.ext_fields["isLeader"] == "true":
                return number
        return None


@pytest.fixture
async def controllers(tmp_path: Path, endpoint: str) -> AsyncIterator[Controllers]:
    made = Controllers(tmp_path, endpoint)
    for each in made.daemons:
        each.start()
    yield made
    for each in made.daemons:
        each.end()
    await made.client.close()


async def test_killed_leader_is_followed_by_the_other_controller(controllers: Controllers) -> None:
    async def is_led() -> bool:
        return await controllers.leader() is not None

    await until(is_led, "a controller leads")
    first = await controllers.leader()
    assert first is not None
    other = 1 - first
    applied_id = await controllers.ask(
        first, RequestCode.CONTROLLER_APPLY_BROKER_ID,
        appliedBrokerId=1, registerCheckCode="127.0.0.1:1;1",
    )  # fmt: skip
    assert applied_id.code == 0, applied_id.remark
    refused = await controllers.ask(other, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER

    async def is_named() -> bool:
        named = await controllers.ask(other, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return "controllerLeaderAddress" in named.ext_fields

    await until(is_named, "the other one knows the leader")
    named = await controllers.ask(other, RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert named.ext_fields["controllerLeaderAddress"] == controllers.addresses[first]
    assert named.ext_fields["isLeader"] == "false"
    assert named.ext_fields["peers"] == (
        f"n0:{controllers.addresses[0]};n1:{controllers.addresses[1]};"
    )

    killed_s = time.monotonic()
    controllers.daemons[first].signal(signal.SIGKILL)

    async def is_followed() -> bool:
        return await controllers.leader() == other

    await until(is_followed, "the other controller leads")
    print(f"led by the other one after {time.monotonic() - killed_s:.1f} s")
    given = await controllers.ask(other, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    assert given.ext_fields["nextBrokerId"] == "2"

    stopped_s = time.monotonic()
    await asyncio.to_thread(controllers.daemons[first].start)
    controllers.daemons[other].signal(signal.SIGTERM)

    async def is_back() -> bool:
        return await controllers.leader() == first

    await until(is_back, "the first controller leads again")
    print(f"after a stop led again after {time.monotonic() - stopped_s:.1f} s")
