"""Heartbeats, unregistration and checks of client configuration."""

from typing import Any

import orjson
import pytest

from rocketpy.broker.clients.client_registry import ConsumerTable, ProducerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.processor.client_manage import ClientManageProcessor, complete_subscription
from rocketpy.errors import BadBodyError, DiskFullError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.store.config import MessageStoreConfig
from tests.unit.broker.fakes import FakeChannel, FakeClock, FakeLoop, MemoryFile, request


class Kit:
    def __init__(self, **config: Any) -> None:
        self.clock = FakeClock()
        self.loop = FakeLoop()
        broker = BrokerConfig(broker_name="b", **config)
        configs = LiveBrokerConfig(broker, MessageStoreConfig(), RemotingServerConfig(), self.clock)
        self.topics = TopicTable(broker, MemoryFile(), self.clock)
        self.groups = SubscriptionGroupTable(broker, MemoryFile(), self.clock)
        self.producers, self.consumers = ProducerTable(), ConsumerTable()
        self.filters = ConsumerFilters(broker, MemoryFile(), self.clock)
        self.processor = ClientManageProcessor(
            configs=configs,
            topics=self.topics,
            groups=self.groups,
            producers=self.producers,
            consumers=self.consumers,
            filters=self.filters,
            clock=self.clock,
        )

    def beat(self, channel: FakeChannel, client_id: str = "c", *, topics: tuple[str, ...] = ("T",),
             model: str = "CLUSTERING", **top: Any) -> dict[str, str]:  # fmt: skip
        channel.loop = self.loop
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": "g",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": model,
                    "subscriptionDataSet": [
                        {"topic": topic, "subString": "a || b", "subVersion": 1} for topic in topics
                    ],
                }
            ],
            "producerDataSet": [{"groupName": "p"}],
            **top,
        }
        response = self.processor.heartbeat(channel, request(34, {}, orjson.dumps(body)))  # type: ignore[arg-type]
        assert isinstance(response, RemotingCommand)
        assert response.code == 0
        self.run()
        return response.ext_fields

    def run(self) -> None:
        """Run the loop until every member was notified."""
        while self.loop.turn():
            pass


def test_heartbeat_creates_group_and_retry_topic_and_notifies_members() -> None:
    kit = Kit()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    kit.beat(first, "c1")
    kit.beat(second, "c2")
    assert kit.groups.get("g") == SubscriptionGroupConfig("g")
    assert kit.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)
    assert [one.ext_fields for one in first.oneway] == [{"consumerGroup": "g"}] * 2
    assert len(second.oneway) == 1
    kit.beat(second, "c2")
    assert len(second.oneway) == 1, "nothing changed"
    assert [one.client_id for one in kit.producers.clients("p")] == ["c1", "c2"]
    found = kit.consumers.subscription("g", "T")
    assert found is not None
    assert found.code_set == {tags_code("a"), tags_code("b")}


def test_unregister_and_lost_connection_remove_client() -> None:
    kit = Kit()
    first, second = FakeChannel(port=1), FakeChannel(port=2)
    kit.beat(first, "c1")
    kit.beat(second, "c2")
    ext = {"clientID": "c2", "producerGroup": "p", "consumerGroup": "g"}
    kit.processor.unregister(second, request(35, ext))  # type: ignore[arg-type]
    kit.run()
    assert len(first.oneway) == 3
    assert [one.client_id for one in kit.producers.clients("p")] == ["c1"]
    kit.processor.on_close(first)  # type: ignore[arg-type]
    assert kit.consumers.groups() == []
    assert kit.producers.groups() == {}


def test_silent_client_is_closed() -> None:
    kit = Kit()
    channel = FakeChannel()
    kit.beat(channel)
    kit.clock.now_ms += 120_000
    assert kit.processor.step(5) == 10_005
    assert channel.close_reason is None
    kit.clock.now_ms += 1
    kit.processor.step(5)
    assert channel.close_reason == "no heartbeat for too long"
    assert kit.consumers.groups() == []


@pytest.mark.parametrize("why", ["broadcast", "broker", "group"])
def test_notification_disabled_sends_nothing(why: str) -> None:
    kit = Kit(notify_consumer_ids_changed_enable=why != "broker")
    if why == "group":
        kit.groups.put(SubscriptionGroupConfig("g", notify_consumer_ids_changed_enable=False))
    channel = FakeChannel()
    kit.beat(channel, model="BROADCASTING" if why == "broadcast" else "CLUSTERING")
    assert channel.oneway == []


