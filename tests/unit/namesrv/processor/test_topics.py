from typing import Any

import orjson
import pytest

from rocketpy.namesrv.processor.topics import TopicProcessor


@pytest.fixture
def topics(world: Any) -> TopicProcessor:
    world.register()
    world.register("t2", "t3", brokerName="broker-b", brokerAddr="10.0.0.3:10911", clusterName="c2")
    return TopicProcessor(world.routes, world.settings, world.repeats)


def names(response: Any) -> list[str]:
    assert response.code == 0
    listed: list[str] = orjson.loads(response.body)["topicList"]
    return sorted(listed)


def test_all_topics_and_those_of_a_cluster(world: Any, topics: TopicProcessor) -> None:
    assert names(world.ask(topics.list_all)) == ["t1", "t2", "t3"]
    assert names(world.ask(topics.list_of_cluster, cluster="c2")) == ["t2", "t3"]
    assert names(world.ask(topics.list_of_cluster, cluster="c9")) == []


def test_system_names(world: Any, topics: TopicProcessor) -> None:
    response = world.ask(topics.list_system)
    assert names(response) == ["broker-a", "broker-b", "c1", "c2"]
    assert orjson.loads(response.body)["brokerAddr"] == "10.0.0.1:10911"


def test_unit_lists(world: Any, topics: TopicProcessor) -> None:
    for code in (topics.list_unit, topics.list_unit_sub, topics.list_unit_sub_ununit):
        assert names(world.ask(code)) == []


def test_lists_can_be_switched_off(world: Any, topics: TopicProcessor) -> None:
    world.settings.update({"enableAllTopicList": "false", "enableTopicList": "false"})
    for response in (
        world.ask(topics.list_all),
        world.ask(topics.list_of_cluster, cluster="c1"),
        world.ask(topics.list_unit),
    ):
        assert (response.code, response.remark) == (1, "disable")


def test_deleting(world: Any, topics: TopicProcessor) -> None:
    assert world.ask(topics.delete, topic="t2", clusterName="c2").code == 0
    assert names(world.ask(topics.list_all)) == ["t1", "t2", "t3"]
    assert names(world.ask(topics.list_of_cluster, cluster="c2")) == ["t3"]
    assert world.ask(topics.delete, topic="t2").code == 0
    assert names(world.ask(topics.list_all)) == ["t1", "t3"]


def test_write_permission(world: Any, topics: TopicProcessor) -> None:
    wiped = world.ask(topics.wipe_write_perm, brokerName="broker-a")
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert world.routes.route("t1").queue_datas[0].perm == 4
    added = world.ask(topics.add_write_perm, brokerName="broker-a")
    assert added.ext_fields == {"addTopicCount": "2"}
    assert world.routes.route("t1").queue_datas[0].perm == 6
