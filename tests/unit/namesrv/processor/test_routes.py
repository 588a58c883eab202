from typing import Any

import orjson
import pytest

from rocketpy.namesrv.processor.routes import RouteProcessor


@pytest.fixture
def routes(world: Any) -> RouteProcessor:
    return RouteProcessor(world.routes, world.kv, world.settings, world.clock)


def test_route_is_strict_json_without_blanks(world: Any, routes: RouteProcessor) -> None:
    world.register()
    response = world.ask(routes.get_route, topic="t1")
    assert response.code == 0
    assert response.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"c1","enableActingMaster":false}],"filterServerTable":{},"queueDatas":'
        b'[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":4}]}'
    )


def test_unknown_topic_is_17_with_apaches_words(world: Any, routes: RouteProcessor) -> None:
    response = world.ask(routes.get_route, topic="nope")
    assert response.code == 17
    assert response.remark == (
        "No topic route info in name server for the topic: nope\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_order_configuration_is_shown_where_wanted(world: Any, routes: RouteProcessor) -> None:
    world.kv.put("ORDER_TOPIC_CONFIG", "t1", "broker-a:4", max_entries=9)
    world.register()
    assert b"orderTopicConf" not in world.ask(routes.get_route, topic="t1").body
    world.settings.update({"orderMessageEnable": "true"})
    body = orjson.loads(world.ask(routes.get_route, topic="t1").body)
    assert body["orderTopicConf"] == "broker-a:4"
    assert "orderTopicConf" not in orjson.loads(world.ask(routes.get_route, topic="t2").body)


def test_routes_may_wait_for_the_brokers_after_a_start(world: Any, routes: RouteProcessor) -> None:
    world.register()
    world.settings.update({"needWaitForService": "true", "waitSecondsForService": "45"})
    response = world.ask(routes.get_route, topic="t1")
    assert (response.code, response.remark) == (1, "name server not ready")
    world.clock.now_ms += 45_000
    assert world.ask(routes.get_route, topic="t1").code == 0


def test_acting_master_is_shown_where_wanted(world: Any, routes: RouteProcessor) -> None:
    world.register(brokerId="2", enableActingMaster="true")
    plain = orjson.loads(world.ask(routes.get_route, topic="t1").body)
    assert plain["brokerDatas"][0]["brokerAddrs"] == {"2": "10.0.0.1:10911"}
    world.settings.update({"supportActingMaster": "true"})
    acting = orjson.loads(world.ask(routes.get_route, topic="t1").body)
    assert acting["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    assert acting["queueDatas"][0]["perm"] == 4


def test_cluster(world: Any, routes: RouteProcessor) -> None:
    assert orjson.loads(world.ask(routes.get_cluster).body) == {
        "brokerAddrTable": {},
        "clusterAddrTable": {},
    }
    world.register()
    world.register(brokerName="broker-b", brokerAddr="10.0.0.3:10911")
    info = orjson.loads(world.ask(routes.get_cluster).body)
    assert info["clusterAddrTable"] == {"c1": ["broker-a", "broker-b"]}
    assert info["brokerAddrTable"]["broker-b"] == {
        "brokerAddrs": {"0": "10.0.0.3:10911"},
        "brokerName": "broker-b",
        "cluster": "c1",
        "enableActingMaster": False,
    }


def test_members_of_a_broker_name(world: Any, routes: RouteProcessor) -> None:
    world.register()
    response = world.ask(routes.get_members, clusterName="c1", brokerName="broker-a")
    assert orjson.loads(response.body) == {
        "brokerMemberGroup": {
            "brokerAddrs": {"0": "10.0.0.1:10911"},
            "brokerName": "broker-a",
            "cluster": "c1",
        }
    }
