"""Malformed bodies: a response with code 1 and a reason, and the connection stays."""

import contextlib
import time
import zlib
from collections.abc import Iterator

import orjson
import pytest

from tests.bad_input.kit import EventLog, World

TEN_MB = b'{"clientID":"' + b"x" * 10_000_000 + b'"'

BROKEN = {
    "empty": b"",
    "truncated": b'{"clientID":"c","consumerDataSet":[{"group',
    "not_json": b"hello",
    "not_utf8": b'{"clientID":"\xff\xfe"}',
    "number": b"5",
    "list": b"[1,2,3]",
    "null": b"null",
    "deep": b'{"clientID":' + b"[" * 200_000,
    "deep_objects": b'{"a":' * 100_000,
    "ten_megabytes_cut": TEN_MB,
    "nan": b'{"clientID":NaN}',
}

# server, code, header: what wants a JSON object in its body
BODIES = {
    "heartbeat": ("broker", 34, {}),
    "lock": ("broker", 41, {}),
    "unlock": ("broker", 42, {}),
    "create_group": ("broker", 200, {}),
    "create_groups": ("broker", 225, {}),
    "create_topics": ("broker", 18, {}),
    "register": (
        "namesrv",
        103,
        {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0",
         "haServerAddr": ""},
    ),
    "register_topic": ("namesrv", 217, {"topic": "New"}),
}  # fmt: skip
EMPTY_IS_FINE = {"register", "register_topic"}
OBJECT_WITH_NOTHING_IN_IT = {"number", "list", "null"}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("name", BROKEN)
def test_broken_json(world: World, log: EventLog, kind: str, name: str) -> None:
    server, code, header = BODIES[kind]
    with world.staying_well(), world.peer(server) as peer:
        response = peer.call(code, header, BROKEN[name])
        if name == "empty" and kind in EMPTY_IS_FINE:
            assert response.code in {0, 1}
        else:
            assert response.code in {1, 29}, response.remark
            assert response.remark
            assert len(response.remark) < 1_000
        if response.code == 1 and "register broker failed" not in (response.remark or ""):
            assert log.named("request failed", peer.name, f"code={code}")
        assert peer.call(7_777).code == 3, "the connection stays"


@contextlib.contextmanager
def little_work() -> Iterator[None]:
    """Three seconds of processor time at most, of the servers too: they run in this process."""
    began_s = time.process_time()
    yield
    assert time.process_time() - began_s < 3


@pytest.mark.parametrize(
    "kind", ["heartbeat", "lock", "create_group", "create_topics", "register", "register_topic"]
)
def test_json_that_takes_long_to_read(world: World, kind: str) -> None:
    """The dialect of fastjson is parsed by slow code, which fifteen megabytes must not reach."""
    server, code, header = BODIES[kind]
    with world.staying_well(), world.peer(server) as peer, little_work():
        response = peer.call(code, header, b"{1:[" + b"0," * 7_500_000)
        assert response.code in {1, 29}


HEARTBEAT = {
    "clientID": "c",
    "consumerDataSet": [
        {
            "groupName": "Odd",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "Bad", "subString": "*", "subVersion": 1}],
        }
    ],
    "producerDataSet": [{"groupName": "P"}],
}
ODD_VALUES = {"text": "x", "number": 7, "list": [1, None, {}], "object": {"a": []}, "none": None,
              "true": True, "huge": 10**30}  # fmt: skip


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_heartbeat_with_wrong_types(world: World, value: object) -> None:
    """Replace each part in turn by another type: the broker answers and does not fail."""
    consumer = HEARTBEAT["consumerDataSet"][0]
    with world.staying_well(), world.peer() as peer:
        for key in HEARTBEAT:
            _heartbeat(peer, {**HEARTBEAT, key: value})
        assert isinstance(consumer, dict)
        for key in consumer:
            _heartbeat(peer, {**HEARTBEAT, "consumerDataSet": [{**consumer, key: value}]})
        for key in ("topic", "subString", "subVersion", "tagsSet", "codeSet", "expressionType"):
            subscription = {"topic": "Bad", "subString": "*", "subVersion": 1, key: value}
            changed = {**consumer, "subscriptionDataSet": [subscription]}
            _heartbeat(peer, {**HEARTBEAT, "consumerDataSet": [changed]})


