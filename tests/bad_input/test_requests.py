"""Invalid requests: a response with the code of Apache that names the field."""

import pytest

from tests.bad_input.kit import EventLog, World, pull_header, send_header

UNKNOWN_CODES = (0, -1, 7_777, 99_999, 2**31 - 1)

QUEUE = {"topic": "Bad", "queueId": "0"}
LONG_SEND = {
    "producerGroup": "P",
    "topic": "Bad",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1",
    "flag": "0",
    "properties": "",
    "reconsumeTimes": "0",
}
TOPIC = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
QUERY = {"topic": "Bad", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}
REGISTER = {
    "brokerName": "x",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "C",
    "brokerId": "1",
    "haServerAddr": "127.0.0.1:2",
}

# server, code, a header that would be fine, numbers that must be there, texts that must be there
HEADERS = {
    "send": ("broker", 10, LONG_SEND, ("queueId", "sysFlag", "bornTimestamp", "flag"), ("topic",)),
    "pull": (
        "broker",
        11,
        pull_header(),
        (
            "queueId",
            "queueOffset",
            "maxMsgNums",
            "sysFlag",
            "commitOffset",
            "suspendTimeoutMillis",
            "subVersion",
        ),
        ("topic", "consumerGroup"),
    ),
    "query": ("broker", 12, QUERY, ("maxNum", "beginTimestamp", "endTimestamp"), ()),
    "query_offset": (
        "broker",
        14,
        {**QUEUE, "consumerGroup": "Readers"},
        ("queueId",),
        ("topic", "consumerGroup"),
    ),
    "commit": (
        "broker",
        15,
        {**QUEUE, "consumerGroup": "Readers", "commitOffset": "0"},
        ("queueId", "commitOffset"),
        ("topic", "consumerGroup"),
    ),
    "search": ("broker", 29, {**QUEUE, "timestamp": "0"}, ("queueId", "timestamp"), ("topic",)),
    "max_offset": ("broker", 30, QUEUE, ("queueId",), ("topic",)),
    "min_offset": ("broker", 31, QUEUE, ("queueId",), ("topic",)),
    "earliest": ("broker", 32, QUEUE, ("queueId",), ("topic",)),
    "view": ("broker", 33, {"offset": "0"}, ("offset",), ()),
    "create_topic": (
        "broker",
        17,
        TOPIC,
        ("readQueueNums", "writeQueueNums", "perm"),
        ("topic", "topicFilterType"),
    ),
    "delete_topic": ("broker", 215, {"topic": "Nobody"}, (), ("topic",)),
    "delete_group": ("broker", 207, {"groupName": "Nobody"}, (), ("groupName",)),
    "topic_stats": ("broker", 202, {"topic": "Bad"}, (), ("topic",)),
    "members": ("broker", 38, {"consumerGroup": "Nobody"}, (), ("consumerGroup",)),
    "register": (
        "namesrv",
        103,
        REGISTER,
        ("brokerId",),
        ("brokerName", "brokerAddr", "clusterName"),
    ),
    "route": ("namesrv", 105, {"topic": "Kept"}, (), ("topic",)),
    "kv_put": (
        "namesrv",
        100,
        {"namespace": "n", "key": "k", "value": "v"},
        (),
        ("namespace", "key", "value"),
    ),
    "kv_get": ("namesrv", 101, {"namespace": "n", "key": "k"}, (), ("namespace", "key")),
    "wipe": ("namesrv", 205, {"brokerName": "x"}, (), ("brokerName",)),
}

NOT_NUMBERS = {
    "letters": "abc",
    "decimals": "1.5",
    "over_64_bits": "99999999999999999999",
    "under_64_bits": "-99999999999999999999",
    "very_long": "9" * 5_000,
}

MISSING = [(name, field) for name, parts in HEADERS.items() for field in (*parts[3], *parts[4])]
NUMBERS = [(name, field) for name, parts in HEADERS.items() for field in parts[3]]

# The one-letter fields of SEND_MESSAGE_V2 and what they are called in full.
SHORT = {"b": "topic", "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag"}


@pytest.mark.parametrize("server", ["broker", "namesrv"])
@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_unknown_code(world: World, server: str, code: int) -> None:
    with world.staying_well(), world.peer(server) as peer:
        response = peer.call(code)
        assert response.code == 3
        assert str(code) in (response.remark or "")


@pytest.mark.parametrize(("name", "field"), MISSING)
def test_missing_field(world: World, log: EventLog, name: str, field: str) -> None:
    server, code, header, _, _ = HEADERS[name]
    with world.staying_well(), world.peer(server) as peer:
        response = peer.call(code, {key: text for key, text in header.items() if key != field})
        assert response.code == 1
        assert field in (response.remark or "")
        assert log.named("request failed", peer.name, f"code={code}", field)


@pytest.mark.parametrize("text", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
@pytest.mark.parametrize(("name", "field"), NUMBERS)
def test_not_a_number(world: World, log: EventLog, name: str, field: str, text: str) -> None:
    server, code, header, _, _ = HEADERS[name]
    with world.peer(server) as peer:
        response = peer.call(code, {**header, field: text})
        assert response.code == 1
        assert field in (response.remark or "")
        assert len(response.remark or "") < 1_000
        assert log.named("request failed", peer.name, f"code={code}", field)
        assert peer.call(105, {"topic": "Kept"}).code in {0, 3}


@pytest.mark.parametrize("field", ["queueId", "maxMsgNums"])
def test_over_32_bits_in_a_pull(world: World, field: str) -> None:
    with world.staying_well(), world.peer() as peer:
        response = peer.pull(0, **{field: str(2**31)})
        assert response.code == 1
        assert field in (response.remark or "")


@pytest.mark.parametrize("field", SHORT)
def test_missing_short_field_of_a_send(world: World, field: str) -> None:
    with world.staying_well(), world.peer() as peer:
        header = send_header()
        del header[field]
        response = peer.call(310, header, b"x")
        assert response.code == 1
        assert SHORT[field] in (response.remark or "")


@pytest.mark.parametrize("text", [*NOT_NUMBERS.values(), str(2**31)], ids=[*NOT_NUMBERS, "32_bits"])
@pytest.mark.parametrize("field", ["e", "f", "h", "j"])
def test_short_field_of_a_send_is_not_a_number(world: World, field: str, text: str) -> None:
    names = {**SHORT, "j": "reconsumeTimes"}
    with world.staying_well(), world.peer() as peer:
        for properties in ("", "UNIQ_KEY\x01u\x02"):
            response = peer.send(b"x", **{field: text, "i": properties})
            assert response.code == 1
            assert names[field] in (response.remark or "")
            assert len(response.remark or "") < 1_000


@pytest.mark.parametrize("text", ["x", str(2**63)])
def test_born_timestamp_of_a_send(world: World, text: str) -> None:
    with world.staying_well(), world.peer() as peer:
        for properties in ("", "UNIQ_KEY\x01u\x02"):
            response = peer.send(b"x", g=text, i=properties)
            assert response.code == 1
            assert "bornTimestamp" in (response.remark or "")


def test_oneway_request_that_fails_is_not_answered(world: World) -> None:
    with world.staying_well(), world.peer() as peer:
        from rocketpy.proto.wire.command import encode_command  # noqa: PLC0415

        bad = peer.request(310, {"b": "Bad"}, b"x")
        bad.flag = 2
        peer.write(encode_command(bad))
        assert peer.call(7_777).code == 3
