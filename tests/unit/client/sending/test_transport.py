"""Headers, queues in turn and waiting for routes, without a network."""

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rocketpy.client.config import ClientConfig, ProducerConfig
from rocketpy.client.sending.attempt import SendAttempt
from rocketpy.client.sending.outgoing_message import SEND, SEND_BATCH, Outgoing
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import NoNameServerError, NoRouteError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.proto.wire.compiled_requests import StoredAnswer
from rocketpy.testing.sim_clock import SimClock

QUEUES = tuple(MessageQueue("t", broker, number) for broker in ("a", "b") for number in (0, 1))


class FakeRoutes:
    """Routes that are known at once, or when `gate` opens."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[MessageQueue, ...]] = {}
        self.coming: tuple[MessageQueue, ...] = QUEUES
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.asked = 0
        self.masters: dict[str, str] = {"a": "a:1", "b": "b:1"}
        self.version = 0
        self.writable = self.known
        self.on_change: list[Callable[[str], None]] = []

    def cached_publish_queues(self, topic: str) -> tuple[MessageQueue, ...] | None:
        return self.known.get(topic)

    async def publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        self.asked += 1
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.known[topic] = self.coming
        return self.coming

    def master_address(self, broker: str) -> str | None:
        return self.masters.get(broker)

    def read_address(self, broker: str) -> tuple[str, bool] | None:
        return ("a:2", True) if broker == "a" else None


class FakeRemoting:
    on_silence: Callable[[str], None] | None = None
    on_disconnect: Callable[[str], None] | None = None

    def __init__(self) -> None:
        self.sent: list[tuple[str, RemotingCommand, int]] = []

    def start(self, address: str, call: Any) -> None:
        self.sent.append((address, call.command, call.timeout_ms))
        call.answer(make_response(call.command, 0))

    def abandon(self, address: str, reason: str) -> None:
        """Do nothing: no server of these tests is replaced."""

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        self.sent.append((address, command, timeout_ms))


class Kit:
    def __init__(self, **config: Any) -> None:
        self.clock = SimClock()
        self.routes, self.remoting = FakeRoutes(), FakeRemoting()
        self.refreshes = 0
        instance: Any = SimpleNamespace(
            clock=self.clock,
            rng=random.Random(3),
            routes=self.routes,
            remoting=self.remoting,
            config=ClientConfig(name_servers="n:9876", default_topic_queues=7),
            refresh_routes_soon=self.refresh,
            broker_lost=self.refresh,
        )
        self.transport = SendTransport(instance, "p", ProducerConfig(**config))

    def refresh(self, *, is_urgent: bool = False) -> None:
        self.refreshes += 1


class FakeSend:
    def __init__(self) -> None:
        self.told: list[tuple[RemotingCommand | None, BaseException | None]] = []

    def responded(
        self,
        _: SendAttempt,
        response: RemotingCommand | None,
        error: BaseException | None,
    ) -> None:
        self.told.append((response, error))

    def stored(self, _: SendAttempt, answer: StoredAnswer) -> None:
        raise AssertionError("the fake remoting has whole responses only")


def attempt(queue: MessageQueue, send: FakeSend | None = None) -> SendAttempt:
    return SendAttempt(send or FakeSend(), asyncio.get_running_loop(), queue, 0, 900)


def transmit(
    kit: Kit, queue: MessageQueue, message: Outgoing, send: FakeSend | None = None
) -> None:
    kit.routes.known["t"] = QUEUES
    destination = kit.transport.route("t").destination(queue)
    kit.transport.transmit(attempt(queue, send), destination, message)


def outgoing(**changes: Any) -> Outgoing:
    return Outgoing(b"body", "KEYS\x01k\x02", 0, 0, "id")._replace(**changes)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_route_callbacks_run_in_order_after_one_request() -> None:
    kit = Kit()
    told: list[tuple[int, Exception | None]] = []

    def tell(number: int) -> Any:
        return lambda error: told.append((number, error))

    for number in range(3):
        kit.transport.when_routed("t", tell(number))
    await turns()
    assert told == []
    kit.routes.gate.set()
    await turns()
    assert told == [(0, None), (1, None), (2, None)]
    kit.transport.when_routed("t", tell(3))
    assert told[-1] == (3, None), "a known route is told at once"
    assert kit.routes.asked == 1


async def test_everybody_hears_why_there_is_no_route_and_the_next_one_asks_again() -> None:
    kit = Kit()
    kit.routes.failure = NoNameServerError("none answers")
    kit.routes.gate.set()
    told: list[Exception | None] = []
    for _ in range(2):
        kit.transport.when_routed("t", told.append)
    await turns()
    assert [repr(error) for error in told] == [repr(kit.routes.failure)] * 2
    assert told[0] is not told[1], "each has an error of its own, or it would gather all traces"
    kit.routes.failure = None
    kit.transport.when_routed("t", told.append)
    await turns()
    assert told[2:] == [None]


async def test_queues_take_turns_and_the_broker_that_failed_is_left_out() -> None:
    kit = Kit()
    kit.routes.known["t"] = QUEUES
    assert {kit.transport.route("t").next().queue for _ in QUEUES} == set(QUEUES)
    assert {kit.transport.route("t").next(("a",)).queue.broker_name for _ in range(8)} == {"b"}
    kit.routes.known["t"] = QUEUES[:2]
    found = {kit.transport.route("t").next(("a",)).queue for _ in range(4)}
    assert found == set(QUEUES[:2]), "of new queues, those of the only broker there is"


async def test_topic_without_queues_has_no_route() -> None:
    kit = Kit()
    kit.routes.known["t"] = ()
    with pytest.raises(NoRouteError, match="t has no queue"):
        kit.transport.route("t").next()


async def test_header_says_what_the_message_is() -> None:
    kit = Kit()
    send = FakeSend()
    transmit(kit, QUEUES[1], outgoing(), send)
    ((response, error),) = send.told
    assert response is not None
    assert (response.code, error) == (0, None)
    ((address, command, timeout_ms),) = kit.remoting.sent
    assert (address, command.code, command.body, timeout_ms) == ("a:1", SEND, b"body", 900)
    plain = command.ext_fields
    assert [plain[name] for name in "abcdefghijkmn"] == [
        "p", "t", "TBW102", "7", "1", "0", str(kit.clock.time_ms()), "0", "KEYS\x01k\x02", "0",
        "false", "false", "a",
    ]  # fmt: skip
    batch = outgoing(code=SEND_BATCH, sys_flag=1, flag=9)
    await kit.transport.transmit_oneway(kit.transport.route("t").destination(QUEUES[1]), batch, 900)
    _, command, _ = kit.remoting.sent[1]
    assert command.is_oneway
    changed = {k: v for k, v in command.ext_fields.items() if plain[k] != v}
    assert changed == {"f": "1", "h": "9", "m": "true"}
    transmit(kit, QUEUES[1], outgoing())
    assert kit.remoting.sent[2][1].ext_fields == plain, "one message leaves nothing to the next"


async def test_broker_without_a_master_gets_nothing() -> None:
    kit = Kit()
    del kit.routes.masters["a"]
    with pytest.raises(NoRouteError, match="a has no master"):
        transmit(kit, QUEUES[0], outgoing())
    destination = kit.transport.route("t").destination(QUEUES[0])
    with pytest.raises(NoRouteError, match="a has no master"):
        await kit.transport.transmit_oneway(destination, outgoing(), 900)
    assert kit.remoting.sent == []
    kit.routes.masters["a"] = "a:3"
    kit.routes.version += 1
    transmit(kit, QUEUES[0], outgoing())
    assert [address for address, _, _ in kit.remoting.sent] == ["a:3"]


async def test_slow_broker_is_avoided_if_that_is_wanted() -> None:
    kit = Kit(latency_fault=True)
    kit.routes.known["t"] = QUEUES
    kit.transport.note_success("a", 3_000)
    assert {kit.transport.route("t").next().queue.broker_name for _ in range(8)} == {"b"}
    indifferent = Kit()
    indifferent.routes.known["t"] = QUEUES
    indifferent.transport.note_success("a", 3_000)
    assert {indifferent.transport.route("t").next().queue for _ in QUEUES} == set(QUEUES)


async def test_only_a_failure_of_the_network_has_the_routes_fetched() -> None:
    kit = Kit(latency_fault=True)
    kit.transport.note_failure("a", 5, reachable=True)
    assert kit.refreshes == 0
    kit.transport.note_failure("a", 5, reachable=False)
    kit.transport.note_failure(None, 5, reachable=False)
    assert kit.refreshes == 2


class Paused:
    def __init__(self) -> None:
        self.woken = 0

    def route_changed(self) -> None:
        self.woken += 1


async def test_paused_sends_of_a_topic_are_woken_once_by_a_change_of_its_route() -> None:
    kit, one, other, resumed = Kit(), Paused(), Paused(), Paused()
    for topic, send in (("t", one), ("t", resumed), ("u", other)):
        kit.transport.pause(topic, send)
    kit.transport.resume("t", resumed)
    kit.transport.resume("t", resumed)
    for _ in range(2):
        for listener in tuple(kit.routes.on_change):
            listener("t")
    assert (one.woken, resumed.woken, other.woken) == (1, 0, 0)
    kit.transport.resume("u", other)
    assert kit.routes.on_change == [], "a producer without paused sends is not kept"
