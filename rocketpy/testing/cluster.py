"""Clusters for tests: a real name server and brokers in this process, on free loopback ports.

`LocalCluster` runs on the running event loop. `ClusterThread` runs one on a loop in a thread, for
synchronous tests and for tests that drive other languages; the pytest fixtures return it. Nothing
is simulated: sockets, files and protocol are those of production.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.errors import ClosedError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.config.config import Sources, load
from rocketpy.runtime.logs import through_logging
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.faults import FaultyNetwork

T = TypeVar("T")

_LOOPBACK = "127.0.0.1"
_START_TIMEOUT_S = 30.0

SMALL_STORE: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": "600000",
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
}
"""File sizes for tests: a new broker takes a few hundred KiB of disk."""


class LocalCluster:
    """A name server and brokers on the running loop.

    Its log goes to `logging` while it runs, unless the process has configured structlog.

    Args:
        directory: parent of the store directories.
        brokers: number of masters, named `broker-a`, `broker-b`, ...
        properties: broker.conf keys for every broker, over `SMALL_STORE`; `tls.server.*` are
            also for the name server.
        clock: clock of all servers.

    Example:
        >>> async with LocalCluster(tmp_path) as cluster:  # doctest: +SKIP
        ...     client = rocketpy.connect(cluster.namesrv)
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._count = brokers
        self._properties = {**SMALL_STORE, **(properties or {})}
        self._clock = clock or SystemClock()
        self._name_server: NameServer | None = None
        self.brokers: list[Broker] = []
        self._networks: list[FaultyNetwork] = []
        self._logs = contextlib.ExitStack()

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server."""
        if self._name_server is None:
            raise ClosedError("the cluster is not started")
        return self._name_server.address

    @property
    def broker_addresses(self) -> list[str]:
        """`host:port` of every broker."""
        return [broker.address for broker in self.brokers]

    async def start(self) -> None:
        """Start the name server, then the brokers, and wait until they are registered."""
        self._logs.enter_context(through_logging())
        try:
            await self._start()
        except BaseException:
            self._logs.close()
            raise

    async def _start(self) -> None:
        keys = [f"{k}={v}" for k, v in self._properties.items() if k.startswith("tls.server.")]
        loaded = load(Sources(overrides=tuple(keys)), [RemotingServerConfig])
        tls = loaded.get(RemotingServerConfig).tls
        server = RemotingServerConfig(bind_address=_LOOPBACK, listen_port=0, tls=tls)
        config = NamesrvConfig(data_dir=str(self._directory / "namesrv"), server=server)
        self._name_server = NameServer(config, clock=self._clock)
        await self._name_server.start()
        for number in range(self._count):
            network = FaultyNetwork()
            broker = self._make_broker(number, network)
            await broker.start()
            self.brokers.append(broker)
            self._networks.append(network)

    async def stop(self) -> None:
        """Stop all servers; the store directories stay."""
        with self._logs:
            while self.brokers:
                self._networks.pop().heal()
                await self.brokers.pop().stop()
            if self._name_server is not None:
                await self._name_server.stop()
                self._name_server = None

    async def restart_broker(self, number: int = 0) -> Broker:
        """Stop one broker cleanly and start it again on the same port and store, without faults."""
        port = self.brokers[number].port
        self._networks[number].heal()
        await self.brokers[number].stop()
        network = FaultyNetwork()
        broker = self._make_broker(number, network, port)
        await broker.start()
        self.brokers[number], self._networks[number] = broker, network
        return broker

    def freeze_broker(self, number: int = 0, *, frozen: bool = True) -> None:
        """Freeze a broker: it answers no client, and its connections stay open and silent.

        Requests received before are served, but no response leaves until the end.
        """
        self._networks[number].freeze(frozen=frozen)

    def refuse_broker(self, number: int = 0, *, refused: bool = True) -> None:
        """Let a broker's port refuse connections, as if it were down; open ones are reset.

        Call it on the cluster's loop.

        Raises:
            StartError: another process took the port before the end.
        """
        self._networks[number].refuse(refused=refused)

    def slow_broker(self, duration: Duration, number: int = 0) -> None:
        """Delay data from clients to a broker; 0 ends it."""
        self._networks[number].delay_s = to_s(duration)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every broker; call it on the cluster's loop."""
        for broker in self.brokers:
            config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
            broker.parts.topics.put(config)

    def message_count(self, topic: str) -> int:
        """Return the number of messages of a topic on the brokers."""
        total = 0
        for broker in self.brokers:
            parts = broker.parts
            config = parts.topics.get(topic)
            for queue_id in range(config.write_queue_nums if config else 0):
                # A queue that was never written has offsets below 0.
                total += max(0, parts.store.max_offset(topic, queue_id))
                total -= max(0, parts.store.min_offset(topic, queue_id))
        return total

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _make_broker(self, number: int, network: FaultyNetwork, port: int = 0) -> Broker:
        name = f"broker-{chr(ord('a') + number)}"
        values = {
            "brokerName": name,
            "brokerIP1": _LOOPBACK,
            "bindAddress": _LOOPBACK,
            "listenPort": str(port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self._directory / name),
            **self._properties,
        }
        overrides = tuple(f"{key}={value}" for key, value in values.items())
        kinds = [BrokerConfig, MessageStoreConfig, RemotingServerConfig, ReplicationConfig]
        loaded = load(Sources(overrides=overrides), kinds)
        return Broker(
            loaded.get(BrokerConfig),
            store_config=loaded.get(MessageStoreConfig),
            server_config=loaded.get(RemotingServerConfig),
            replication=ReplicationSettings(config=loaded.get(ReplicationConfig)),
            clock=self._clock,
            rng=random.Random(number),  # noqa: S311 - spreads load, guards nothing
            network=network,
        )


