"""Cost of a large cluster at its name server and at one of its brokers.

    python -m bench.scale                       # 100 brokers, 10,000 topics, 10,000 clients
    python -m bench.scale --brokers 20 --topics 1000 --clients 1000 --members 100

Real servers as processes; brokers and clients are connections of this program that send the
requests of real ones. Processor time is that of the server, so that it counts on a busy machine
as well. Prints a table.
"""

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import ClassVar, Final

from bench.processes import Side, pid_own_mib, start_rocketpy
from rocketpy.proto.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.headers.client import GetConsumerListByGroupRequestHeader
from rocketpy.proto.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from rocketpy.proto.record.record import body_crc
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock

_GROUP: Final = "scale-group"
_TOPIC: Final = "scale-topic"
_PERIOD_S: Final = 30
_CALL_MS: Final = 120_000
_AT_ONCE: Final = 64
_MOST_CONNECTIONS: Final = 2_000
"""Connections of this program; more clients are counted from the cost of these."""


class Meter:
    """Table of results."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def add(self, name: str, text: str) -> None:
        self.rows.append((name, text))
        print(f"| {name} | {text} |", flush=True)


def _client() -> RemotingClient:
    return RemotingClient(RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1))


async def _all(work: Iterable[Awaitable[object]]) -> None:
    """Run many calls, some at once."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(each: Awaitable[object]) -> None:
        async with gate:
            await each

    await asyncio.gather(*map(one, work))


async def _ask(client: RemotingClient, address: str, request: RemotingCommand) -> RemotingCommand:
    response = await client.invoke(address, request, _CALL_MS)
    if response.code:
        raise SystemExit(f"request {request.code} was refused: {response.code} {response.remark}")
    return response


async def _costs(side: Side, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return the server's processor time and the whole time of some work, s."""
    cpu_s, began_s = side.cpu_s(), time.monotonic()
    await work()
    return side.cpu_s() - cpu_s, time.monotonic() - began_s


def _registration(number: int, topics: Iterable[str], version: int) -> RemotingCommand:
    configs = {name: TopicConfig(name, 4, 4, 6) for name in topics}
    wrapper = TopicConfigSerializeWrapper(configs, DataVersion(1, 0, version))
    body = RegisterBrokerBody(wrapper).encode()
    header = RegisterBrokerRequestHeader(
        broker_name=f"broker-{number}",
        broker_addr=f"10.0.{number // 250}.{number % 250 + 1}:10911",
        cluster_name="c",
        ha_server_addr=f"10.0.{number // 250}.{number % 250 + 1}:10912",
        broker_id=0,
        body_crc32=body_crc(body),
    )
    return make_request(RequestCode.REGISTER_BROKER, header.to_ext(), body)


async def measure_name_server(
    side: Side, brokers: int, topics: int, clients: int, m: Meter
) -> None:
    """Measure registrations and routes."""
    address = side.namesrv
    names = [f"topic-{number}" for number in range(topics)]
    owners = [_client() for _ in range(brokers)]
    size_bytes = len(_registration(0, names, 1).body)
    bare_mib = pid_own_mib(side.pids["broker"])

    async def register(version: int, of: list[str]) -> None:
        await _all(
            _ask(owner, address, _registration(number, of, version))
            for number, owner in enumerate(owners)
        )

    cpu_s, took_s = await _costs(side, lambda: register(1, names))
    m.add(
        f"first registrations of {brokers} brokers with {topics:,} topics",
        f"{size_bytes / 1e6:.2f} MB each, {cpu_s:.1f} s CPU, done after {took_s:.1f} s",
    )
    mib = pid_own_mib(side.pids["broker"]) - bare_mib
    m.add(
        "memory of these routes",
        f"{mib:,.0f} MiB, {mib * 2**20 / brokers / topics:.0f} B a queue row",
    )
    cpu_s, _ = await _costs(side, lambda: register(1, names))
    m.add(
        "the same again, unchanged (every 30 s)",
        f"{cpu_s:.1f} s CPU: {cpu_s / _PERIOD_S:.1%} of a core",
    )
    cpu_s, _ = await _costs(side, lambda: register(2, ["topic-new"]))
    m.add("a topic created at all brokers", f"{cpu_s * 1e3 / brokers:.2f} ms CPU a broker")

    askers = [_client() for _ in range(8)]
    count = min(clients, _MOST_CONNECTIONS)
    sizes: list[int] = []

    async def route(number: int) -> None:
        header = GetRouteInfoRequestHeader(topic=names[number % topics])
        request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_ext())
        sizes.append(len((await _ask(askers[number % 8], address, request)).body))

    cpu_s, _ = await _costs(side, lambda: _all(route(number) for number in range(count)))
    load = cpu_s / count * clients / _PERIOD_S
    text = f"{sizes[0] / 1e3:.1f} KB, {cpu_s / count * 1e6:.0f} us CPU; {clients:,} clients with "
    m.add(f"a route of {brokers} brokers", f"{text}one topic: {load:.1%} of a core")
    for each in (*owners, *askers):
        await each.close()


