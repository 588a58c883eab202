"""Two controllers with an etcd in memory, in virtual time: cuts, lost answers, kills.

Every id that a controller has answered with success is in the state at the end, with the code of
the replica that got it, and no id was given twice.
"""

import asyncio
import random
from typing import Final

import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.controller.etcd.client import decoded
from rocketpy.controller.events import GroupStored, decode_events
from rocketpy.errors import RocketPyError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.testing.sim_files import SimFiles
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess, pass_time
from rocketpy.testing.sim_network import SimNetwork
from tests.simulation.seeds import run_seeds, seed_count, seeds_of
from tests.unit.controller.fake_etcd import EtcdServer, FakeEtcd

HOSTS: Final = ["10.0.0.8", "10.0.0.9"]
PORT: Final = 9878
NAMES: Final = {"clusterName": "c1", "brokerName": "broker-a"}
SEEDS = seed_count(24)
CHUNKS = 4
TEST = "tests/simulation/test_controllers_with_etcd.py::test_answered_ids_are_kept_under_any_seed"


class World:
    """etcd, two controllers and a client."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.network = SimNetwork(loop)
        self.clock = LoopClock(loop)
        self.server = EtcdServer(self.clock.monotonic_ms)
        self.etcds = [FakeEtcd(self.server) for _ in HOSTS]
        self.processes = [SimProcess(host) for host in HOSTS]
        self.controllers: list[Controller | None] = [None, None]
        self.client = RemotingClient(
            RemotingClientConfig(), clock=self.clock, rng=random.Random(1),
            network=self.network.host("10.0.0.1"),
        )  # fmt: skip
        self.given: dict[int, str] = {}

    async def start(self, number: int) -> None:
        self.processes[number] = SimProcess(HOSTS[number])
        self.etcds[number] = FakeEtcd(self.server, self._pause)
        made = self.processes[number].call(self._make, number)
        self.controllers[number] = made
        await self.processes[number].spawn(made.start())

    async def _pause(self) -> None:
        await pass_time(
            self.rng.choice([0, 0, 0, 0.001, 0.01, 0.1, self.rng.choice([0, 0, 0, 2, 8])])
        )

    def _make(self, number: int) -> Controller:
        peers = ";".join(f"n{index}-{host}:{PORT}" for index, host in enumerate(HOSTS))
        config = ControllerConfig(
            controller_storage="etcd",
            etcd_endpoints="http://10.0.0.7:2379",
            controller_dleger_peers=peers,
            controller_dleger_self_id=f"n{number}",
            server=RemotingServerConfig(bind_address=HOSTS[number]),
        )
        return Controller(
            config, clock=LoopClock(self.loop), files=SimFiles(), rng=random.Random(1),
            network=self.network.host(HOSTS[number]), etcd=self.etcds[number],
        )  # fmt: skip

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.network.host(HOSTS[number]).kill_process()
        self.controllers[number] = None

    async def ask(self, number: int, code: int, **fields: object) -> RemotingCommand | None:
        texts = {name: str(value) for name, value in {**NAMES, **fields}.items()}
        address = f"{HOSTS[number]}:{PORT}"
        try:
            return await self.client.invoke(address, make_request(code, texts), 2_000)
        except RocketPyError:
            return None

    async def apply_id(self, number: int, check_code: str) -> None:
        """Ask a controller for an id, as a new replica does."""
        given = await self.ask(number, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        if given is None or given.code != 0:
            return
        found = int(given.ext_fields["nextBrokerId"])
        answer = await self.ask(
            number, RequestCode.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId=found, registerCheckCode=check_code,
        )  # fmt: skip
        if answer is not None and answer.code == 0:
            other = self.given.setdefault(found, check_code)
            assert other == check_code, f"id {found} was given twice"

    async def faults(self) -> None:
        """Cut controllers off from etcd, lose answers, kill them."""
        while True:
            await pass_time(self.rng.uniform(0.5, 4))
            number = self.rng.randrange(2)
            etcd = self.etcds[number]
            match self.rng.randrange(5):
                case 0:
                    etcd.is_cut_off = not etcd.is_cut_off
                case 1:
                    etcd.loses_answers = not etcd.loses_answers
                case 2 if self.controllers[number] is not None:
                    self.kill(number)
                case _:
                    etcd.is_cut_off = etcd.loses_answers = False
                    if self.controllers[number] is None:
                        await self.start(number)

    def stored(self) -> dict[int, str]:
        """Return the check codes in etcd by id."""
        entry = self.server.entries.get(b"/rocketpy/controller/controller/groups/broker-a")
        if entry is None:
            return {}
        (group,) = decode_events(decoded(entry.value))
        assert isinstance(group, GroupStored)
        return {each.replica_id: each.check_code for each in group.replicas}

    async def leader(self) -> int:
        """Wait for a leader, and return its number."""
        while True:
            for number in range(2):
                answer = await self.ask(number, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
                if answer is not None and answer.code == 0:
                    return number
            await pass_time(0.5)


async def give_ids(world: World) -> None:
    """Ask for ids meanwhile, then compare what was answered with what is stored."""
    for number in range(2):
        await world.start(number)
    faults = asyncio.ensure_future(world.faults())
    for count in range(120):
        await world.apply_id(world.rng.randrange(2), f"h:{count + 1};{count}")
        await pass_time(world.rng.uniform(0, 1))
    faults.cancel()
    await asyncio.gather(faults, return_exceptions=True)
    for number in range(2):
        world.etcds[number].is_cut_off = world.etcds[number].loses_answers = False
        if world.controllers[number] is None:
            await world.start(number)
    await world.leader()
    stored = world.stored()
    assert world.given.items() <= stored.items()


def run(seed: int) -> int:
    """Run one seed; return how many ids were given."""
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> int:
        world = World(loop, seed)
        async with asyncio.timeout(3_000):
            await give_ids(world)
        await world.client.close()
        return len(world.given)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()


@pytest.mark.timeout(60 + 3 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_answered_ids_are_kept_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


def test_seeds_give_ids_although_controllers_change() -> None:
    assert sum(map(run, range(10))) > 100
