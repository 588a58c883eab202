"""The whole controller in virtual time: silence, leases, partitions, kills of its process."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import orjson
import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.errors import RocketPyError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.testing.sim_files import SimFiles
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess, pass_time
from rocketpy.testing.sim_network import SimNetwork

HOST: Final = "10.0.0.9"
PORT: Final = 9878
NAMES: Final = {"clusterName": "c1", "brokerName": "broker-a"}


class World:
    """Controller and replicas on simulated hosts."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = SimNetwork(loop)
        self.files = SimFiles()
        self.replicas: list[Replica] = []
        self.process = SimProcess("controller")
        self.controller: Controller | None = None

    async def start_controller(self) -> None:
        self.files.start_process()
        self.process = SimProcess("controller")
        self.controller = self.process.call(self._make)
        await self.process.spawn(self.controller.start())

    def _make(self) -> Controller:
        config = ControllerConfig(
            controller_store_path="/controller",
            controller_listen_port=PORT,
            server=RemotingServerConfig(bind_address=HOST),
        )
        return Controller(
            config,
            clock=LoopClock(self.loop),
            files=self.files,
            rng=random.Random(1),
            network=self.network.host(HOST),
        )

    def kill_controller(self) -> None:
        self.process.kill()
        self.files.kill()
        self.network.host(HOST).kill_process()

    async def join(self, **beat: object) -> "Replica":
        replica = Replica(self, len(self.replicas) + 1, beat)
        self.replicas.append(replica)
        await replica.start()
        return replica

    async def pair(self, **beat: object) -> tuple["Replica", "Replica"]:
        """Return a master and the other member of its set."""
        one = await self.join(**beat)
        await one.ask(RequestCode.CONTROLLER_ELECT_MASTER, brokerId=1)
        two = await self.join(**beat)
        await pass_time(1.5)
        await one.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            {"syncStateSet": [1, 2], "syncStateSetEpoch": 1},
            masterBrokerId=1,
            masterEpoch=1,
        )
        await pass_time(15)  # leases and heartbeats of a steady state
        return one, two

    async def until_elected(self, replica: "Replica") -> float:
        """Return after how many seconds a replica has heard that it is the master."""
        start_s = self.loop.time()
        while replica.known_master != replica.id:
            await pass_time(0.01)
        return self.loop.time() - start_s

    async def stop(self) -> None:
        for replica in self.replicas:
            await replica.stop()
        if self.process.is_alive and self.controller is not None:
            await self.process.spawn(self.controller.stop())


class Replica:
    """Broker that sends heartbeats every second.

    Attributes:
        known_master: master of the last notification or answer.
    """

    def __init__(self, world: World, number: int, beat: dict[str, object]) -> None:
        self.id = number
        self.host = f"10.0.0.{number}"
        self.address = f"{self.host}:10911"
        self.known_master: int | None = None
        self.is_silent = False
        self._beat = beat
        network, clock = world.network.host(self.host), LoopClock(world.loop)
        self.client = RemotingClient(
            RemotingClientConfig(), clock=clock, rng=random.Random(number), network=network
        )
        server = RemotingServerConfig(bind_address=self.host, listen_port=10911)
        self.server = RemotingServer(server, clock=clock, network=network)
        self.server.register(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, self._take)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.server.start()
        await self.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=self.id,
            registerCheckCode=f"{self.address};1",
        )
        await self.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, brokerId=self.id, brokerAddress=self.address
        )
        self._task = asyncio.ensure_future(self._beats())

    async def ask(self, code: int, body: object = None, **fields: object) -> RemotingCommand:
        texts = {name: str(value) for name, value in {**NAMES, **fields}.items()}
        request = make_request(code, texts, b"" if body is None else orjson.dumps(body))
        response = await self.client.invoke(f"{HOST}:{PORT}", request, 3_000)
        assert response.code == 0, response.remark
        return response

    async def _beats(self) -> None:
        while True:
            if not self.is_silent:
                try:
                    answer = await self.ask(
                        RequestCode.BROKER_HEARTBEAT, brokerId=self.id, brokerAddr=self.address,
                        epoch=0, maxOffset=0, heartbeatTimeoutMills=10_000, **self._beat,
                    )  # fmt: skip
                    self.known_master = int(answer.ext_fields.get("masterBrokerId", 0)) or None
                except RocketPyError:
                    self.known_master = None
            await pass_time(1)

    def _take(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        self.known_master = int(request.ext_fields["masterBrokerId"])
        return make_response(request)

    async def die(self) -> None:
        """End the process: its connections close."""
        assert self._task is not None
        self._task.cancel()
        await self.client.close()

    async def stop(self) -> None:
        await self.die()
        await self.server.stop()


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], seed: int) -> None:
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> None:
        world = World(loop)
        await world.start_controller()
        async with asyncio.timeout(600):
            await scenario(world)
        await world.stop()

    try:
        loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()


seeds = pytest.mark.parametrize("seed", range(5))


@seeds
def test_closed_connection_elects_within_a_moment(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair()
        await one.die()
        assert await world.until_elected(two) < 0.1

    run(scenario, seed)


@seeds
def test_silent_master_is_replaced_after_its_timeout(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair()
        one.is_silent = True
        assert 9 <= await world.until_elected(two) < 10.2

    run(scenario, seed)


@seeds
def test_partitioned_master_is_replaced_after_its_timeout(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair(rocketpyNeedsAll="true")
        world.network.partition({one.host}, {two.host, HOST})
        assert 9 <= await world.until_elected(two) < 10.2
        world.network.heal()
        while one.known_master != two.id:
            await pass_time(0.1)

    run(scenario, seed)


@seeds
def test_lease_of_a_master_whose_connection_closed_is_waited_for(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair(rocketpyNeedsAll="false")
        await one.die()
        assert 9 <= await world.until_elected(two) < 10.2

    run(scenario, seed)


@seeds
def test_controller_that_starts_again_hears_replicas_before_it_elects(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair()
        world.kill_controller()
        await pass_time(3)
        await world.start_controller()
        await pass_time(30)
        assert (one.known_master, two.known_master) == (1, 1)
        world.kill_controller()
        await one.die()
        await world.start_controller()
        assert 9 <= await world.until_elected(two) < 11.5

    run(scenario, seed)


@seeds
def test_master_and_controller_that_end_together_lose_no_group(seed: int) -> None:
    async def scenario(world: World) -> None:
        one, two = await world.pair()
        writes = random.Random(seed).randrange(4)
        world.files.end_process_after(writes, partial(world.files.power_cut, random.Random(seed)))
        await one.die()
        await pass_time(1)
        world.kill_controller()
        await world.start_controller()
        await world.until_elected(two)

    run(scenario, seed)
