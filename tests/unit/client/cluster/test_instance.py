"""Shared part of a client: its id, heartbeats, and failures of brokers."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ClientConfig
from rocketpy.errors import (
    ClientError,
    ConnectError,
    NoNameServerError,
    RequestTimeoutError,
)
from rocketpy.proto.bodies.heartbeat import ConsumerData
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_loop import LoopClock, SimLoop, pass_time

NAMESRV = "n:9876"
HEARTBEAT, UNREGISTER, ROUTE = 34, 35, 105


class FakeRemoting:
    """Every broker says yes, but for those in `down`; keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, RemotingCommand]] = []
        self.down: set[str] = set()
        self.silent: set[str] = set()
        self.brokers = {"a": {0: "a:1"}, "b": {0: "b:1", 1: "b:2"}}
        self.closed = 0
        self.on_unregister: Any = None

        self.on_silence: Any = None
        self.on_disconnect: Any = None
        self.abandoned: list[str] = []

    def register(self, code: int, processor: Any) -> None:
        pass

    def abandon(self, address: str, _reason: str) -> None:
        self.abandoned.append(address)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.requests.append((address, command))
        await asyncio.sleep(0)
        if address in self.down:
            raise ConnectError(f"{address} is down")
        if address in self.silent:
            await pass_time(timeout_ms / 1000)
            raise RequestTimeoutError(f"no answer from {address}")
        if command.code == ROUTE:
            route = TopicRouteData(
                queue_datas=[QueueData(name, 1, 1, 6) for name in self.brokers],
                broker_datas=[BrokerData("c", name, ids) for name, ids in self.brokers.items()],
            )
            return make_response(command, 0, body=route.encode())
        if command.code == UNREGISTER and self.on_unregister is not None:
            await self.on_unregister()
        return make_response(command, 0)

    async def close(self) -> None:
        self.closed += 1

    def asked(self, code: int) -> list[str]:
        return [address for address, command in self.requests if command.code == code]


