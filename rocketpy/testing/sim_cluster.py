"""Simulated cluster in memory: real name server, brokers and clients in a simulated world.

All servers and clients run production code; time, network and disks are simulated (`SimLoop`,
`SimNetwork`, `SimFiles`). A scenario of hours takes milliseconds, and the same seed
repeats it exactly.

Example:
    >>> from rocketpy.testing.sim_cluster import SimCluster, run_simulation
    >>> async def scenario(cluster: SimCluster) -> int:
    ...     cluster.create_topic("orders")
    ...     async with cluster.client() as client:
    ...         producer = client.producer()
    ...         await producer.send("orders", b"before")
    ...         cluster.brokers[0].lose_power()
    ...         await cluster.brokers[0].start()
    ...         await producer.send("orders", b"after")
    ...     return cluster.message_count("orders")
    >>> run_simulation(scenario, properties={"flushDiskType": "SYNC_FLUSH"})
    2
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.errors import ClosedError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.config import Sources, load
from rocketpy.runtime.logs import through_logging
from rocketpy.runtime.service import LoopService, Service
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles
from rocketpy.testing.sim_loop import LoopClock, SimLoop, SimProcess
from rocketpy.testing.sim_network import SimHost, SimNetwork

T = TypeVar("T")

_NAME_SERVER_HOST: Final = "10.0.0.1"
_NAME_SERVER_PORT: Final = 9876
_BROKER_PORT: Final = 10911
_LATE_S: Final = 0.01
_LIMIT_S: Final = 24 * 3_600.0

TINY_STORE: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": str(64 << 10),
    "mappedFileSizeTimerLog": str(64 << 10),
}
"""File sizes for a disk of byte arrays."""


class _LateRunner:
    """Runs a service on the loop with the delays of a thread.

    Args:
        service: service to run.
        clock: clock of the service.
        loop: loop of the simulation.
        held_up_s: extra delay of each step, by service name.
    """

    def __init__(
        self, service: Service, clock: Clock, loop: SimLoop, held_up_s: Mapping[str, float]
    ) -> None:
        self._inner = LoopService(service, clock)
        self._loop = loop
        self._name = service.name
        self._held_up_s = held_up_s
        self.start = self._inner.start
        self.stop = self._inner.stop

    def wake(self) -> None:
        """Run the next step within a few milliseconds, or after the extra delay."""
        delay_s = self._loop.rng.choice((0.0, 0.001, _LATE_S))
        delay_s = self._held_up_s.get(self._name, delay_s)
        self._loop.call_later(delay_s, self._inner.wake)


class SimBroker:
    """Machine of a broker: host, disk, clock, and current process.

    Attributes:
        name: broker name.
        host: its host in the network.
        files: its disk.
        clock: its clock.
        held_up_s: extra delay of a service, by its name, such as `TableWriter`, as with a slow
            disk.
    """

    def __init__(self, cluster: "SimCluster", number: int, properties: Mapping[str, str]) -> None:
        self.name: str = f"broker-{chr(ord('a') + number)}"
        self.host: SimHost = cluster.network.host(f"10.0.0.{11 + number}")
        self.clock: LoopClock = LoopClock(cluster.loop)
        self.files: SimFiles = SimFiles(self.clock)
        self.held_up_s: dict[str, float] = {}
        self._loop = cluster.loop
        self._properties = {
            "brokerName": self.name,
            "brokerIP1": self.host.name,
            "bindAddress": self.host.name,
            "listenPort": str(_BROKER_PORT),
            "namesrvAddr": cluster.namesrv,
            "storePathRootDir": f"/{self.name}",
            **TINY_STORE,
            **properties,
        }
        self._broker: Broker | None = None
        self._process: SimProcess | None = None

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{self.host.name}:{_BROKER_PORT}"

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.is_alive

    @property
    def broker(self) -> Broker:
        """The running broker.

        Raises:
            ClosedError: no process runs.
        """
        if self._broker is None or not self.is_running:
            raise ClosedError(f"{self.name} does not run")
        return self._broker

    async def start(self, *, end_after: int | None = None, power: bool = False) -> None:
        """Start a process on the current disk.

        Args:
            end_after: end the process, perhaps during its start; see `end_after`.
            power: whether it ends by a power loss.

        Raises:
            ProcessEndedError: it ended during the start.
        """
        assert not self.is_running, f"{self.name} runs"
        self.host.boot()
        self.files.start_process()
        if end_after is not None:
            self.end_after(end_after, power=power)
        self._process = SimProcess(self.name)
        self._broker = self._process.call(self._make_broker)
        if not await self._finish(self._process, self._broker.start()):
            raise ProcessEndedError(f"{self.name} ended while it started")

    async def stop(self) -> None:
        """Stop cleanly, unless the process ends before (`end_after`)."""
        assert self._process is not None
        if await self._finish(self._process, self.broker.stop()):
            self._process.kill()

    @staticmethod
    async def _finish(process: SimProcess, work: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine in the process; returns False if the process ended before its end."""
        task = process.spawn(work)
        while not task.done() and process.is_alive:
            await asyncio.wait([task], timeout=1.0)
        if not process.is_alive:
            return False
        task.result()
        return True

    def kill(self) -> None:
        """`kill -9`: the disk's page cache survives, the kernel resets the connections."""
        assert self._process is not None
        self._process.kill()
        self.host.kill_process()
        self.files.kill()

    def lose_power(self) -> None:
        """Lose all data that is not on the disk; peers in the network are not notified."""
        assert self._process is not None
        self._process.kill()
        self.host.lose_power()
        self.files.power_cut(self._loop.rng)

    def end_after(self, operations: int, *, power: bool = False) -> None:
        """Kill the process (or lose power) between two changes of its disk.

        Args:
            operations: number of changes that still succeed.
            power: lose power instead of killing the process.
        """
        self.files.end_process_after(operations, self.lose_power if power else self.kill)

    def _make_broker(self) -> Broker:
        overrides = tuple(f"{key}={value}" for key, value in self._properties.items())
        kinds = [BrokerConfig, MessageStoreConfig, RemotingServerConfig, ReplicationConfig]
        loaded = load(Sources(overrides=overrides), kinds)
        return Broker(
            loaded.get(BrokerConfig),
            store_config=loaded.get(MessageStoreConfig),
            server_config=loaded.get(RemotingServerConfig),
            replication=ReplicationSettings(config=loaded.get(ReplicationConfig)),
            clock=self.clock,
            rng=random.Random(self._loop.rng.random()),  # noqa: S311 - repeats, guards nothing
            files=self.files,
            network=self.host,
            threads=False,
            run=lambda service, clock: _LateRunner(service, clock, self._loop, self.held_up_s),
        )


