"""An event loop whose time only moves when nobody has anything to do, and a cluster in memory."""

import asyncio
import json
import random
import selectors
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.errors import ConnectError, RequestTimeoutError
from rocketpy.proto.command import RemotingCommand, make_request, make_response
from rocketpy.proto.message import MessageExt, decode_batch, encode_message
from rocketpy.proto.properties import parse_properties

T = TypeVar("T")
# The loop's time is simulated, so this costs nothing.
pass_time = asyncio.sleep
START_MS = 1_700_000_000_000
NAMESRV = "ns:9876"


class _SimSelector(selectors.DefaultSelector):
    """Selects at once and moves the loop's time by what it was willing to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.now_s += timeout
        return ready


class SimLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.sim = _SimSelector()
        super().__init__(self.sim)

    def time(self) -> float:
        return self.sim.now_s


class SimClock:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.wall_step_ms = 0  # as when somebody sets the machine's clock

    def time_ms(self) -> int:
        return START_MS + self.wall_step_ms + round(self._loop.time() * 1000)

    def monotonic_ms(self) -> int:
        return round(self._loop.time() * 1000)


def run_sim(main: Callable[["FakeCluster"], Coroutine[Any, Any, T]], **cluster: Any) -> T:
    """Run a scenario; hours pass in milliseconds."""
    loop = SimLoop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(
            asyncio.wait_for(main(FakeCluster(SimClock(loop), **cluster)), 36_000)
        )
    finally:
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        if rest:
            loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.close()
        asyncio.set_event_loop(None)


class FakeCluster:
    """A name server and brokers that response as the real ones do, plus faults on demand.

    ``script[code]`` holds, for the next requests of a code, an exception to raise, a response's
    code, or a function of (address, request).
    """

    def __init__(
        self,
        clock: SimClock,
        *,
        brokers: int = 1,
        queues: int = 4,
        topics: tuple[str, ...] = ("t",),
    ) -> None:
        self.clock = clock
        self.rng = random.Random(7)
        self.brokers = {f"b{n}": f"b{n}:10911" for n in range(brokers)}
        self.down: set[str] = set()
        self.queues = queues
        self.topics = set(topics)
        self.stored: dict[tuple[str, str, int], list[bytes]] = defaultdict(list)
        self.min_offset: dict[tuple[str, str, int], int] = defaultdict(int)
        self.offsets: dict[tuple[str, str, str, int], int] = {}
        self.members: dict[str, dict[str, FakeRemoting]] = defaultdict(dict)
        self.script: dict[int, list[Any]] = defaultdict(list)
        self.requests: list[tuple[str, RemotingCommand]] = []
        self.times: list[tuple[int, RemotingCommand]] = []
        self.sent_back: list[dict[str, str]] = []
        self.supports_send_back = True
        self.latency_ms = 1
        self.arrivals: list[asyncio.Future[None]] = []

    def client(self, **options: Any) -> Client:
        config = ClientConfig(name_servers=(NAMESRV,), client_ip="10.0.0.1", group="g", **options)
        return Client(
            config, clock=self.clock, rng=self.rng, make_remoting=lambda: FakeRemoting(self)
        )

    def of_code(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.requests if request.code == code]

    def pause_ms(self, code: int, **ext: str) -> int:
        """Time between the second and the third request of a code."""
        times = [
            at
            for at, request in self.times
            if request.code == code and ext.items() <= request.ext_fields.items()
        ]
        return times[2] - times[1]

    def put(
        self, topic: str, body: bytes, queue_id: int = 0, broker: str = "b0", **ext: Any
    ) -> int:
        key = (broker, topic, queue_id)
        offset = self.min_offset[key] + len(self.stored[key])
        message = MessageExt(
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            phy_offset=offset * 1000,
            born_timestamp_ms=self.clock.time_ms(),
            born_host="10.0.0.1:5",
            store_timestamp_ms=self.clock.time_ms(),
            store_host="10.0.0.9:10911",
            body=body,
            properties={"UNIQ_KEY": f"U{offset}-{queue_id}", **ext.pop("properties", {})},
            **ext,
        )
        self.stored[key].append(encode_message(message))
        arrivals, self.arrivals = self.arrivals, []
        for waiter in arrivals:
            if not waiter.done():
                waiter.set_result(None)
        return offset

    async def response(
        self, remoting: "FakeRemoting", address: str, request: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.requests.append((address, request))
        self.times.append((self.clock.monotonic_ms(), request))
        await pass_time(self.latency_ms / 1000)
        if address in self.down:
            raise ConnectError(f"{address} is down")
        if self.script[request.code]:
            step = self.script[request.code].pop(0)
            if isinstance(step, BaseException):
                raise step
            if step == "lost":
                await pass_time(timeout_ms / 1000)
                raise RequestTimeoutError("no answer")
            if callable(step):
                step = step(address, request)
            if isinstance(step, int):
                return make_response(request, step, "scripted")
            if step is not None:
                return step
        handler = getattr(self, f"_on_{request.code}", None)
        if handler is None:
            return make_response(request, 3, f" request type {request.code} not supported")
        outcome = handler(remoting, address, request)
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def _name(self, address: str) -> str:
        return next(name for name, at in self.brokers.items() if at == address)

    def _on_105(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        topic = request.ext_fields["topic"]
        if topic not in self.topics and topic != "TBW102":
            return make_response(request, 17, "No topic route info")
        count = 1 if topic.startswith("%RETRY%") else self.queues
        return make_response(request, body=json.dumps({
            "brokerDatas": [
                {"brokerAddrs": {"0": at}, "brokerName": name, "cluster": "c"}
                for name, at in self.brokers.items()
            ],
            "queueDatas": [
                {"brokerName": name, "perm": 6, "readQueueNums": count, "writeQueueNums": count}
                for name in self.brokers
            ],
        }).encode())  # fmt: skip

    def _on_310(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext_fields
        self.topics.add(ext["b"])
        queue_id = int(ext["e"])
        offset = self.put(
            ext["b"],
            request.body,
            queue_id,
            self._name(address),
            sys_flag=int(ext["f"]),
            properties=parse_properties(ext["i"]),
        )
        return make_response(request, ext_fields={
            "msgId": f"OFF{offset}", "queueId": ext["e"], "queueOffset": str(offset),
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        })  # fmt: skip

    def _on_320(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext_fields
        offsets = [
            self.put(
                ext["b"],
                item.body,
                int(ext["e"]),
                self._name(address),
                properties=parse_properties(item.properties),
            )
            for item in decode_batch(request.body)
        ]
        return make_response(request, ext_fields={
            "msgId": ",".join(f"OFF{offset}" for offset in offsets),
            "queueId": ext["e"], "queueOffset": str(offsets[0]),
        })  # fmt: skip

    def _on_34(self, remoting: "FakeRemoting", address: str, request: RemotingCommand) -> Any:
        data = json.loads(request.body)
        for group in data["consumerDataSet"]:
            name = group["groupName"]
            self.topics.add(f"%RETRY%{name}")
            if data["clientID"] not in self.members[name]:
                self.members[name][data["clientID"]] = remoting
                self._notify(name)
        return make_response(request)

    def _on_35(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        group = request.ext_fields.get("consumerGroup")
        if group and self.members[group].pop(request.ext_fields["clientID"], None):
            self._notify(group)
        return make_response(request)

    def _notify(self, group: str) -> None:
        for member in self.members[group].values():
            member.receive(make_request(40, {"consumerGroup": group}, oneway=True))

    def _on_38(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        ids = list(self.members[request.ext_fields["consumerGroup"]])
        return make_response(request, body=json.dumps({"consumerIdList": ids}).encode())

    def _key(self, address: str, ext: dict[str, str]) -> tuple[str, str, int]:
        return self._name(address), ext["topic"], int(ext["queueId"])

    def _on_14(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext_fields
        offset = self.offsets.get((ext["consumerGroup"], *self._key(address, ext)))
        if offset is None:
            return make_response(request, 22, "not found")
        return make_response(request, ext_fields={"offset": str(offset)})

    def _on_15(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext_fields
        key = (ext["consumerGroup"], *self._key(address, ext))
        self.offsets[key] = int(ext["commitOffset"])
        return make_response(request)

    def _end(self, key: tuple[str, str, int]) -> int:
        return self.min_offset[key] + len(self.stored[key])

    def _on_30(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        end = self._end(self._key(address, request.ext_fields))
        return make_response(request, ext_fields={"offset": str(end)})

    def _on_31(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        low = self.min_offset[self._key(address, request.ext_fields)]
        return make_response(request, ext_fields={"offset": str(low)})

    def _on_29(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        return make_response(request, ext_fields={"offset": "2"})

    def _on_36(self, remoting: Any, address: str, request: RemotingCommand) -> RemotingCommand:
        if not self.supports_send_back:
            return make_response(request, 3, " request type 36 not supported")
        self.sent_back.append(request.ext_fields)
        return make_response(request)

    async def _on_11(self, remoting: Any, address: str, request: RemotingCommand) -> Any:
        ext = request.ext_fields
        key = self._key(address, ext)
        offset = int(ext["queueOffset"])
        if int(ext["sysFlag"]) & 1:
            self.offsets[ext["consumerGroup"], *key] = int(ext["commitOffset"])
        deadline = self.clock.monotonic_ms() + int(ext["suspendTimeoutMillis"])
        while offset == self._end(key) and self.clock.monotonic_ms() < deadline:
            waiter = asyncio.get_running_loop().create_future()
            self.arrivals.append(waiter)
            await asyncio.wait([waiter], timeout=(deadline - self.clock.monotonic_ms()) / 1000)
        low, end = self.min_offset[key], self._end(key)
        fields = {"suggestWhichBrokerId": "0", "minOffset": str(low), "maxOffset": str(end)}
        if offset < low or offset > end:
            begin = low if offset < low else end
            return make_response(request, 21, ext_fields={**fields, "nextBeginOffset": str(begin)})
        found = self.stored[key][offset - low : offset - low + int(ext["maxMsgNums"])]
        fields["nextBeginOffset"] = str(offset + len(found))
        return make_response(request, 0 if found else 19, ext_fields=fields, body=b"".join(found))


class FakeRemoting:
    """One client's connections to the fake cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.processors: dict[int, Any] = {}
        self.responses: list[RemotingCommand] = []
        self.closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        async def limited() -> RemotingCommand:
            try:
                async with asyncio.timeout(timeout_ms / 1000 + 0.001):
                    return await response(self, address, command, timeout_ms)
            except TimeoutError as error:
                raise RequestTimeoutError("no answer in time") from error

        response = self.cluster.response
        task = asyncio.ensure_future(limited())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> Any:
        return await self.invoke_future(address, command, timeout_ms)

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        await self.invoke_future(address, command, timeout_ms)

    def register(self, code: int, processor: Any) -> None:
        self.processors[code] = processor

    def receive(self, request: RemotingCommand) -> None:
        """Be asked by a broker."""
        outcome = self.processors[request.code](None, request)
        if isinstance(outcome, RemotingCommand):
            self.responses.append(outcome)
        elif outcome is not None:
            task = asyncio.ensure_future(outcome)
            self._tasks.add(task)
            task.add_done_callback(lambda t: self.responses.append(t.result()))

    async def close(self) -> None:
        self.closed = True