class Member:
    """A consumer, as far as the instance knows one."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.wakes = 0

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(group_name=self.group)

    def wake_rebalance(self) -> None:
        self.wakes += 1


class Kit:
    def __init__(self, at_ms: int = 0, **config: Any) -> None:
        self.clock = SimClock()
        self.clock.advance(at_ms)
        self.remoting = FakeRemoting()
        remoting: Any = self.remoting
        settings = {"name_servers": NAMESRV, "client_ip": "10.0.0.1", **config}
        self.instance = Instance(
            ClientConfig(**settings), remoting, clock=self.clock, rng=random.Random(1), process_id=1
        )

    def member(self, group: str = "g") -> Any:
        member: Any = Member(group)
        self.instance.add_consumer(member)
        return member


def test_id_names_the_address_the_instance_and_the_unit() -> None:
    kit = Kit(instance_name="one", unit_name="u")
    assert kit.instance.client_id == kit.instance.lasting_id == "10.0.0.1@one@u"
    unnamed, later = Kit().instance, Kit(at_ms=5).instance
    assert unnamed.client_id != later.client_id
    assert unnamed.lasting_id == later.lasting_id == "10.0.0.1@DEFAULT"


def test_versions_of_subscriptions_only_grow() -> None:
    kit = Kit()
    first = kit.instance.next_sub_version()
    assert first == kit.clock.time_ms()
    kit.clock.jump(-3_600_000)
    assert kit.instance.next_sub_version() == first + 1


async def test_without_groups_there_is_no_heartbeat() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    await kit.instance.heartbeat()
    assert kit.remoting.asked(HEARTBEAT) == []


async def test_producers_beat_to_masters_and_consumers_to_slaves_as_well() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    producer: Any = object()
    kit.instance.add_producer("p", producer)
    await kit.instance.heartbeat()
    assert kit.remoting.asked(HEARTBEAT) == ["a:1", "b:1"]
    kit.remoting.requests.clear()
    kit.member("g")
    await kit.instance.heartbeat()
    assert kit.remoting.asked(HEARTBEAT) == ["a:1", "b:1", "b:2"]
    told = fastjson.loads(kit.remoting.requests[0][1].body)
    assert told["clientID"] == kit.instance.client_id
    assert [one["groupName"] for one in told["producerDataSet"]] == ["p"]
    assert [one["groupName"] for one in told["consumerDataSet"]] == ["g"]
    await kit.instance.remove_producer(producer)
    assert kit.remoting.asked(UNREGISTER) == ["a:1", "b:1", "b:2"]


async def test_heartbeat_reaches_all_brokers_beside_a_failing_one() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    kit.member()
    kit.remoting.down = {"a:1"}
    with pytest.raises(ConnectError):
        await kit.instance.heartbeat()
    assert kit.remoting.asked(HEARTBEAT) == ["a:1", "b:1", "b:2"]
    assert list(kit.instance.failures()) == ["broker a:1"]
    kit.remoting.down.clear()
    await kit.instance.heartbeat()
    assert kit.instance.failures() == {}


async def test_broker_that_left_the_routes_is_no_failure_any_more() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    kit.member()
    kit.remoting.down = {"b:2"}
    with pytest.raises(ConnectError):
        await kit.instance.heartbeat()
    kit.remoting.brokers = {"a": {0: "a:1"}, "b": {0: "b:1"}}
    await kit.instance.routes.refresh("t")
    await kit.instance.heartbeat()
    assert kit.instance.failures() == {}


async def test_client_has_one_consumer_of_a_group() -> None:
    kit = Kit()
    first = kit.member("g")
    with pytest.raises(ClientError, match="group g"):
        kit.member("g")
    other: Any = Member("g")
    await kit.instance.remove_consumer(other)
    assert kit.instance.consumers == {"g": first}
    await kit.instance.remove_consumer(first)
    assert kit.member("g") is not first


async def test_last_one_of_a_group_leaves_it_where_the_broker_knows_it() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    one: Any = object()
    two: Any = object()
    for producer in (one, two):
        kit.instance.add_producer("p", producer)
    member = kit.member("g")
    kit.remoting.down = {"a:1"}
    with pytest.raises(ConnectError):
        await kit.instance.heartbeat()
    await kit.instance.remove_producer(one)
    assert kit.remoting.asked(UNREGISTER) == []
    await kit.instance.remove_producer(two)
    assert kit.remoting.asked(UNREGISTER) == ["b:1", "b:2"]
    kit.remoting.down = {"b:1"}
    await kit.instance.remove_consumer(member)
    assert kit.remoting.asked(UNREGISTER)[2:] == ["b:1", "b:2"], "a failure is only logged"


async def test_leaving_a_group_skips_a_broker_that_left_the_routes() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    member = kit.member("g")
    await kit.instance.heartbeat()
    stays: Any = Member("h")
    kit.instance.add_consumer(stays)

    async def routes_change() -> None:
        kit.remoting.on_unregister = None
        kit.remoting.brokers = {"a": {0: "a:1"}}
        kit.instance.routes._brokers.pop("b", None)
        await kit.instance.heartbeat()

    kit.remoting.on_unregister = routes_change
    await kit.instance.remove_consumer(member)
    assert kit.remoting.asked(UNREGISTER) == ["a:1", "b:1", "b:2"]


async def test_changed_route_wakes_every_consumer() -> None:
    kit = Kit()
    members = [kit.member("g"), kit.member("h")]
    await kit.instance.routes.refresh("t")
    await kit.instance.routes.refresh("t")
    assert [member.wakes for member in members] == [1, 1]


async def test_closed_client_closes_its_connections_once() -> None:
    kit = Kit()
    await kit.instance.close()
    assert kit.remoting.closed == 0, "it never started"
    await kit.instance.start()
    await kit.instance.start()
    assert kit.instance.is_running
    await kit.instance.close()
    await kit.instance.close()
    assert kit.remoting.closed == 1
    kit.instance.heartbeat_soon()
    kit.instance.refresh_routes_soon()
    assert kit.remoting.requests == []


async def test_urgent_fetches_of_routes_are_bounded_while_a_broker_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    await kit.instance.start()
    fetches: list[int] = []
    monkeypatch.setattr(
        kit.instance._route_job, "wake", lambda: fetches.append(kit.clock.monotonic_ms())
    )
    # A send that waits for the broker asks every 10 ms, for a minute.
    for _ in range(6_000):
        kit.instance.refresh_routes_soon(is_urgent=True)
        kit.clock.advance(10)
    await kit.instance.close()
    # Ten a second for 3 of 30 s, then two.
    begin = fetches[0]
    assert len([at for at in fetches if at - begin < 3_000]) == 30
    assert len(fetches) < 200


async def test_silent_broker_is_abandoned_once_the_route_names_another_one() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    kit.remoting.on_silence("a:1")
    assert kit.remoting.abandoned == []
    kit.remoting.brokers = {"a": {0: "a:2"}, "b": {0: "b:1", 1: "b:2"}}
    await kit.instance.routes.refresh("t")
    assert kit.remoting.abandoned == ["a:1"]
    await kit.instance.routes.refresh("t")
    assert kit.remoting.abandoned == ["a:1"]


async def test_silent_broker_of_no_route_is_abandoned_at_once() -> None:
    kit = Kit()
    await kit.instance.routes.refresh("t")
    kit.remoting.on_silence("old:1")
    assert kit.remoting.abandoned == ["old:1"]


def test_lost_broker_has_the_routes_fetched_again_a_few_times() -> None:
    loop = SimLoop(1)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> list[float]:
        kit = Kit()
        kit.instance.clock = LoopClock(loop)
        await kit.instance.start()
        fetches: list[float] = []
        kit.instance._route_job.wake = lambda: fetches.append(loop.time())  # type: ignore[method-assign]
        for _ in range(20):
            await pass_time(1)
            if len(fetches) < 2:
                kit.instance.broker_lost()
        await kit.instance.close()
        return fetches

    try:
        fetches = loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()
    assert fetches == [1.0, 2.0, 4.0, 10.0, 16.0]


def time_of_a_wait(wait: Callable[[Instance], Awaitable[None]], **servers: set[str]) -> float:
    """Return how long a wait without an answer takes in simulated time, in seconds."""
    loop = SimLoop(1)  # type: ignore[abstract]  # sockets and signals stay abstract on purpose

    async def main() -> float:
        remoting: Any = FakeRemoting()
        vars(remoting).update(servers)
        config = ClientConfig(name_servers=NAMESRV, client_ip="10.0.0.1")
        clock = LoopClock(loop)
        instance = Instance(config, remoting, clock=clock, rng=random.Random(1), process_id=1)
        await instance.start()
        began_ms = clock.monotonic_ms()
        with pytest.raises(NoNameServerError, match=NAMESRV):
            await wait(instance)
        passed_ms = clock.monotonic_ms() - began_ms
        await instance.close()
        return passed_ms / 1000

    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()


@pytest.mark.parametrize("limit_s", [0, 0.3, 1])
def test_wait_for_brokers_ends_with_its_time(limit_s: float) -> None:
    passed_s = time_of_a_wait(lambda each: each.wait_for_brokers(limit_s), down={NAMESRV})
    assert limit_s <= passed_s <= limit_s + 0.1


@pytest.mark.parametrize("limit_s", [0.5, 1, 2, 4, 10])
def test_waits_end_with_their_time_though_name_servers_are_silent(limit_s: float) -> None:
    waits: list[Callable[[Instance], Awaitable[None]]] = [
        lambda each: each.wait_for_brokers(limit_s),
        lambda each: each.look_up(["t", "u"], limit_s),
    ]
    for wait in waits:
        passed_s = time_of_a_wait(wait, silent={NAMESRV})
        assert limit_s <= passed_s <= limit_s + 0.6