def test_heartbeat_v2_without_subscriptions() -> None:
    kit = Kit()
    channel = FakeChannel()
    assert kit.beat(channel, heartbeatFingerprint=7)["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    without: dict[str, Any] = {"heartbeatFingerprint": 7, "withoutSub": True, "topics": ()}
    assert kit.beat(channel, **without)["IS_SUB_CHANGE"] == "false"
    assert kit.consumers.subscription("g", "T") is not None, "kept"
    assert kit.beat(channel, heartbeatFingerprint=8)["IS_SUB_CHANGE"] == "true"


def test_heartbeat_v2_after_restart_requests_subscriptions() -> None:
    kit = Kit()
    without: dict[str, Any] = {"heartbeatFingerprint": 7, "withoutSub": True, "topics": ()}
    assert kit.beat(FakeChannel(), **without)["IS_SUB_CHANGE"] == "true"


def test_heartbeat_without_auto_creation_registers_nothing() -> None:
    kit = Kit(auto_create_subscription_group=False)
    kit.beat(FakeChannel())
    assert kit.consumers.group("g") is None
    assert kit.topics.get("%RETRY%g") is None


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"clientID":""}', b'{"clientID":[]}'])
def test_heartbeat_invalid_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        Kit().processor.heartbeat(FakeChannel(), request(34, {}, body))  # type: ignore[arg-type]


def test_heartbeat_subscription_without_topic_or_tag_is_refused() -> None:
    for bad in (SubscriptionData(), SubscriptionData("T", "||")):
        with pytest.raises(BadBodyError):
            complete_subscription(bad)
    given = complete_subscription(SubscriptionData("T", "a", {"a"}, {97}, 5))
    assert (given.code_set, given.tags_set, given.sub_version) == ({97}, {"a"}, 5)
    assert complete_subscription(SubscriptionData("T", "")).sub_string == "*"


def test_heartbeat_too_long_is_refused() -> None:
    kit = Kit(max_heartbeat_bytes=20)
    body = orjson.dumps({"clientID": "a long client id", "producerDataSet": []})
    response: Any = kit.processor.heartbeat(FakeChannel(), request(34, {}, body))  # type: ignore[arg-type]
    assert response.code == 29
    assert "maxHeartbeatBytes" in (response.remark or "")


def test_heartbeat_wall_clock_change_expires_no_client() -> None:
    kit = Kit()
    channel = FakeChannel()
    kit.beat(channel)
    kit.clock.time_ms = lambda: kit.clock.now_ms + 3_600_000  # type: ignore[method-assign]
    kit.processor.step(5)
    assert channel.is_open
    assert kit.consumers.group("g") is not None


def beat_of(**top: Any) -> bytes:
    return orjson.dumps({"clientID": "c", **top})


def subscribed(**fields: Any) -> bytes:
    one = {"topic": "T", "subString": "a", **fields}
    return beat_of(consumerDataSet=[{"groupName": "g", "subscriptionDataSet": [one]}])


@pytest.mark.parametrize(
    "body",
    [
        beat_of(clientID="c" * 1_025),
        subscribed(subString="a" * 16_385),
        subscribed(subString="a" * 16_385, codeSet=[97]),
        subscribed(subString="a" * 16_385, expressionType="SQL92"),
    ],
)
def test_heartbeat_with_too_long_text_is_refused(body: bytes) -> None:
    kit = Kit()
    with pytest.raises(BadBodyError):
        kit.processor.heartbeat(FakeChannel(), request(34, {}, body))  # type: ignore[arg-type]
    assert kit.groups.get("g") is None, "nothing of it was taken"


def test_heartbeat_long_group_names_are_dropped() -> None:
    kit = Kit()
    channel = FakeChannel()
    long = "x" * 1_000
    kit.beat(channel, model=long, producerDataSet=[{"groupName": long}, {"groupName": "p"}])
    assert kit.producers.groups().keys() == {"p"}
    group = kit.consumers.group("g")
    assert group is not None
    assert group.message_model == "CLUSTERING"


def test_heartbeat_groups_of_connection_are_bounded() -> None:
    kit = Kit()
    kit.producers._memberships.max_per_channel = 2
    kit.beat(FakeChannel())
    body = orjson.dumps(
        {"clientID": "c", "producerDataSet": [{"groupName": f"p{one}"} for one in range(3)]}
    )
    response: Any = kit.processor.heartbeat(FakeChannel(), request(34, {}, body))  # type: ignore[arg-type]
    assert response.code == 1
    assert "at most 2 groups on one connection" in (response.remark or "")
    assert kit.producers.groups().keys() == {"p"}


def test_check_config_too_long_is_refused() -> None:
    kit = Kit(max_heartbeat_bytes=20)
    response = kit.processor.check_config(FakeChannel(), request(46, {}, b"[" * 21))  # type: ignore[arg-type]
    assert response.code == 29