class ClusterThread:
    """A `LocalCluster` on a loop in a separate thread, for synchronous code.

    The arguments are those of `LocalCluster`.

    Example:
        >>> with ClusterThread(tmp_path) as cluster:  # doctest: +SKIP
        ...     print(cluster.namesrv)
    """

    def __init__(
        self, directory: Path, *, brokers: int = 1, properties: Mapping[str, str] | None = None
    ) -> None:
        self._cluster = LocalCluster(directory, brokers=brokers, properties=properties)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rocketpy-cluster", daemon=True
        )

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server."""
        return self._cluster.namesrv

    @property
    def broker_addresses(self) -> list[str]:
        """`host:port` of every broker."""
        return self._cluster.broker_addresses

    @property
    def brokers(self) -> list[Broker]:
        """The broker objects; any thread may read their parts."""
        return self._cluster.brokers

    def start(self) -> None:
        """Start the thread and the cluster.

        Raises:
            RocketPyError: a server cannot start.
        """
        self._thread.start()
        try:
            self._run(self._cluster.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all servers and end the thread."""
        if not self._thread.is_alive():
            return
        try:
            self._run(self._cluster.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on every broker."""
        self._call(lambda: self._cluster.create_topic(topic, queues))

    def message_count(self, topic: str) -> int:
        """Return the number of messages of a topic on the brokers."""
        return self._call(lambda: self._cluster.message_count(topic))

    def restart_broker(self, number: int = 0) -> None:
        """Stop one broker cleanly and start it again on the same port and store, without faults."""
        self._run(self._cluster.restart_broker(number))

    def freeze_broker(self, number: int = 0, *, frozen: bool = True) -> None:
        """Freeze a broker; see `LocalCluster.freeze_broker`."""
        self._cluster.freeze_broker(number, frozen=frozen)

    def refuse_broker(self, number: int = 0, *, refused: bool = True) -> None:
        """Let a broker's port refuse connections; see `LocalCluster.refuse_broker`.

        Raises:
            StartError: another process took the port before the end.
        """
        self._call(lambda: self._cluster.refuse_broker(number, refused=refused))

    def slow_broker(self, duration: Duration, number: int = 0) -> None:
        """Delay data from clients to a broker; 0 ends it."""
        self._cluster.slow_broker(duration, number)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and return its result."""
        return self._run(coroutine)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        future: Future[T] = asyncio.run_coroutine_threadsafe(wait(), self._loop)
        return future.result(_START_TIMEOUT_S)

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return self._run(call())
