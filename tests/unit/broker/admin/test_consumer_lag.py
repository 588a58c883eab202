"""Progress and lag of consumer groups."""

from rocketpy.broker.admin.consumer_lag import ConsumeStatsAdmin
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.fastjson import loads
from tests.unit.broker.admin.kit import Kit, ask


def filled(kit: Kit) -> ConsumeStatsAdmin:
    kit.add_topic("T", 2)
    kit.add_topic("U", 1)
    kit.store.fill("T", 0, 10, first_ms=1_000)
    kit.store.fill("T", 1, 4, first_ms=2_000)
    kit.store.fill("U", 0, 3)
    kit.groups.get_or_create("G")
    kit.offsets.commit("G", "T", 0, 6)
    kit.offsets.commit_read("G", "T", 0, 8)
    kit.offsets.commit("G", "U", 0, 3)
    return kit.admin(ConsumeStatsAdmin)


def test_lag_of_one_group(kit: Kit) -> None:
    response = ask(filled(kit).of_group, {"consumerGroup": "G"})
    table = loads(response.body)["offsetTable"]
    assert table[MessageQueue("T", "b", 0)] == {
        "brokerOffset": 10,
        "consumerOffset": 6,
        "lastTimestamp": 1_050,
        "pullOffset": 8,
    }
    assert table[MessageQueue("T", "b", 1)] == {
        "brokerOffset": 4,
        "consumerOffset": 0,
        "lastTimestamp": 0,
        "pullOffset": 0,
    }
    assert table[MessageQueue("U", "b", 0)]["consumerOffset"] == 3


def test_lag_of_group_reset_before_first_commit(kit: Kit) -> None:
    admin = filled(kit)
    kit.offsets.assign_reset("fresh", "T", 0, 2)
    table = loads(ask(admin.of_group, {"consumerGroup": "fresh"}).body)["offsetTable"]
    assert [(each.queue_id, row["consumerOffset"]) for each, row in sorted(table.items())] == [
        (0, 2),
        (1, 0),
    ]
    kit.offsets.take_reset("fresh", "T", 0)
    assert loads(ask(admin.of_group, {"consumerGroup": "fresh"}).body)["offsetTable"] == {}


def test_lag_of_selected_topics(kit: Kit) -> None:
    admin = filled(kit)
    for ext in ({"topic": "U"}, {"topicList": "U;Nope;"}):
        response = ask(admin.of_group, {"consumerGroup": "G", **ext})
        assert list(loads(response.body)["offsetTable"]) == [MessageQueue("U", "b", 0)]


def test_lag_skips_topics_that_online_group_left(kit: Kit) -> None:
    admin = filled(kit)
    kit.add_consumer("G", "T")
    topics = {
        queue.topic
        for queue in loads(ask(admin.of_group, {"consumerGroup": "G"}).body)["offsetTable"]
    }
    assert topics == {"T"}


def test_lag_of_unknown_group_is_empty(kit: Kit) -> None:
    response = ask(kit.admin(ConsumeStatsAdmin).of_group, {"consumerGroup": "Nope"})
    assert loads(response.body) == {"consumeTps": 0.0, "offsetTable": {}}


def test_lag_of_all_groups(kit: Kit) -> None:
    found = loads(ask(filled(kit).of_broker, {"isOrder": "false"}).body)
    by_group = {group: stats for one in found["consumeStatsList"] for group, stats in one.items()}
    assert len(by_group["G"]) == 2
    assert by_group["TOOLS_CONSUMER"] == []
    assert (found["totalDiff"], found["totalInflightDiff"]) == (8, 2)
    assert found["brokerAddr"] == "127.0.0.1:10911"
    ordered = loads(ask(filled(kit).of_broker, {"isOrder": "true"}).body)
    assert ordered["totalDiff"] == 0


def test_lag_time_span(kit: Kit) -> None:
    admin = filled(kit)
    spans = loads(ask(admin.time_span, {"topic": "T", "group": "G"}).body)["consumeTimeSpanSet"]
    first = next(one for one in spans if one["messageQueue"]["queueId"] == 0)
    assert first["minTimeStamp"] == 1_000
    assert first["maxTimeStamp"] == 1_090
    assert first["consumeTimeStamp"] == 1_050
    assert first["delayTime"] == kit.clock.wall_ms - 1_060
    assert first["maxTimeStampStr"].endswith(":090")
    assert ask(admin.time_span, {"topic": "Nope", "group": "G"}).code == 17
