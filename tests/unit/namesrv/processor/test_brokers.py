import asyncio
import zlib
from typing import Any

import pytest

from rocketpy.errors import BadBodyError, HeaderFieldError
from rocketpy.namesrv.route_types import BrokerKey
from rocketpy.proto.bodies.route import QueueData, TopicRouteData
from rocketpy.proto.bodies.topic import DataVersion, KVTable
from rocketpy.proto.wire.command import make_request

KEY = BrokerKey("c1", "10.0.0.1:10911")
WHO = {
    "brokerName": "broker-a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "c1",
    "brokerId": "0",
}


def test_register_creates_routes(world: Any, events: list[Any]) -> None:
    response = world.register()
    assert response.code == 0
    assert response.ext_fields == {}
    assert response.body == b""
    assert world.routes.topics() == ["t1", "t2"]
    assert [each["event"] for each in events] == ["broker registered"]
    world.register()
    assert len(events) == 1, "what repeats is not logged"


def test_register_returns_master_and_order_configuration(world: Any) -> None:
    world.kv.put("ORDER_TOPIC_CONFIG", "t1", "broker-a:4", max_entries=9)
    world.register()
    response = world.register(brokerId="1", brokerAddr="10.0.0.2:10911")
    assert response.ext_fields == {
        "haServerAddr": "10.0.0.1:10912",
        "masterAddr": "10.0.0.1:10911",
    }
    assert KVTable.decode(response.body).table == {"t1": "broker-a:4"}
    world.settings.update({"returnOrderTopicConfigToBroker": "false"})
    assert world.register().body == b""


def test_register_wrong_checksum_fails(world: Any) -> None:
    response = world.register(bodyCrc32="12345")
    assert (response.code, response.remark) == (1, "crc32 not match")
    assert world.routes.topics() == []
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"a":{},"b":{}}}}'
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    fields = {**WHO, "haServerAddr": "", "bodyCrc32": crc}
    assert world.ask(world.brokers.register, body, **fields).code == 0
    assert world.routes.topics() == ["a", "b"]


def test_register_topic_before_the_full_list_fails(world: Any) -> None:
    response = world.register("t1")
    assert (response.code, response.remark) == (1, "register broker failed")
    world.register()
    assert world.register("t3").code == 0
    assert world.routes.topics() == ["t1", "t2", "t3"]


def test_register_invalid_names_fail_and_invalid_topics_are_dropped(
    world: Any, events: list[Any]
) -> None:
    response = world.register(brokerAddr="nowhere")
    assert (response.code, response.remark) == (1, "broker address is not host:port")
    world.register("good", "also-good", "bad\x00name")
    assert world.routes.topics() == ["also-good", "good"]
    left_out = next(each for each in events if each["event"] == "topics rejected")
    assert left_out["bad_names"] == ("bad\x00name",)


def test_register_missing_fields_and_damaged_bodies_raise(world: Any) -> None:
    with pytest.raises(HeaderFieldError, match="brokerName"):
        world.ask(world.brokers.register, b"", brokerAddr="h:1")
    with pytest.raises(BadBodyError):
        world.ask(world.brokers.register, b"{", **WHO, haServerAddr="", bodyCrc32="0")


@pytest.mark.parametrize(
    ("given", "expires_after_ms"),
    [({}, 120_000), ({"heartbeatTimeoutMillis": "10000"}, 10_000)],
)
def test_register_broker_timeout_is_applied(
    world: Any, given: dict[str, str], expires_after_ms: int
) -> None:
    world.register(**given)
    assert world.routes.expire(1_000 + expires_after_ms) == []
    assert len(world.routes.expire(1_001 + expires_after_ms)) == 1


@pytest.mark.parametrize("given", ["99999999999999", "-5", "1"])
def test_register_broker_timeout_is_bounded(world: Any, given: str) -> None:
    world.register(heartbeatTimeoutMillis=given)
    assert world.routes.expire(1_999) == []
    assert len(world.routes.expire(1_000 + 3_600_001)) == 1


def test_heartbeat_refreshes_the_broker(world: Any) -> None:
    world.register()
    world.clock.now_ms += 100_000
    assert world.ask(world.brokers.heartbeat, **WHO).code == 0
    assert world.routes.expire(200_000) == []


