"""Due messages of an acting master go to another broker group, or stay."""

import asyncio
import random

import pytest

from rocketpy.broker.acting.escape import EscapeWriter, other_masters
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.topic_queues import RouteResponse
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.pop.revive.revive_sink import ReviveSink
from rocketpy.broker.system_topics.put_retry import HOLD_MS, PutRetry
from rocketpy.errors import RequestTimeoutError
from rocketpy.proto.bodies.route import BrokerData, QueueData, TopicRouteData
from rocketpy.proto.headers.send import SendMessageRequestHeaderV2
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock

ROUTE = TopicRouteData(
    queue_datas=[
        QueueData("own", 4, 4, 6),
        QueueData("readonly", 4, 4, 4),
        QueueData("slave-only", 4, 4, 6),
        QueueData("b", 2, 2, 6),
    ],
    broker_datas=[
        BrokerData("c", "own", {0: "own:1"}),
        BrokerData("c", "readonly", {0: "readonly:1"}),
        BrokerData("c", "slave-only", {1: "slave:1"}),
        BrokerData("c", "b", {0: "b:1", 1: "b:2"}),
    ],
)
IDENTITY = BrokerIdentity(BrokerConfig(broker_name="own", broker_ip1="127.0.0.1", broker_id=1))


class Kit:
    def __init__(self, route: TopicRouteData | None = ROUTE, code: int = 0) -> None:
        self.route = route
        self.code = code
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.looked_up = 0
        self.fails = False
        self.clock = SimClock()
        self.writer = EscapeWriter(
            None,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.fetch_route,
            identity=IDENTITY,
            clock=self.clock,
            rng=random.Random(1),
        )

    async def fetch_route(self, topic: str) -> RouteResponse:
        assert topic == "T"
        self.looked_up += 1
        return RouteResponse(True, self.route)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert timeout_ms == 3_000
        if self.fails:
            raise RequestTimeoutError("no answer")
        self.sent.append((address, command))
        return make_response(command, self.code, "words")


def message(topic: str = "T", **properties: str) -> PutMessage:
    return PutMessage(topic, 3, b"body", encode_properties(properties), reconsume_times=2)


def test_targets_are_writable_masters_of_other_groups() -> None:
    assert other_masters(ROUTE, IDENTITY) == [("b:1", 2)]


async def test_due_message_is_sent_without_what_would_delay_it_again() -> None:
    kit = Kit()
    due = message(DELAY="5", REAL_TOPIC="T", REAL_QID="3", TIMER_DELIVER_MS="7", TAGS="a")
    assert await kit.writer.send(due)
    ((address, command),) = kit.sent
    header = SendMessageRequestHeaderV2.from_ext(command.ext_fields)
    assert (address, command.code, header.topic, command.body) == ("b:1", 310, "T", b"body")
    assert header.queue_id in {0, 1}
    assert header.reconsume_times == 2
    assert parse_properties(header.properties or "") == {"TAGS": "a", "WAIT": "false"}


async def test_committed_message_begins_no_transaction_again() -> None:
    kit = Kit()
    due = message(TRAN_MSG="true", PGROUP="p")
    due.sys_flag = 8
    assert await kit.writer.send(due)
    header = SendMessageRequestHeaderV2.from_ext(kit.sent[0][1].ext_fields)
    assert header.sys_flag == 0
    assert parse_properties(header.properties or "") == {"PGROUP": "p", "WAIT": "false"}


async def test_retried_message_of_a_pop_is_sent_to_a_group_with_its_topic() -> None:
    kit = Kit()
    kit.writer.route_topics["%RETRY%g_T"] = "T"
    assert await kit.writer.send(message("%RETRY%g_T"))
    ((address, command),) = kit.sent
    header = SendMessageRequestHeaderV2.from_ext(command.ext_fields)
    assert (address, header.topic, header.queue_id) == ("b:1", "%RETRY%g_T", 0)


async def test_check_point_of_a_pop_never_leaves_the_broker() -> None:
    kit = Kit()
    kit.writer.loop = asyncio.get_running_loop()
    kit.writer.sink = ReviveSink("rmq_sys_REVIVE_LOG_c", lambda: True)
    point = message("rmq_sys_REVIVE_LOG_c")
    put = await asyncio.to_thread(kit.writer.put, point)
    assert put.status is PutMessageStatus.SERVICE_NOT_AVAILABLE, "there are no queues"
    assert kit.sent == []


async def test_half_message_is_sent_as_its_producer_sent_it() -> None:
    kit = Kit()
    half = message(
        "RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="T", REAL_QID="3", TRAN_MSG="true", PGROUP="p",
        DELAY="2", TRANSACTION_CHECK_TIMES="4", TRAN_PREPARED_QUEUE_OFFSET="7", UNIQ_KEY="U",
    )  # fmt: skip
    assert await kit.writer.send(half)
    header = SendMessageRequestHeaderV2.from_ext(kit.sent[0][1].ext_fields)
    assert (header.topic, header.sys_flag, header.producer_group) == ("T", 4, "p")
    assert parse_properties(header.properties or "") == {
        "DELAY": "2", "PGROUP": "p", "TRAN_MSG": "true", "UNIQ_KEY": "U", "WAIT": "false",
    }  # fmt: skip


async def test_rolled_message_keeps_its_delivery_time_at_the_other_group() -> None:
    kit = Kit()
    rolled = message("rmq_sys_wheel_timer", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS="9000")
    assert await kit.writer.send(rolled)
    header = SendMessageRequestHeaderV2.from_ext(kit.sent[0][1].ext_fields)
    assert header.topic == "T"
    assert parse_properties(header.properties or "") == {
        "TIMER_DELIVER_MS": "9000",
        "WAIT": "false",
    }


@pytest.mark.parametrize(
    ("code", "is_stored"), [(0, True), (10, True), (11, True), (12, True), (2, False), (14, False)]
)
async def test_response_code_decides_whether_the_message_is_stored(
    code: int, is_stored: bool
) -> None:
    assert await Kit(code=code).writer.send(message()) is is_stored


async def test_message_without_another_group_stays_and_routes_are_asked_rarely() -> None:
    kit = Kit(route=None)
    for _ in range(5):
        assert not await kit.writer.send(message())
    assert kit.looked_up == 1
    kit.clock.advance(2_000)
    kit.route = ROUTE
    assert await kit.writer.send(message())


async def test_message_whose_send_fails_stays() -> None:
    kit = Kit()
    kit.fails = True
    assert not await kit.writer.send(message())
    kit.fails = False
    assert await kit.writer.send(message())


async def test_put_on_the_loop_never_waits() -> None:
    kit = Kit()
    assert kit.writer.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE

    kit.writer.loop = asyncio.get_running_loop()
    assert kit.writer.put(message()).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert (await asyncio.to_thread(kit.writer.put, message())).status is PutMessageStatus.PUT_OK


def test_message_that_stays_is_never_parked() -> None:
    aside = PutRetry(Kit().writer, lambda *_: None, (1_000, 30_000))
    for now_ms in (0, HOLD_MS, 2 * HOLD_MS):
        assert aside.store(message(), now_ms) is None
