"""Machine of a simulated replica: its disk, its current process, and its noisy network."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from rocketpy.broker.replication.acknowledgements import Acknowledgements
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.ha_client import HaClient, MasterAddresses
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.broker.replication.handshake import PairIdentity
from rocketpy.broker.replication.replica_state import State
from rocketpy.broker.replication.store_log import LogCopy, StoreLog
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import LoopService, Service
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_files import SimFiles
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess
from rocketpy.testing.sim_network import SimHost, SimNetwork

ROOT = Path("/store")
HA_PORT = 10_912
SECRET = b"the secret of all honest brokers"


class Surroundings(Protocol):
    """World of the machines.

    Attributes:
        sync: SYNC_FLUSH on all machines.
        confirms_disk: whether slaves confirm only what is on disk.
        flips: bits to flip on the way to slaves.
    """

    loop: SimLoop
    rng: random.Random
    network: SimNetwork
    config: ReplicationConfig
    addresses: MasterAddresses
    file_bytes: int
    sync: bool
    confirms_disk: bool
    flips: int

    def store_config(self, broker_id: int) -> MessageStoreConfig:
        """Return the settings of a store."""
        ...

    def opened(self, node: "Node") -> None:
        """Judge a store that was just opened."""
        ...

    def power_lost(self, node: "Node") -> None:
        """Note that a machine lost power."""
        ...

    async def ask_protocol(self, address: str) -> int:
        """Answer as the ordinary port of the master."""
        ...


class LateRunner:
    """Runs a service on the loop with the delays of a thread."""

    def __init__(self, service: Service, clock: Clock, loop: SimLoop) -> None:
        self._inner = LoopService(service, clock)
        self._loop = loop
        self.start = self._inner.start
        self.stop = self._inner.stop

    def wake(self) -> None:
        self._loop.call_later(self._loop.rng.choice((0.0, 0.001, 0.01)), self._inner.wake)


class Node:
    """Machine of a broker: host, disk, and current process.

    Attributes:
        is_resyncing: whether an operator emptied it, and it has not caught up since.
    """

    def __init__(self, world: Surroundings, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.name = f"broker {broker_id}"
        self.host: SimHost = world.network.host(f"10.0.0.{11 + broker_id}")
        self.clock = LoopClock(world.loop)
        self.files = SimFiles(self.clock)
        self.process: SimProcess | None = None
        self.store: MessageStore = MessageStore(
            world.store_config(broker_id), clock=self.clock, files=self.files
        )
        self.server: HaServer | None = None
        self.client: HaClient | None = None
        self.is_open = False
        self.is_resyncing = False
        self._longest_end = 0

    @property
    def longest_end(self) -> int:
        """Largest end that its log ever had."""
        # A store that has ended still knows the end that it had.
        self._longest_end = max(self._longest_end, self.store.max_phy_offset)
        return self._longest_end

    @property
    def is_running(self) -> bool:
        return self.is_open and self.process is not None and self.process.is_alive

    @property
    def is_following(self) -> bool:
        client = self.client
        return self.is_running and client is not None and client.state.state is State.STREAMING

    async def start(self) -> bool:
        """Start a process on the current disk; False if it ended meanwhile."""
        self.host.boot()
        self.files.start_process()
        self.files.capacity_bytes = self.files.on_flush = None
        self.is_open = False
        self.process = SimProcess(self.name)
        task = self.process.spawn(self._start())
        while not task.done() and self.process.is_alive:
            await asyncio.wait([task], timeout=0.5)
        if not self.process.is_alive:
            return False
        task.result()
        return True

    async def _start(self) -> None:
        world, rng = self.world, self.world.rng
        self.store = MessageStore(
            world.store_config(self.broker_id),
            clock=self.clock,
            files=self.files,
            new_log_id=lambda: f"{rng.getrandbits(64):016x}",
        )
        self.store.open(hold_back=self.broker_id == 0)
        self.is_open = True
        world.opened(self)
        self.store.start(lambda service, clock: LateRunner(service, clock, world.loop))
        identity = PairIdentity(
            cluster="c",
            name="b",
            broker_id=self.broker_id,
            secret=SECRET,
            reports_disk=world.sync,
        )
        if self.broker_id == 0:
            await self._serve(identity)
        else:
            self._follow(identity)

    async def _serve(self, identity: PairIdentity) -> None:
        world = self.world
        self.server = HaServer(
            world.config,
            identity=identity,
            log=StoreLog(self.store, world.file_bytes),
            replicas=self.store.replicas,
            acknowledgements=Acknowledgements(world.config, waits=True),
            clock=self.clock,
            timer=lambda: 0.0,
            new_nonce=lambda: world.rng.randbytes(32),
        )
        endpoint = ListenEndpoint(name="ha", address=self.host.name, port=HA_PORT)
        await self.server.start(self.host, endpoint)

    def _follow(self, identity: PairIdentity) -> None:
        world = self.world
        copy = LogCopy(self.store, world.file_bytes, confirms_disk=world.confirms_disk)
        self.client = HaClient(
            world.config,
            identity=identity,
            copy=copy,
            network=NoisyHost(self.host, world),
            tls=None,
            master=lambda: world.addresses,
            ask_protocol=world.ask_protocol,
            clock=self.clock,
            new_nonce=lambda: world.rng.randbytes(32),
        )
        self.client.start()

    async def stop(self) -> None:
        """Stop cleanly."""
        assert self.process is not None

        async def stop() -> None:
            if self.server is not None:
                await self.server.stop()
            if self.client is not None:
                await self.client.stop()
            self.store.close()

        task = self.process.spawn(stop())
        while not task.done() and self.process.is_alive:
            await asyncio.wait([task], timeout=0.5)
        if self.process.is_alive:
            task.result()
        self.process.kill()
        self.host.kill_process()
        self.files.kill()
        self.is_open = False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.host.kill_process()
        self.files.kill()
        self.is_open = False

    def lose_power(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.host.lose_power()
        self.files.power_cut(self.world.rng)
        self.is_open = False
        self.world.power_lost(self)


class NoisyHost:
    """Network of a slave, which may flip a bit of what arrives."""

    def __init__(self, host: SimHost, world: Surroundings) -> None:
        self._world = world
        self.listen = host.listen
        self._connect = host.connect

    async def connect(
        self, make_protocol: Callable[[], asyncio.Protocol], host: str, port: int, *, tls: Any
    ) -> None:
        world = self._world

        def make() -> asyncio.Protocol:
            protocol: Any = make_protocol()
            receive = protocol.data_received

            def noisy(data: bytes) -> None:
                if world.flips and data:
                    world.flips -= 1
                    changed = bytearray(data)
                    changed[world.rng.randrange(len(data))] ^= 1 << world.rng.randrange(8)
                    data = bytes(changed)
                receive(data)

            protocol.data_received = noisy
            return protocol

        await self._connect(make, host, port, tls=tls)