def _heartbeat(peer: object, body: object) -> None:
    from tests.bad_input.kit import Wire  # noqa: PLC0415

    assert isinstance(peer, Wire)
    response = peer.call(34, {}, _dumps(body))
    assert response.code in {0, 1}, response.remark


def _dumps(value: object) -> bytes:
    import json  # noqa: PLC0415

    return json.dumps(value).encode()


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_lock_with_wrong_types(world: World, value: object) -> None:
    queue = {"brokerName": "b", "queueId": 1, "topic": "Bad"}
    body = {"clientId": "c", "consumerGroup": "Readers", "mqSet": [queue]}
    with world.staying_well(), world.peer() as peer:
        for key in body:
            assert peer.call(41, {}, _dumps({**body, key: value})).code in {0, 1}
        for key in queue:
            changed = {**body, "mqSet": [{**queue, key: value}]}
            assert peer.call(41, {}, _dumps(changed)).code in {0, 1}


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_group_with_wrong_types(world: World, value: object) -> None:
    group = {"groupName": "Odd", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
             "brokerId": 0, "attributes": {}}  # fmt: skip
    with world.staying_well(), world.peer() as peer:
        for key in group:
            response = peer.call(200, {}, _dumps({**group, key: value}))
            assert response.code in {0, 1, 29}, response.remark


@pytest.mark.parametrize("value", ODD_VALUES.values(), ids=ODD_VALUES)
def test_registration_with_wrong_types(world: World, value: object) -> None:
    header = {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0",
              "haServerAddr": ""}  # fmt: skip
    topic = {"topicName": "New", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
             "order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}  # fmt: skip
    wrapper = {
        "topicConfigTable": {"New": topic},
        "dataVersion": {"counter": 1, "timestamp": 1},
        "topicQueueMappingInfoMap": {},
    }
    with world.staying_well(), world.peer("namesrv") as peer:
        changes: list[object] = [{**wrapper, key: value} for key in wrapper]
        changes += [{**wrapper, "topicConfigTable": {"New": {**topic, k: value}}} for k in topic]
        changes.append({**wrapper, "topicConfigTable": {"New": value}})
        changes.append({**wrapper, "dataVersion": {"counter": value}})
        for changed in (*changes, value):
            body = {"topicConfigSerializeWrapper": changed, "filterServerList": []}
            assert peer.call(103, header, _dumps(body)).code in {0, 1}
        body = {"topicConfigSerializeWrapper": wrapper, "filterServerList": value}
        assert peer.call(103, header, _dumps(body)).code in {0, 1}
        assert peer.call(104, header).code == 0


def test_registration_that_inflates_without_end(world: World) -> None:
    header = {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0",
              "haServerAddr": "", "compressed": "true"}  # fmt: skip
    bomb = zlib.compress(bytes(300 << 20), 9)
    assert len(bomb) < 1 << 20
    with world.staying_well(), world.peer("namesrv") as peer:
        assert peer.call(103, header, bomb).code == 1
        assert peer.call(103, header, bomb[:100]).code == 1


def test_registration_that_inflates_to_json_that_takes_long_to_read(world: World) -> None:
    header = {
        "brokerName": "x",
        "brokerAddr": "127.0.0.1:1",
        "clusterName": "C",
        "brokerId": "0",
        "haServerAddr": "",
        "compressed": "true",
    }
    text = b"{1:[" + b"0," * 20_000_000
    body = zlib.compress(len(text).to_bytes(4, "big") + text, 1)
    with world.staying_well(), world.peer("namesrv") as peer, little_work():
        assert peer.call(103, header, body).code == 1


def test_registration_with_a_wrong_checksum(world: World) -> None:
    header = {"brokerName": "x", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0",
              "haServerAddr": "", "bodyCrc32": "12345"}  # fmt: skip
    with world.staying_well(), world.peer("namesrv") as peer:
        response = peer.call(103, header, b"{}")
        assert (response.code, response.remark) == (1, "crc32 not match")


def test_heartbeat_with_thousands_of_new_groups(world: World) -> None:
    """Each new group changes two files; together they must not delay other clients."""
    consumer = HEARTBEAT["consumerDataSet"][0]
    assert isinstance(consumer, dict)
    with world.staying_well(), world.peer() as peer:
        groups = [{**consumer, "groupName": f"Many{number}"} for number in range(3_000)]
        response = peer.call(34, {}, orjson.dumps({"clientID": "c", "consumerDataSet": groups}))
        assert response.code in {0, 1}
