"""Creating, changing, deleting and listing topics."""

import pytest

from rocketpy.broker.admin.topics import TopicAdmin
from rocketpy.errors import BadBodyError, HeaderFieldError, StoreError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.fastjson import dumps, loads
from tests.unit.broker.admin.kit import Kit, ask

CREATE = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 3,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}


def test_topics_create_and_change(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    assert ask(admin.update, CREATE).code == 0
    topic = kit.topics.get("T")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 3, 6)
    assert ask(admin.update, {**CREATE, "perm": 4}).code == 0
    changed = kit.topics.get("T")
    assert changed is not None
    assert changed.perm == 4


def test_topics_unchanged_topic_keeps_version(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    ask(admin.update, CREATE)
    before = kit.topics.data_version
    assert ask(admin.update, CREATE).code == 0
    assert kit.topics.data_version == before


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", "a\0b", "a\nb", "é", "", " ", "x" * 1000, "TBW102", "rmq_sys_x", "C", "b"],
)
def test_topics_invalid_or_system_name_is_refused(kit: Kit, name: str) -> None:
    before = kit.topics.all()
    response = ask(kit.admin(TopicAdmin).update, {**CREATE, "topic": name})
    assert response.code == 29
    assert kit.topics.all() == before


@pytest.mark.parametrize(
    "change",
    [
        {"readQueueNums": -1},
        {"writeQueueNums": 10_000_000},
        {"perm": 99},
        {"topicFilterType": "NOPE"},
    ],
)
def test_topics_value_out_of_range_is_refused(kit: Kit, change: dict[str, object]) -> None:
    assert ask(kit.admin(TopicAdmin).update, {**CREATE, **change}).code == 29
    assert kit.topics.get("T") is None


def test_topics_missing_field_is_named(kit: Kit) -> None:
    with pytest.raises(HeaderFieldError, match="perm"):
        ask(kit.admin(TopicAdmin).update, {k: v for k, v in CREATE.items() if k != "perm"})


def test_topics_attributes_are_added_changed_and_removed(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)

    def update(text: str) -> int:
        return ask(admin.update, {**CREATE, "attributes": text}).code

    def attributes() -> dict[str, str]:
        topic = kit.topics.get("T")
        assert topic is not None
        return dict(topic.attributes)

    assert update("+message.type=FIFO,+queue.type=SimpleCQ") == 0
    assert attributes() == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    assert update("+message.type=DELAY") == 0
    assert attributes() == {"message.type": "DELAY", "queue.type": "SimpleCQ"}
    assert update("-message.type") == 0
    assert attributes() == {"queue.type": "SimpleCQ"}
    for refused in (
        "+queue.type=BatchCQ",
        "-queue.type",
        "+no.such=1",
        "message.type=FIFO",
        "+message.type",
        "+message.type=NOPE",
        "-message.type",
        "+reserve.time=soon",
        "+message.type=FIFO,+message.type=DELAY",
    ):
        assert update(refused) == 1, refused
    assert attributes() == {"queue.type": "SimpleCQ"}


def test_topics_new_topic_cannot_remove_attributes(kit: Kit) -> None:
    response = ask(kit.admin(TopicAdmin).update, {**CREATE, "attributes": "-message.type"})
    assert response.code == 1
    assert response.remark is not None
    assert "only add" in response.remark


