"""Machine of a simulated replica with a controller: its disk, its clocks, its current process."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.failover.node_settings import NodeSettings
from rocketpy.broker.failover.node_state import NodeRole
from rocketpy.broker.failover.replica_node import ReplicaNode
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_files import SimFiles
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess
from rocketpy.testing.sim_network import SimHost, SimNetwork
from tests.simulation.replica_node import LateRunner

ROOT: Final = Path("/store")
PORT: Final = 10_911
CONTROLLER_HOST: Final = "10.0.0.9"
CONTROLLER_PORT: Final = 9_878
NAME: Final = "broker-a"
_SECRET: Final = "/secret"
_STOP_S: Final = 30.0


class Surroundings(Protocol):
    """World of the machines.

    Attributes:
        sync: SYNC_FLUSH on all machines.
        failover: settings of fail-over.
        replication: settings of replication.
        unproven: number of replicas without the secret.
        file_bytes: size of the files of the log.
    """

    loop: SimLoop
    network: SimNetwork
    sync: bool
    failover: FailoverConfig
    replication: ReplicationConfig
    unproven: int
    file_bytes: int


class DriftingClock(LoopClock):
    """Clocks of a machine that run a little too fast or too slow.

    Args:
        loop: source of the time.
        rate: of the clocks; 1.0 is right.
    """

    def __init__(self, loop: SimLoop, rate: float) -> None:
        super().__init__(loop)
        self._rate = rate

    def monotonic_ms(self) -> int:
        return round(super().monotonic_ms() * self._rate)


class Machine:
    """Host with a disk and at most one process."""

    def __init__(self, world: Surroundings, host: str) -> None:
        self.world = world
        self.host: SimHost = world.network.host(host)
        self.clock = DriftingClock(world.loop, world.loop.rng.uniform(0.96, 1.04))
        self.files = SimFiles(self.clock)
        self.process = SimProcess(host)
        self.process.kill()

    @property
    def is_running(self) -> bool:
        return self.process.is_alive

    def _make_process(self) -> SimProcess:
        self.host.boot()
        self.files.start_process()
        self.files.capacity_bytes = None
        self.process = SimProcess(self.host.name)
        return self.process

    async def _finish(self, task: asyncio.Task[None], limit_s: float) -> None:
        """Wait for the end of a task, or of the process."""
        ends_s = self.world.loop.time() + limit_s
        while not task.done() and self.process.is_alive and self.world.loop.time() < ends_s:
            await asyncio.wait([task], timeout=0.5)
        if self.process.is_alive and task.done():
            task.result()

    def kill(self) -> None:
        self.process.kill()
        self.host.kill_process()
        self.files.kill()

    def lose_power(self) -> None:
        self.process.kill()
        self.host.lose_power()
        self.files.power_cut(self.world.loop.rng)


class ControllerMachine(Machine):
    """Machine of a controller."""

    def __init__(self, world: Surroundings, host: str = CONTROLLER_HOST) -> None:
        super().__init__(world, host)
        self.controller: Controller | None = None

    async def start(self) -> None:
        """Start a process; it may end meanwhile."""
        process = self._make_process()
        config = ControllerConfig(
            controller_store_path="/controller",
            controller_listen_port=CONTROLLER_PORT,
            server=RemotingServerConfig(bind_address=self.host.name),
        )

        async def start() -> None:
            self.controller = Controller(
                config,
                clock=self.clock,
                files=self.files,
                rng=random.Random(1),
                network=self.host,
            )
            await self.controller.start()

        await self._finish(process.spawn(start()), _STOP_S)


class GroupNode(Machine):
    """Machine of a replica."""

    def __init__(self, world: Surroundings, number: int) -> None:
        super().__init__(world, f"10.0.0.{10 + number}")
        self.name = f"replica {number}"
        self.config = world.replication
        if world.unproven:
            self.config = replace(self.config, ha_allowed_peers="10.0.0.0/24")
        if number <= world.unproven:
            self.config = replace(self.config, replication_secret_file="")
        self.files.write_bytes(Path(_SECRET), b"0123456789abcdef0123456789abcdef")
        self.node: ReplicaNode | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host.name}:{PORT}"

    @property
    def is_master(self) -> bool:
        """Whether it takes itself for the master."""
        return self.is_running and self.node is not None and self.node.mastership is not None

    @property
    def store(self) -> MessageStore | None:
        """Store of the running broker; None without one."""
        node = self.node
        if not self.is_running or node is None or node.broker is None:
            return None
        return node.broker.parts.store

    @property
    def is_settled(self) -> bool:
        """Whether its broker runs in a role."""
        node = self.node
        return self.store is not None and node is not None and node.role is not NodeRole.WAITING

    async def start(self) -> None:
        """Start a process; it may end meanwhile."""
        process = self._make_process()

        async def start() -> None:
            self.node = self._make()
            await self.node.start()

        await self._finish(process.spawn(start()), _STOP_S)

    def _make(self) -> ReplicaNode:
        world, loop = self.world, self.world.loop
        return ReplicaNode(
            NodeSettings(
                broker=BrokerConfig(
                    broker_name=NAME,
                    broker_ip1=self.host.name,
                    bind_address=self.host.name,
                    listen_port=PORT,
                ),
                store=MessageStoreConfig(
                    store_path_root_dir=str(ROOT),
                    flush_disk_type="SYNC_FLUSH" if world.sync else "ASYNC_FLUSH",
                    mapped_file_size_commit_log=world.file_bytes,
                    mapped_file_size_consume_queue=2_000,
                    max_hash_slot_num=50,
                    max_index_num=100,
                    clean_file_forcibly_enable=False,
                    timer_wheel_enable=False,
                ),
                failover=world.failover,
                replication=ReplicationSettings(
                    config=self.config, new_nonce=lambda: loop.rng.randbytes(32)
                ),
                server=RemotingServerConfig(bind_address=self.host.name),
                client=RemotingClientConfig(),
            ),
            clock=self.clock,
            rng=random.Random(loop.rng.random()),
            files=self.files,
            network=self.host,
            threads=False,
            run=lambda service, clock: LateRunner(service, clock, loop),
        )

    async def stop(self) -> None:
        """Stop cleanly: with a hand-over, if it is the master."""
        node = self.node
        assert node is not None
        await self._finish(self.process.spawn(node.stop()), _STOP_S)
        if self.is_running:
            self.kill()


def replication_config(slave_timeout_ms: int, min_in_sync: int, copies: int) -> ReplicationConfig:
    """Return the settings of replication with the secret of all machines."""
    return ReplicationConfig(
        replication_secret_file=_SECRET,
        slave_timeout=slave_timeout_ms,
        min_in_sync_replicas=min_in_sync,
        in_sync_replicas=copies,
    )
