"""Assignment of queues by the broker, and message request modes."""

from typing import Any

import orjson
import pytest

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable
from rocketpy.broker.cluster.topic_queues import RouteResponse, TopicQueues
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.message_request_modes import MessageRequestModes
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.processor.query_assignment import QueryAssignmentProcessor
from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.route import QueueData, TopicRouteData
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from tests.unit.broker.fakes import FakeChannel, FakeClock, MemoryFile, request

ROUTE = TopicRouteData(
    queue_datas=[
        QueueData("b2", 2, 2, 6, 0),
        QueueData("b1", 3, 3, 4, 0),
        QueueData("b3", 4, 4, 2, 0),
    ]
)


class Kit:
    def __init__(self, route: TopicRouteData | None = ROUTE, **config: Any) -> None:
        self.clock = FakeClock()
        settings = BrokerConfig(broker_name="b1", **config)
        self.topics = TopicTable(settings, MemoryFile(), self.clock)
        self.topics.put(TopicConfig("T", 2, 2))
        self.groups = SubscriptionGroupTable(settings, MemoryFile(), self.clock)
        self.groups.get_or_create("g")
        self.consumers = ConsumerTable()
        self.response = RouteResponse(True, route)
        self.asked: list[str] = []
        self.mode = "PULL"
        self.file = MemoryFile()
        self.modes = MessageRequestModes(self.file)
        self.queues = TopicQueues(lambda: self.fetch, self.topics, "b1", self.clock)
        self.processor = QueryAssignmentProcessor(
            self.queues,
            self.modes,
            configs=LiveBrokerConfig(
                settings, MessageStoreConfig(), RemotingServerConfig(), self.clock
            ),
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
        )

    async def fetch(self, topic: str) -> RouteResponse:
        self.asked.append(topic)
        return self.response

    def join(self, *client_ids: str) -> None:
        for port, client_id in enumerate(client_ids):
            client = ClientChannel(FakeChannel(port=port), client_id, 0, 493, 0)  # type: ignore[arg-type]
            self.consumers.register(
                "g",
                client,
                [],
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                consume_from_where="",
            )

    async def query(self, client_id: str = "c1", **more: Any) -> Any:
        body = {
            "clientId": client_id,
            "consumerGroup": "g",
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": "T",
            **more,
        }
        response = await self.processor.query(
            FakeChannel(),  # type: ignore[arg-type]
            request(400, {}, orjson.dumps(body)),
        )
        assert response.code == 0
        listed = orjson.loads(response.body).get("messageQueueAssignments")
        if listed is None:
            return None
        assert {one["mode"] for one in listed} <= {self.mode}
        queues = [one["messageQueue"] for one in listed]
        return [(one["brokerName"], one["queueId"]) for one in queues]

    def set_mode(self, **fields: Any) -> Any:
        body = {"topic": "T", "consumerGroup": "g", "mode": "PULL", **fields}
        return self.processor.set_mode(
            FakeChannel(),  # type: ignore[arg-type]
            request(401, {}, orjson.dumps(body)),
        )


B1, B2 = [("b1", 0), ("b1", 1), ("b1", 2)], [("b2", 0), ("b2", 1)]


async def test_assignment_members_share_queues_of_cluster() -> None:
    kit = Kit()
    kit.join("c2", "c1")
    assert await kit.query("c1") == B1
    assert await kit.query("c2") == B2
    assert await kit.query("c2", strategyName="AVG_BY_CIRCLE") == [("b1", 1), ("b2", 0)]
    assert await kit.query("stranger") == []


async def test_assignment_broadcasting_returns_all_queues() -> None:
    assert sorted(await Kit().query(messageModel="BROADCASTING")) == B1 + B2


async def test_assignment_without_server_balancing_returns_all_queues() -> None:
    kit = Kit(server_load_balancer_enable=False)
    kit.join("c1", "c2")
    assert sorted(await kit.query()) == B1 + B2


@pytest.mark.parametrize(
    "fields", [{"strategyName": "RANDOM"}, {"consumerGroup": "none"}, {"messageModel": "?"}]
)
async def test_assignment_unknown_strategy_or_group_keeps_queues(fields: dict[str, str]) -> None:
    kit = Kit()
    kit.join("c1")
    assert await kit.query(**fields) is None


async def test_assignment_unknown_topic_keeps_queues() -> None:
    kit = Kit(route=None)
    kit.join("c1")
    assert await kit.query() is None


async def test_assignment_invalid_body_is_an_error() -> None:
    with pytest.raises(BadBodyError):
        await Kit().processor.query(FakeChannel(), request(400, {}, b"["))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "%RETRY%g"}, 16, "retry topic"),
        ({"topic": "X"}, 17, "not exist"),
        ({"consumerGroup": "no name"}, 26, "not exist"),
        ({"mode": "PUSH"}, 29, "PUSH"),
    ],
)
def test_request_mode_invalid_is_refused(fields: dict[str, str], code: int, remark: str) -> None:
    kit = Kit()
    response = kit.set_mode(**fields)
    assert response.code == code
    assert remark in response.remark
    assert kit.file.saves == 0


def test_request_mode_creates_missing_group() -> None:
    kit = Kit()
    assert kit.groups.get("new") is None
    assert kit.set_mode(consumerGroup="new", mode="POP").code == 0
    assert kit.groups.get("new") is not None
    assert kit.modes.get("T", "new").mode == "POP"  # type: ignore[union-attr]


WHOLE = [("b1", -1), ("b2", -1)]


@pytest.mark.parametrize(
    ("count", "shared", "expected"),
    [(1, 0, WHOLE), (3, 2, WHOLE), (4, -1, WHOLE), (4, 1, B1), (6, 1, [("b1", 0)])],
)
async def test_assignment_pop_returns_brokers_or_shared_queues(
    count: int, shared: int, expected: list[Any]
) -> None:
    kit = Kit()
    kit.join(*(f"c{number}" for number in range(1, count + 1)))
    assert kit.set_mode(mode="POP", popShareQueueNum=shared).code == 0
    kit.mode = "POP"
    assert await kit.query("c1") == expected


async def test_assignment_default_pop_excludes_retry_topics() -> None:
    kit = Kit(default_message_request_mode="POP")
    kit.join("c1")
    kit.mode = "POP"
    assert await kit.query() == WHOLE
    kit.mode = "PULL"
    assert await kit.query(topic="%RETRY%g")


def test_request_mode_is_set_persisted_and_listed() -> None:
    kit = Kit()
    assert kit.set_mode().code == 0
    assert kit.set_mode().code == 0
    assert kit.file.saves == 1
    response = kit.processor.modes(FakeChannel(), request(402))  # type: ignore[arg-type]
    entry = {"consumerGroup": "g", "mode": "PULL", "popShareQueueNum": 0, "topic": "T"}
    assert orjson.loads(response.body) == {"messageRequestModeMap": {"T": {"g": entry}}}
    again = MessageRequestModes(kit.file)
    again.load()
    assert orjson.loads(again.snapshot().encode()) == orjson.loads(response.body)


@pytest.mark.parametrize("code", [400, 401])
async def test_assignment_request_too_long_is_refused(code: int) -> None:
    run: Any = Kit().processor.processors[code]
    response = run(FakeChannel(), request(code, {}, b"[" * (64 * 1024 + 1)))
    response = response if code == 401 else await response
    assert response.code == 29