def test_topics_update_list_creates_all_or_none(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    good = {"topicName": "L1", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    bad = {**good, "topicName": "../L2"}
    assert ask(admin.update_list, body=dumps({"topicConfigList": [good, bad]})).code == 29
    assert kit.topics.get("L1") is None
    both = [good, {**good, "topicName": "L2", "attributes": {"+message.type": "FIFO"}}]
    assert ask(admin.update_list, body=dumps({"topicConfigList": both})).code == 0
    second = kit.topics.get("L2")
    assert kit.topics.get("L1") is not None
    assert second is not None
    assert second.attributes == {"message.type": "FIFO"}
    assert ask(admin.update_list, body=dumps({"topicConfigList": []})).code == 29
    with pytest.raises(BadBodyError, match="topicConfigList"):
        ask(admin.update_list, body=dumps({"topicConfigList": "x"}))


def test_topics_update_list_is_one_write(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    told: list[str] = []
    kit.topics.on_written = lambda topic: told.append(topic.topic_name)
    one = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    body = dumps({"topicConfigList": [{**one, "topicName": f"L{n}"} for n in range(5)]})
    kit.topics_file.failure = StoreError("no space")
    with pytest.raises(StoreError):
        ask(admin.update_list, body=body)
    assert (kit.topics.get("L0"), told) == (None, [])

    kit.topics_file.failure = None
    saves = kit.topics_file.saves
    assert ask(admin.update_list, body=body).code == 0
    assert kit.topics_file.saves == saves + 1
    assert told == ["L0", "L1", "L2", "L3", "L4"]
    assert ask(admin.update_list, body=body).code == 0
    assert kit.topics_file.saves == saves + 1, "nothing changed"


def test_topics_delete_drops_queues_offsets_counters_and_retry_topics(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    for name in ("T", "%RETRY%G_T", "%RETRY%G+T", "U"):
        kit.add_topic(name)
    kit.offsets.commit("G", "T", 0, 5)
    kit.offsets.commit("G", "U", 0, 6)
    kit.stats.inc_topic_put("T", 1, 1)
    assert ask(admin.delete, {"topic": "T"}).code == 0
    assert kit.topics.get("T") is None
    assert kit.topics.get("%RETRY%G_T") is None
    assert kit.topics.get("%RETRY%G+T") is None
    assert sorted(kit.store.deleted) == ["%RETRY%G+T", "%RETRY%G_T", "T"]
    assert kit.offsets.topics_of_group("G") == {"U"}
    assert kit.stats.stats_data("TOPIC_PUT_NUMS", "T") is None
    assert kit.topics.get("U") is not None


def test_topics_message_sent_during_deletion_is_refused_or_kept(kit: Kit) -> None:
    kit.add_topic("T")
    drop, refused = kit.store.delete_topics, []

    def delete_topics(topics: list[str]) -> None:
        with pytest.raises(StoreError, match="being deleted") as caught:
            kit.topics.create_on_send("T", "TBW102", 4)
        refused.append(caught.value)
        drop(topics)

    kit.store.delete_topics = delete_topics  # type: ignore[method-assign]
    assert ask(kit.admin(TopicAdmin).delete, {"topic": "T"}).code == 0
    assert refused
    assert kit.topics.create_on_send("T", "TBW102", 4) is not None


@pytest.mark.parametrize("name", ["", "..", "../../etc", "SELF_TEST_TOPIC"])
def test_topics_delete_of_invalid_name_is_refused(kit: Kit, name: str) -> None:
    assert ask(kit.admin(TopicAdmin).delete, {"topic": name}).code == 29
    assert kit.store.deleted == []


def test_topics_delete_of_unknown_topic_succeeds(kit: Kit) -> None:
    assert ask(kit.admin(TopicAdmin).delete, {"topic": "Nope"}).code == 0


def test_topics_get_all_and_pages(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    kit.add_topic("T")
    whole = ask(admin.get_all)
    table = loads(whole.body)
    names = list(table["topicConfigTable"])
    assert whole.ext_fields["totalTopicNum"] == str(len(names))
    assert table["topicConfigTable"]["T"]["readQueueNums"] == 2

    seen: list[str] = []
    while len(seen) < len(names):
        version = dumps(table["dataVersion"]).decode() if seen else ""
        ext = {"topicSeq": len(seen), "maxTopicNum": 4, "dataVersion": version}
        part = list(loads(ask(admin.get_all, ext).body)["topicConfigTable"])
        assert 1 <= len(part) <= 4
        seen += part
    assert seen == names


def test_topics_page_of_changed_table_starts_again(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    old = dumps({"counter": 77, "stateVersion": 0, "timestamp": 1}).decode()
    response = ask(admin.get_all, {"topicSeq": 4, "maxTopicNum": 2, "dataVersion": old})
    assert list(loads(response.body)["topicConfigTable"]) == list(kit.topics.all())[:2]


def test_topics_get_one(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    kit.add_topic("T", 3)
    found = loads(ask(admin.get_one, {"topic": "T", "lo": "true"}).body)
    assert (found["topicName"], found["writeQueueNums"]) == ("T", 3)
    missing = ask(admin.get_one, {"topic": "Nope"})
    assert (missing.code, missing.remark) == (17, "No topic in this broker. topic: Nope")


def test_topics_stats_of_all_queues(kit: Kit) -> None:
    admin = kit.admin(TopicAdmin)
    kit.add_topic("T", 2)
    kit.store.fill("T", 0, 5, first_ms=100)
    body = ask(admin.stats, {"topic": "T"}).body
    assert body.startswith(b'{"offsetTable":{{"brokerName":"b"')
    table = loads(body)["offsetTable"]
    assert table[MessageQueue("T", "b", 0)] == {
        "lastUpdateTimestamp": 140,
        "maxOffset": 5,
        "minOffset": 0,
    }
    assert table[MessageQueue("T", "b", 1)] == {
        "lastUpdateTimestamp": 0,
        "maxOffset": 0,
        "minOffset": 0,
    }
    assert ask(admin.stats, {"topic": "Nope"}).code == 17


def test_topics_system_topics_are_listed(kit: Kit) -> None:
    kit.add_topic("T")
    listed = loads(ask(kit.admin(TopicAdmin).system_topics).body)["topicList"]
    assert {"TBW102", "C", "b", "SELF_TEST_TOPIC"} <= set(listed)
    assert "T" not in listed
