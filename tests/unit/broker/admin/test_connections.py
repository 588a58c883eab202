"""Connected clients, and the groups and topics they use."""

from rocketpy.broker.admin.connections import ConnectionAdmin, language_name
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def test_connections_of_consumer_group(kit: Kit) -> None:
    kit.add_consumer("G", "T")
    found = loads(ask(kit.admin(ConnectionAdmin).consumers, {"consumerGroup": "G"}).body)
    assert found["connectionSet"] == [
        {"clientAddr": "127.0.0.1:5000", "clientId": "cid", "language": "JAVA", "version": 493}
    ]
    assert found["consumeFromWhere"] == "CONSUME_FROM_FIRST_OFFSET"
    assert found["consumeType"] == "CONSUME_PASSIVELY"
    assert found["messageModel"] == "CLUSTERING"
    wanted = found["subscriptionTable"]["T"]
    assert (wanted["subString"], wanted["tagsSet"], wanted["codeSet"]) == (
        "a || b",
        ["a", "b"],
        [97, 98],
    )


def test_connections_group_without_members_is_not_online(kit: Kit) -> None:
    response = ask(kit.admin(ConnectionAdmin).consumers, {"consumerGroup": "G"})
    assert (response.code, response.remark) == (206, "the consumer group[G] not online")


def test_connections_of_producer_groups(kit: Kit) -> None:
    admin = kit.admin(ConnectionAdmin)
    kit.add_producer("P")
    found = loads(ask(admin.producers, {"producerGroup": "P"}).body)
    assert found["connectionSet"][0]["clientId"] == "pid"
    assert found["connectionSet"][0]["language"] == "RUST"
    missing = ask(admin.producers, {"producerGroup": "Nope"})
    assert (missing.code, missing.remark) == (1, "the producer group[Nope] not exist")
    everyone = loads(ask(admin.all_producers).body)["data"]
    assert everyone["P"][0]["remoteIP"] == "/127.0.0.1:6000"
    assert everyone["P"][0]["lastUpdateTimestamp"] == kit.clock.wall_ms


def test_connections_groups_of_topic_and_topics_of_group(kit: Kit) -> None:
    admin = kit.admin(ConnectionAdmin)
    kit.add_consumer("online", "T")
    kit.offsets.commit("offline", "T", 0, 1)
    groups = loads(ask(admin.groups_of_topic, {"topic": "T"}).body)
    assert groups == {"groupList": ["offline", "online"]}
    topics = loads(ask(admin.topics_of_group, {"group": "offline"}).body)
    assert topics == {"brokerAddr": "127.0.0.1:10911", "topicList": ["T"]}


def test_connections_subscription_of_group(kit: Kit) -> None:
    admin = kit.admin(ConnectionAdmin)
    kit.add_consumer("G", "T")
    found = loads(ask(admin.subscription, {"group": "G", "topic": "T"}).body)
    assert found["subscriptionData"]["subVersion"] == 3
    missing = loads(ask(admin.subscription, {"group": "G", "topic": "U"}).body)
    assert missing == {"group": "G", "topic": "U"}


def test_language_name_of_unknown_code_is_other() -> None:
    assert language_name(3) == "PYTHON"
    assert language_name(-1) == "OTHER"
