"""Hostile topic and group names: refused with Apache's codes, and no name ever becomes a path."""

import orjson
import pytest

from tests.bad_input.kit import HOSTILE_NAMES, World, pull_header

NAMES = {**HOSTILE_NAMES, "empty": ""}
TOPIC = {"defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
         "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
QUEUE = {"queueId": "0"}
LOOK_UP = {"key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)}

hostile = pytest.mark.parametrize("text", NAMES.values(), ids=NAMES)


@hostile
def test_topic_of_a_send(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        response = peer.send(b"x", text)
        assert response.code == 29
        assert response.remark


@hostile
def test_topic_of_a_retry_send(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        if text:
            assert peer.send(b"x", f"%RETRY%{text}").code == 29


@hostile
def test_topic_to_create(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.call(17, {**TOPIC, "topic": text}).code == 29
        assert peer.call(351, {"topic": text}).code == 17
        body = orjson.dumps({"topicConfigList": [{"topicName": text}]})
        assert peer.call(18, {}, body).code == 29


@hostile
def test_topic_to_delete(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.call(215, {"topic": text}).code == 29


@hostile
def test_topic_of_a_pull(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.pull(0, text).code == 17


@hostile
def test_group_of_a_pull(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.pull(0, "Bad", consumerGroup=text).code == 26


@hostile
def test_topic_and_group_of_a_commit(world: World, text: str) -> None:
    queue = {**QUEUE, "commitOffset": "1"}
    with world.staying_well(), world.peer() as peer:
        assert peer.call(15, {**queue, "topic": "Bad", "consumerGroup": text}).code == 26
        assert peer.call(15, {**queue, "topic": text, "consumerGroup": "Readers"}).code == 17


@hostile
def test_topic_of_offset_questions(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        for code in (29, 30, 31, 32):
            response = peer.call(code, {**QUEUE, "topic": text, "timestamp": "0"})
            assert response.code == 0
        offset = {**QUEUE, "topic": text, "consumerGroup": "Readers"}
        assert peer.call(14, offset).code in {0, 22}
        assert peer.call(202, {"topic": text}).code == 17


@hostile
def test_topic_and_key_of_a_look_up(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.call(12, {**LOOK_UP, "topic": text}).code == 22
        assert peer.call(12, {**LOOK_UP, "topic": "Bad", "key": text}).code == 22


@hostile
def test_group_to_create(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        assert peer.call(200, {}, orjson.dumps({"groupName": text})).code == 29
        assert peer.call(352, {"group": text}).code == 26


@hostile
def test_group_of_a_heartbeat(world: World, text: str) -> None:
    consumer = {
        "groupName": text,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": text, "subString": "*", "subVersion": 1}],
    }
    body = {
        "clientID": "hostile",
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": text}],
    }
    with world.staying_well(), world.peer() as peer:
        assert peer.call(34, {}, orjson.dumps(body)).code == 0
        topics = orjson.loads(peer.call(21).body)["topicConfigTable"]
        assert f"%RETRY%{text}" not in topics
        assert peer.call(35, {"clientID": "hostile", "consumerGroup": text}).code == 0


@hostile
def test_topic_and_group_of_a_lock(world: World, text: str) -> None:
    queue = {"brokerName": text, "queueId": 1, "topic": text}
    body = {"clientId": text, "consumerGroup": text, "mqSet": [queue]}
    with world.staying_well(), world.peer() as peer:
        response = peer.call(41, {}, orjson.dumps(body))
        assert (response.code, orjson.loads(response.body)) == (0, {"lockOKMQSet": []})
        assert peer.call(42, {}, orjson.dumps(body)).code == 0


@hostile
def test_names_of_a_kv_value(world: World, text: str) -> None:
    with world.staying_well(), world.peer("namesrv") as peer:
        response = peer.call(100, {"namespace": text, "key": text, "value": text})
        read = peer.call(101, {"namespace": text, "key": text})
        if response.code == 0:
            assert read.ext_fields["value"] == text
        else:
            assert response.code == 1
            assert read.code == 22
        assert peer.call(102, {"namespace": text, "key": text}).code == 0


@hostile
def test_names_of_a_registration(world: World, text: str) -> None:
    header = {"brokerName": text, "brokerAddr": text, "clusterName": text, "brokerId": "0",
              "haServerAddr": text}  # fmt: skip
    with world.staying_well(), world.peer("namesrv") as peer:
        assert peer.call(103, header).code == 1
        fine = {**header, "brokerName": "other", "brokerAddr": "127.0.0.1:1", "clusterName": "C",
                "haServerAddr": ""}  # fmt: skip
        topic = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        table = {name: {**topic, "topicName": name} for name in (text, "Fine", "Other")}
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": table}}
        assert peer.call(103, fine, orjson.dumps(body)).code == 0
        assert peer.call(105, {"topic": "Fine"}).code == 0
        assert peer.call(104, fine).code == 0
        assert peer.call(105, {"topic": text}).code == 17


@hostile
def test_property_that_names_another_queue(world: World, text: str) -> None:
    """INNER_MULTI_DISPATCH would name light queues; they are not served, and make no file."""
    properties = f"UNIQ_KEY\1u\2INNER_MULTI_DISPATCH\1%LMQ%{text}\2INNER_MULTI_QUEUE_OFFSET\x010\2"
    with world.staying_well(), world.peer() as peer:
        assert peer.send(b"x", i=properties).code in {0, 13}


def test_pull_of_a_group_that_must_not_exist(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        for name in ("SYS_GROUP_../..", "%RETRY%../x"):
            assert peer.call(11, {**pull_header(), "consumerGroup": name}).code == 26