def test_query_data_version_compares_and_refreshes(world: Any) -> None:
    version = DataVersion(timestamp=1, counter=2)
    unknown = world.ask(world.brokers.query_data_version, version.encode(), **WHO)
    assert (unknown.ext_fields, unknown.body) == ({"changed": "true"}, b"")
    world.register()
    world.clock.now_ms += 100_000
    same = world.ask(world.brokers.query_data_version, version.encode(), **WHO)
    assert same.ext_fields == {"changed": "false"}
    assert DataVersion.decode(same.body) == version
    other = world.ask(world.brokers.query_data_version, DataVersion(9, 9).encode(), **WHO)
    assert other.ext_fields == {"changed": "true"}
    assert world.routes.expire(200_000) == []


def test_unregister_removes_the_broker_and_notifies_the_lowest_id(world: Any) -> None:
    world.register()
    world.register(brokerId="1", brokerAddr="10.0.0.2:10911")
    assert world.ask(world.brokers.unregister, **WHO).code == 0
    assert [change.members for change in world.notifier.told] == [{1: "10.0.0.2:10911"}]
    world.ask(world.brokers.unregister, **WHO | {"brokerId": "1", "brokerAddr": "10.0.0.2:10911"})
    assert world.routes.topics() == []
    assert world.routes.clusters() == {}


def test_register_of_a_lower_id_notifies(world: Any) -> None:
    world.register(brokerId="1", brokerAddr="10.0.0.2:10911")
    world.register()
    assert [min(change.members) for change in world.notifier.told] == [0]


def test_register_topic_merges_one_topic(world: Any) -> None:
    world.register()
    route = TopicRouteData(queue_datas=[QueueData("broker-a", 1, 1, 6, 0)])
    register_topic = world.brokers.register_topic
    assert world.ask(register_topic, route.encode(), topic="new").code == 0
    assert "new" in world.routes.topics()
    assert world.ask(register_topic, route.encode(), topic="bad name").code == 1
    stranger = TopicRouteData(queue_datas=[QueueData("stranger", 1, 1, 6, 0)])
    assert world.ask(register_topic, stranger.encode(), topic="new2").code == 0
    assert "new2" not in world.routes.topics()


async def test_register_long_serves_others_and_delays_the_same_connection(
    world: Any,
) -> None:
    names = [f"t{number}" for number in range(5_000)]
    body = world.registration_body(*names)
    request = make_request(103, {**WHO, "haServerAddr": "", "bodyCrc32": "0"}, body)
    request.version = 493
    for form in (body, world.registration_body(*names, is_compressed=True)):
        request.body = form
        work = asyncio.ensure_future(world.brokers.register(world.channel, request))
        leave = make_request(104, {**WHO})
        behind = asyncio.ensure_future(world.brokers.unregister(world.channel, leave))
        turns = 0
        while not work.done():
            await asyncio.sleep(0)
            turns += 1
            assert world.routes.route("unknown") is None
        assert turns > 5_000 / 256, "no more than a few hundred topics at a time"
        assert work.result().code == 0
        assert len(world.routes.topics()) == 5_000
        assert (await behind).code == 0
        assert world.routes.topics() == []


def test_register_on_a_closed_connection_leaves_no_broker(world: Any) -> None:
    world.channel.is_open = False
    world.register()
    assert world.routes.brokers() == {}


def test_register_second_live_broker_is_answered_with_a_remark_and_logged_once(
    world: Any, events: list[Any]
) -> None:
    world.register()
    first = world.channel
    world.channel = type(first)()
    response = world.register(brokerAddr="10.0.0.9:10911")
    assert response.code == 0, "a broker of Apache takes any other code for a failure"
    assert "is also registered by 10.0.0.1:10911: this broker has no routes" in response.remark
    assert world.holders.asked == [first]
    world.register(brokerAddr="10.0.0.9:10911")
    warned = [each for each in events if each["event"].startswith("broker name conflict")]
    assert [(each["log_level"], each["first"]) for each in warned] == [
        ("warning", "10.0.0.1:10911")
    ]
    world.channel = first
    assert "is also registered by 10.0.0.9:10911: this broker keeps" in world.register().remark
    world.ask(world.brokers.unregister, **WHO)
    assert world.routes.members("broker-a") == {0: "10.0.0.9:10911"}
    assert events[-1]["event"] == "second broker took over"