def _heartbeat(number: int, groups: Iterable[str]) -> RemotingCommand:
    consumers = [
        ConsumerData(
            group_name=each,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[SubscriptionData(topic=_TOPIC, sub_string="*", sub_version=1)],
        )
        for each in groups
    ]
    data = HeartbeatData(
        client_id=f"10.1.{number // 250}.{number % 250}@{number}",
        producer_data_set=[ProducerData("producer")],
        consumer_data_set=consumers,
    )
    return make_request(RequestCode.HEART_BEAT, {}, data.encode())


class Member:
    """Member of a large group: asks for the list of members whenever it is notified.

    As a client, it runs one rebalance at a time, and one more for what arrives meanwhile.
    """

    notified = 0
    asked = 0
    asked_bytes = 0
    has_ended = False
    running: ClassVar[set["asyncio.Task[None]"]] = set()

    def __init__(self, client: RemotingClient, address: str) -> None:
        self._client = client
        self._address = address
        self._runs = self._must_run = False
        client.register(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._notice)

    def _notice(self, _channel: object, _request: RemotingCommand) -> None:
        Member.notified += 1
        self._must_run = True
        if not self._runs:
            self._runs = True
            task = asyncio.get_running_loop().create_task(self._rebalance())
            Member.running.add(task)
            task.add_done_callback(Member.running.discard)

    async def _rebalance(self) -> None:
        while self._must_run and not Member.has_ended:
            self._must_run = False
            header = GetConsumerListByGroupRequestHeader(consumer_group=_GROUP)
            request = make_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header.to_ext())
            response = await _ask(self._client, self._address, request)
            Member.asked_bytes += len(response.body)
            Member.asked += 1
        self._runs = False

    @classmethod
    async def until_quiet(cls) -> None:
        """Wait until nothing was notified for a second, and all rebalances have ended."""
        seen, quiet_since = -1, time.monotonic()
        while time.monotonic() - quiet_since < 1.0 or cls.running:
            if cls.notified != seen:
                seen, quiet_since = cls.notified, time.monotonic()
            await asyncio.sleep(0.05)


async def measure_broker(side: Side, clients: int, members: int, m: Meter) -> None:
    """Measure heartbeats, and the rebalance of a large group."""
    address, count = side.broker, min(clients, _MOST_CONNECTIONS)
    connections = [_client() for _ in range(count)]
    bare_mib = pid_own_mib(side.pids["broker"])

    async def beat(numbers: Iterable[int], *more: str) -> None:
        await _all(
            _ask(connections[each], address, _heartbeat(each, [f"group-{each // 10}", *more]))
            for each in numbers
        )

    await beat(range(count))
    mib = pid_own_mib(side.pids["broker"]) - bare_mib
    m.add("memory of a connected client with a group", f"{mib * 1024 / count:.1f} KiB")
    cpu_s, _ = await _costs(side, lambda: beat(range(count)))
    load = cpu_s / count * clients / _PERIOD_S
    text = f"{cpu_s / count * 1e6:.0f} us CPU; {clients:,} clients: {load:.1%} of a core"
    m.add("a heartbeat of a client", text)

    members = min(members, count)
    for each in connections[:members]:
        Member(each, address)

    async def storm() -> None:
        await beat(range(members), _GROUP)
        await Member.until_quiet()

    cpu_s, took_s = await _costs(side, storm)
    m.add(
        f"{members:,} members join one group",
        f"{Member.notified:,} notifications, {Member.asked:,} lists of members, "
        f"{Member.asked_bytes / 1e6:.0f} MB, {cpu_s:.1f} s CPU, quiet after {took_s - 1:.1f} s",
    )
    # Members that leave notify the others.
    Member.has_ended = True
    for each in connections:
        await each.close()


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=(__doc__ or "").splitlines()[0],
        epilog="Example: python -m bench.scale --brokers 20 --topics 1000",
    )
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--members", type=int, default=1_000)
    opts = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="rocketpy-scale-"))
    meter = Meter()
    print("| what | cost |\n|---|---|", flush=True)
    inside = "bindAddress=127.0.0.1"
    servers: list[Side] = []
    try:
        names = start_rocketpy(
            home / "namesrv",
            [inside, f"dataDir={home / 'names'}"],
            verb=["namesrv", "-p", "0"],
            settles_s=0.5,
        )
        servers.append(names)
        asyncio.run(measure_name_server(names, opts.brokers, opts.topics, opts.clients, meter))
        broker = start_rocketpy(home / "broker", [inside, "brokerIP1=127.0.0.1"], settles_s=0.5)
        servers.append(broker)
        asyncio.run(measure_broker(broker, opts.clients, opts.members, meter))
    finally:
        for each in servers:
            each.stop()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
