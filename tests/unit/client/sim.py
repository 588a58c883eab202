"""A real name server, real brokers and real clients in simulated time, with requests on the record.

`rocketpy.testing.sim_cluster` runs them; here is what tests of the client do with them.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.errors import ConnectError, RequestTimeoutError
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.store.results import PutMessage
from rocketpy.testing.sim_cluster import SimCluster, run_simulation

T = TypeVar("T")
# The loop's time is simulated, so this costs nothing.
pass_time = asyncio.sleep
NAMESRV = "10.0.0.1:9876"
BROKER_A, BROKER_B = "10.0.0.11:10911", "10.0.0.12:10911"
SEND_BACK = 36


def run_sim(
    main: Callable[["Cluster"], Coroutine[Any, Any, T]],
    *,
    brokers: int = 1,
    queues: int = 4,
    topics: tuple[str, ...] = ("t",),
    properties: dict[str, str] | None = None,
) -> T:
    """Run a scenario; hours pass in milliseconds."""

    async def scenario(cluster: SimCluster) -> T:
        for topic in topics:
            cluster.create_topic(topic, queues)
        await pass_time(2)  # the name server has heard of them
        return await main(Cluster(cluster, queues))

    return run_simulation(scenario, brokers=brokers, properties=properties)


class Offsets:
    """Consumer offsets as the brokers have them, by group, broker, topic and queue."""

    def __init__(self, cluster: SimCluster) -> None:
        self._brokers = {each.name: each for each in cluster.brokers}

    def _table(self, broker: str) -> Any:
        return self._brokers[broker].broker.parts.offsets

    def __getitem__(self, key: tuple[str, str, str, int]) -> int:
        group, broker, topic, queue_id = key
        offset: int = self._table(broker).query(group, topic, queue_id)
        if offset < 0:
            raise KeyError(key)
        return offset

    def __setitem__(self, key: tuple[str, str, str, int], offset: int) -> None:
        group, broker, topic, queue_id = key
        assert self._table(broker).commit(group, topic, queue_id, offset)

    def __iter__(self) -> Iterator[tuple[str, str, str, int]]:
        return (key for key, _ in self.items())  # noqa: PERF102 - it is no dict

    def items(self) -> Iterator[tuple[tuple[str, str, str, int], int]]:
        for name in self._brokers:
            for key, queues in self._table(name).to_json()["offsetTable"].items():
                topic, _, group = key.partition("@")
                for queue_id, offset in queues.items():
                    yield (group, name, topic, int(queue_id)), offset


class Cluster:
    """Simulated cluster of a test.

    `script[code]` holds, for the next requests of a code, an exception to raise, a response's
    code, "lost" (nobody responds), or a function of (address, request). Without a step the request
    goes to the real server. Servers in `down` refuse connections. Messages given back are noted
    in `sent_back` and not redelivered; without `supports_send_back` brokers refuse them.
    `always[code]` is the step of every request of a code that has no other one.
    """

    def __init__(self, cluster: SimCluster, queues: int) -> None:
        self.world = cluster
        self.clock = cluster.clock
        self.began_ms = cluster.clock.monotonic_ms()
        self.queues = queues
        self.down: set[str] = set()
        self.offsets = Offsets(cluster)
        self.script: dict[int, list[Any]] = defaultdict(list)
        self.always: dict[int, Callable[[str, RemotingCommand], Any]] = {}
        self.requests: list[tuple[str, RemotingCommand]] = []
        self.times: list[tuple[int, RemotingCommand]] = []
        self.sent_back: list[dict[str, str]] = []
        self.supports_send_back = True
        self.latency_ms = 0
        self.remotings: list[Remoting] = []

    def client(self, **options: Any) -> Client:
        host = self.world.network.host(f"10.0.1.{len(self.remotings) + 1}")
        rng = random.Random(self.world.loop.rng.random())
        config = ClientConfig(
            **{"name_servers": NAMESRV, "client_ip": "10.0.0.1", "group": "g", **options}
        )

        def make_remoting() -> Remoting:
            real = RemotingClient(
                config.remoting or RemotingClientConfig(), clock=self.clock, rng=rng, network=host
            )
            self.remotings.append(Remoting(self, real))
            return self.remotings[-1]

        return Client(config, clock=self.clock, rng=rng, make_remoting=make_remoting)

    @property
    def elapsed_ms(self) -> int:
        return self.clock.monotonic_ms() - self.began_ms

    def of_code(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.requests if request.code == code]

    def pause_ms(self, code: int, **ext: str) -> int:
        """Time between the second and the third request of a code, in tenths of seconds."""
        times = [
            at
            for at, request in self.times
            if request.code == code and ext.items() <= request.ext_fields.items()
        ]
        return round(times[2] - times[1], -2)

    def store(self, broker: str = "broker-a") -> Any:
        return next(e for e in self.world.brokers if e.name == broker).broker.parts.store

    def members(self, group: str, broker: str = "broker-a") -> list[str]:
        parts = next(e for e in self.world.brokers if e.name == broker).broker.parts
        found = parts.consumers.group(group)
        return [] if found is None else found.client_ids()

    def create_topic(self, topic: str, queues: int = 4) -> None:
        self.world.create_topic(topic, queues)

    def put(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        broker: str = "broker-a",
        *,
        properties: dict[str, str] | None = None,
        sys_flag: int = 0,
    ) -> int:
        """Store a message beside all clients; returns its offset."""
        store = self.store(broker)
        offset = int(store.max_offset(topic, queue_id))
        own = {"UNIQ_KEY": f"U{offset}-{queue_id}", **(properties or {})}
        result = store.put_message(
            PutMessage(
                topic,
                queue_id,
                body,
                encode_properties(own),
                sys_flag=sys_flag,
                born_timestamp_ms=self.clock.time_ms(),
                tags=own.get("TAGS"),
                tags_code=tags_code(own["TAGS"]) if "TAGS" in own else 0,
                uniq_key=own["UNIQ_KEY"],
            )
        )
        assert result.queue_offset == offset, result
        return offset

    def record(self, topic: str, queue_id: int, offset: int, broker: str = "broker-a") -> bytes:
        """Return one stored message as it lies in the log."""
        return self.records(topic, queue_id, offset, 1, broker)

    def records(
        self, topic: str, queue_id: int, offset: int, count: int, broker: str = "broker-a"
    ) -> bytes:
        found = self.store(broker).get_message(topic, queue_id, offset, count, 1 << 20)
        return b"".join(bytes(buffer) for buffer in found.buffers)


class Remoting:
    """Connections of a client: requests are recorded, some are scripted."""

    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(self, cluster: Cluster, real: RemotingClient) -> None:
        self.config = real.config
        self.responses: list[RemotingCommand] = []
        self._cluster = cluster
        self._real = real
        self._processors: dict[int, Any] = {}
        self._tasks: set[asyncio.Future[Any]] = set()
        self.close = real.close
        self.hooks = real.hooks
        real.on_disconnect = self._disconnected

    def _disconnected(self, address: str) -> None:
        if self.on_disconnect is not None:
            self.on_disconnect(address)

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        step = self._step(address, command)
        if step is None and not self._cluster.latency_ms:
            return self._real.invoke_future(address, command, timeout_ms)
        return asyncio.ensure_future(self._play(step, address, command, timeout_ms))

    def start(self, address: str, call: Any) -> None:
        step = self._step(address, call.command)
        if step is None and not self._cluster.latency_ms:
            self._real.start(address, call)
            return
        played = self._play(step, address, call.command, call.timeout_ms)
        call.follow(asyncio.ensure_future(played))

    def _step(self, address: str, command: RemotingCommand) -> Any:
        cluster = self._cluster
        cluster.requests.append((address, command))
        cluster.times.append((cluster.elapsed_ms, command))
        if address in cluster.down:
            return ConnectError(f"{address} is down")
        steps = cluster.script[command.code]
        step = steps.pop(0) if steps else cluster.always.get(command.code)
        if callable(step) and not isinstance(step, BaseException):
            step = step(address, command)
        if step is None and command.code == SEND_BACK:
            if not cluster.supports_send_back:
                return 3
            cluster.sent_back.append(command.ext_fields)
            return 0
        if step is None and command.ext_fields.get("b", "").startswith("%RETRY%"):
            return None if cluster.supports_send_back else 1
        return step

    async def _play(
        self, step: Any, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        await pass_time(self._cluster.latency_ms / 1000)
        if step is None:
            return await self._real.invoke(address, command, timeout_ms)
        if isinstance(step, BaseException):
            await pass_time(0.001)
            raise step
        if step == "lost":
            await pass_time(timeout_ms / 1000)
            raise RequestTimeoutError("no response")
        await pass_time(0.001)
        if isinstance(step, RemotingCommand):
            return step
        return make_response(command, step, "scripted")

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        return await self.invoke_future(address, command, timeout_ms)

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        step = self._step(address, command)
        if step is None:
            await self._real.invoke_oneway(address, command, timeout_ms)
        elif isinstance(step, BaseException):
            raise step

    def register(self, code: int, processor: Any) -> None:
        self._processors[code] = processor
        self._real.register(code, processor)

    def receive(self, request: RemotingCommand) -> None:
        """Be asked by a broker."""
        outcome = self._processors[request.code](None, request)
        if isinstance(outcome, RemotingCommand):
            self.responses.append(outcome)
        elif outcome is not None:
            task = asyncio.ensure_future(outcome)
            self._tasks.add(task)
            task.add_done_callback(lambda t: self.responses.append(t.result()))