class SimCluster:
    """A name server and brokers on one `SimLoop`.

    Args:
        loop: the loop of the simulation.
        brokers: number of masters, named `broker-a`, `broker-b`, ...
        properties: broker.conf keys for every broker, over `TINY_STORE`.

    Attributes:
        loop: the loop; `SimLoop.errors` has the unhandled errors.
        network: network of all hosts.
        brokers: machines of the brokers.
        clock: the clock of the clients.
    """

    def __init__(
        self, loop: SimLoop, *, brokers: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        self.loop = loop
        self.network: SimNetwork = SimNetwork(loop)
        self.clock: LoopClock = LoopClock(loop)
        self.brokers: list[SimBroker] = [
            SimBroker(self, each, properties or {}) for each in range(brokers)
        ]
        self._name_server: NameServer | None = None
        self._process = SimProcess("namesrv")
        self._client_count = 0

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server."""
        return f"{_NAME_SERVER_HOST}:{_NAME_SERVER_PORT}"

    async def start(self) -> None:
        """Start the name server, then the brokers, and wait until they are registered."""
        self._process = SimProcess("namesrv")
        server = RemotingServerConfig(bind_address=_NAME_SERVER_HOST, listen_port=_NAME_SERVER_PORT)
        self._name_server = NameServer(
            NamesrvConfig(data_dir="/simulated", server=server),
            clock=LoopClock(self.loop),
            rng=random.Random(self.loop.rng.random()),  # noqa: S311 - repeats, guards nothing
            network=self.network.host(_NAME_SERVER_HOST),
        )
        await self._process.spawn(self._name_server.start())
        for broker in self.brokers:
            await broker.start()

    async def stop(self) -> None:
        """Stop all running servers."""
        for broker in self.brokers:
            if broker.is_running:
                await broker.stop()
        if self._name_server is not None:
            await self._process.spawn(self._name_server.stop())
            self._name_server = None

    def client(self, **options: Any) -> Client:  # noqa: ANN401 - the fields of ClientConfig
        """Return a client on a new host; start it with `async with`.

        Args:
            options: fields of `rocketpy.client.config.ClientConfig`.
        """
        self._client_count += 1
        host = self.network.host(f"10.0.1.{self._client_count}")
        rng = random.Random(self.loop.rng.random())  # noqa: S311 - repeats, guards nothing
        options = {"client_ip": host.name, "instance_name": f"{self._client_count}", **options}
        config = ClientConfig(**{"name_servers": (self.namesrv,), **options})

        def make_remoting() -> RemotingClient:
            settings = config.remoting or RemotingClientConfig()
            return RemotingClient(settings, clock=self.clock, rng=rng, network=host)

        return Client(config, clock=self.clock, rng=rng, make_remoting=make_remoting, process_id=1)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every running broker."""
        for each in self.brokers:
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            each.broker.parts.topics.put(config)

    def message_count(self, topic: str) -> int:
        """Return the number of messages of a topic on the running brokers."""
        total = 0
        for each in self.brokers:
            parts = each.broker.parts
            config = parts.topics.get(topic)
            for queue_id in range(config.write_queue_nums if config else 0):
                total += max(0, parts.store.max_offset(topic, queue_id))
                total -= max(0, parts.store.min_offset(topic, queue_id))
        return total


def run_simulation(
    scenario: Callable[[SimCluster], Coroutine[Any, Any, T]],
    *,
    seed: int = 0,
    brokers: int = 1,
    properties: Mapping[str, str] | None = None,
) -> T:
    """Run a scenario on a new cluster and return its result.

    The log of the servers goes to `logging`, unless the process has configured structlog.

    Args:
        scenario: called with the started cluster; at most a day of virtual time.
        seed: decides everything that the scenario leaves open.
        brokers: see `SimCluster`.
        properties: see `SimCluster`.
    """
    loop = SimLoop(seed)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> T:
        cluster = SimCluster(loop, brokers=brokers, properties=properties)
        await cluster.start()
        async with asyncio.timeout(_LIMIT_S):
            result = await scenario(cluster)
        await cluster.stop()
        return result

    with through_logging():
        try:
            return loop.run_until_complete(main())
        finally:
            loop.end_tasks()
            loop.close()