@pytest.mark.parametrize(
    ("kind", "expression", "enabled", "code", "remark"),
    [
        ("TAG", "a || b", True, 0, None),
        ("SQL92", "a > 5", True, 0, None),
        ("SQL92", "a >", True, 23, "at character 4: "),
        ("SQL92", "a = 'x' AND b == 5", True, 23, "at character 16: "),
        ("SQL92", "a > 5", False, 1, "does not support consumer to filter message by SQL92"),
        ("SQL99", "a > 5", True, 1, "does not support consumer to filter message by SQL99"),
    ],
)
def test_check_config_validates_subscription(
    kind: str, expression: str, enabled: bool, code: int, remark: str | None
) -> None:
    body = orjson.dumps({"subscriptionData": {"expressionType": kind, "subString": expression}})
    kit = Kit(enable_property_filter=enabled)
    response = kit.processor.check_config(FakeChannel(), request(46, {}, body))  # type: ignore[arg-type]
    assert response.code == code
    assert (remark or "") in (response.remark or "")


def test_heartbeat_condition_lives_while_group_has_members() -> None:
    kit = Kit()
    channel = FakeChannel()
    wanted = {"topic": "T", "subString": "a > 5", "expressionType": "SQL92", "subVersion": 1}
    group = {"groupName": "g", "subscriptionDataSet": [wanted]}
    kit.beat(channel, consumerDataSet=[group])
    known = kit.filters.get("T", "g")
    assert known is not None
    assert (known.condition.expression, known.is_dead) == ("a > 5", False)
    kit.processor.on_close(channel)  # type: ignore[arg-type]
    assert known.is_dead
    kit.beat(channel, consumerDataSet=[group])
    assert not known.is_dead
    kit.beat(channel, consumerDataSet=[{**group, "subscriptionDataSet": []}])
    assert known.is_dead, "the group no longer wants the topic"


def test_heartbeat_waits_for_created_group_and_topic() -> None:
    kit = Kit()
    for table in (kit.topics, kit.groups):
        table.use_writer(lambda: None)
    channel = FakeChannel()
    channel.loop = kit.loop
    body = orjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"}]})

    def beat() -> Any:
        return kit.processor.heartbeat(channel, request(34, {}, body))  # type: ignore[arg-type]

    first, second = beat(), beat()
    assert kit.consumers.group("g") is not None, "it counts at once"
    assert isinstance(first, DeferredResponse)
    kit.topics.write()
    assert channel.deferred == []
    kit.groups.write()
    assert [(place, response.code) for place, response in channel.deferred] == [
        (first, 0), (second, 0),
    ]  # fmt: skip
    assert beat().code == 0, "nothing is left to wait for"


def test_heartbeat_retry_topic_not_written_is_reported() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.topics._file = FullFile()
    channel = FakeChannel()
    channel.loop = kit.loop
    body = orjson.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "g"}]})
    kit.processor.heartbeat(channel, request(34, {}, body))  # type: ignore[arg-type]
    kit.topics.write()
    ((_, response),) = channel.deferred
    assert (response.code, response.remark) == (1, "DiskFullError: no space")


def test_heartbeat_retry_topic_not_created_still_registers() -> None:
    """Its client would be taken for dead otherwise, and lose its connection after two minutes."""
    kit = Kit()
    file = kit.topics._file
    for table in (kit.topics, kit.groups):
        table.use_writer(table.write)
    kit.topics._file = FullFile()
    channel = FakeChannel()
    channel.loop = kit.loop
    producers = {"producerDataSet": [{"groupName": "p"}]}

    def beat(*groups: str) -> int:
        body = {"clientID": "c", "consumerDataSet": [{"groupName": one} for one in groups]}
        beat = request(34, {}, orjson.dumps({**body, **producers}))
        response: Any = kit.processor.heartbeat(channel, beat)  # type: ignore[arg-type]
        if isinstance(response, DeferredResponse):
            _, response = channel.deferred.pop()
        return int(response.code)

    assert beat("g") == 1
    kit.consumers.forget_channel(channel)  # type: ignore[arg-type]
    assert beat("g", "h") == 1
    assert all(kit.consumers.group(one) is not None for one in ("g", "h"))
    assert "p" in kit.producers.groups()
    kit.topics._file = file
    assert beat("g", "h") == 0, "it works again"
    assert {"%RETRY%g", "%RETRY%h"} <= kit.topics.written.keys()


class FullFile(MemoryFile):
    def save(self, value: object) -> None:
        raise DiskFullError("no space")
