"""Common interface of a simulated cluster and a real one, so that the same cases run on both."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.errors import RequestTimeoutError
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.remoting.network.network import Network
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.testing.cluster import LocalCluster
from rocketpy.testing.sim_cluster import SimCluster, run_simulation

T = TypeVar("T")


class World(Protocol):
    """Cluster of a case.

    `script[code]` holds, for the next requests of a code that clients send: the code of a
    response, an exception, "lost" (sent, but never answered), a function of (address, request),
    or None, which lets the request pass. `requests` are all that were sent.
    """

    is_simulated: bool
    clock: Clock
    namesrv: str
    broker_addresses: list[str]
    script: dict[int, list[Any]]
    requests: list[tuple[str, RemotingCommand]]

    def client(self, **options: Any) -> Client: ...

    def of_code(self, code: int) -> list[RemotingCommand]: ...

    def create_topic(self, topic: str, queues: int = 4) -> None: ...

    def message_count(self, topic: str) -> int: ...

    async def restart_broker(self, number: int = 0) -> None: ...

    async def until(self, condition: Callable[[], bool], limit_s: float = 60) -> None: ...


class _Scripted:
    """Shared part of both worlds: clients whose requests are recorded and may be scripted."""

    clock: Clock
    namesrv: str

    def __init__(self) -> None:
        self.script: dict[int, list[Any]] = defaultdict(list)
        self.requests: list[tuple[str, RemotingCommand]] = []
        self._count = 0

    def client(self, **options: Any) -> Client:
        self._count += 1
        host = f"10.0.1.{self._count}"
        rng = random.Random(self._count)
        identity = {"client_ip": host, "instance_name": f"c{self._count}", "group": "g"}
        config = ClientConfig(**{"name_servers": (self.namesrv,), **identity, **options})

        def make_remoting() -> ScriptedRemoting:
            settings = config.remoting or RemotingClientConfig()
            network = self._network(host)
            remoting = RemotingClient(settings, clock=self.clock, rng=rng, network=network)
            return ScriptedRemoting(remoting, self.script, self.requests)

        return Client(config, clock=self.clock, rng=rng, make_remoting=make_remoting, process_id=1)

    def of_code(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.requests if request.code == code]

    async def until(self, condition: Callable[[], bool], limit_s: float = 60) -> None:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110 - the case knows no event
                await asyncio.sleep(0.02)

    def _network(self, _host: str) -> Network | None:
        """Return the network of a host; None is the machine's own."""
        return None


class SimWorld(_Scripted):
    is_simulated = True

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.clock = cluster.clock
        self.namesrv = cluster.namesrv
        self.broker_addresses = [each.address for each in cluster.brokers]
        self.create_topic = cluster.create_topic
        self.message_count = cluster.message_count

    async def restart_broker(self, number: int = 0) -> None:
        await self.cluster.brokers[number].stop()
        await self.cluster.brokers[number].start()

    def _network(self, _host: str) -> Network:
        return self.cluster.network.host(_host)


class RealWorld(_Scripted):
    is_simulated = False

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.clock = SystemClock()
        self.namesrv = cluster.namesrv
        self.broker_addresses = cluster.broker_addresses
        self.create_topic = cluster.create_topic
        self.message_count = cluster.message_count

    async def restart_broker(self, number: int = 0) -> None:
        await self.cluster.restart_broker(number)


class ScriptedRemoting:
    """A client's connections, each request recorded, some of them scripted."""

    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(
        self,
        remoting: RemotingClient,
        script: dict[int, list[Any]],
        requests: list[tuple[str, RemotingCommand]],
    ) -> None:
        self._remoting = remoting
        self._script = script
        self._requests = requests
        self.register = remoting.register
        self.close = remoting.close
        self.hooks = remoting.hooks

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        step = self._step(address, command)
        if step is None:
            return self._remoting.invoke_future(address, command, timeout_ms)
        return asyncio.ensure_future(self._play(step, command, timeout_ms))

    def start(self, address: str, call: Any) -> None:
        step = self._step(address, call.command)
        if step is None:
            self._remoting.start(address, call)
        else:
            played = self._play(step, call.command, call.timeout_ms)
            call.follow(asyncio.ensure_future(played))

    def _step(self, address: str, command: RemotingCommand) -> Any:
        self._requests.append((address, command))
        steps = self._script[command.code]
        step = steps.pop(0) if steps else None
        if callable(step) and not isinstance(step, BaseException):
            step = step(address, command)
        return step

    async def _play(self, step: Any, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        if isinstance(step, BaseException):
            raise step
        if step == "lost":
            await asyncio.sleep(timeout_ms / 1000)
            raise RequestTimeoutError("no answer")
        if isinstance(step, int):
            return make_response(command, step, "scripted")
        assert isinstance(step, RemotingCommand)
        return step

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        return await self.invoke_future(address, command, timeout_ms)

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self._requests.append((address, command))
        await self._remoting.invoke_oneway(address, command, timeout_ms)


Case = Callable[[Any], Coroutine[Any, Any, T]]


def run_simulated(case: Case[T], **options: Any) -> T:
    """Run a case on a simulated cluster; hours pass in milliseconds."""

    async def scenario(cluster: SimCluster) -> T:
        return await case(SimWorld(cluster))

    return run_simulation(scenario, **options)


def run_real(directory: Path, case: Case[T], **options: Any) -> T:
    """Run a case on a real name server and real brokers."""

    async def scenario() -> T:
        async with LocalCluster(directory, **options) as cluster:
            return await case(RealWorld(cluster))

    return asyncio.run(scenario())
