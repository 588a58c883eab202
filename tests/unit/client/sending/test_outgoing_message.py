"""From what a user gives to what the wire takes: checks, properties, compression, the queue."""

import random
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.message import Message
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.client.messages.serializers import json, json_or_text, msgpack, plain, text
from rocketpy.client.sending.outgoing_message import (
    SEND,
    Outgoing,
    build_outgoing,
    check_send_topic,
    id_properties,
    queue_chooser,
    unpacked,
)
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import inflate
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.record.sys_flag import CompressionType

CONFIG = ProducerConfig()


def build(body: Any = b"body", *, compress: bool = True, **options: Any) -> Outgoing:
    config = options.pop("config", CONFIG)
    return build_outgoing(body, options, config, "ID", compress=compress)  # type: ignore[arg-type]


def properties_of(**options: Any) -> dict[str, str]:
    found = parse_properties(build(**options).properties)
    assert (found.pop("UNIQ_KEY"), found.pop("WAIT")) == ("ID", "true")
    return found


def test_plain_message_has_an_id_and_waits_for_the_store() -> None:
    message = build()
    assert message == Outgoing(b"body", id_properties("ID"), 0, 0, "ID", SEND)
    assert (message.retries, message.moment) == (None, None)
    assert parse_properties(message.properties) == {"UNIQ_KEY": "ID", "WAIT": "true"}


def test_options_become_properties() -> None:
    assert properties_of(tag=" paid ", keys=["a", "b"], order_key=7, headers={"mine": "1"}) == {
        "TAGS": "paid", "KEYS": "a b", "__SHARDINGKEY": "7", "mine": "1",
    }  # fmt: skip
    assert properties_of(keys="a b")["KEYS"] == "a b"
    assert build(flag=5).flag == 5


def test_empty_options_are_none() -> None:
    assert properties_of(tag="", keys=(), headers={}, order_key=None, delay_level=0) == {}
    assert properties_of(tag=None, keys=None, headers=None, delay=None, deliver_at=None) == {}


def test_order_key_that_is_empty_or_zero_is_one() -> None:
    assert properties_of(order_key=0) == {"__SHARDINGKEY": "0"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"delay_level": 3}, "DELAY"),
        ({"delay": timedelta(seconds=5)}, "TIMER_DELAY_MS"),
        ({"delay": 5.5}, "TIMER_DELAY_MS"),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, "TIMER_DELIVER_MS"),
    ],
)
def test_message_for_later_says_when(options: dict[str, Any], name: str) -> None:
    assert set(properties_of(**options)) == {name}


def test_system_properties_may_be_given_by_code_that_builds_on_this() -> None:
    assert properties_of(properties={"TRAN_MSG": "true", "none": ""}) == {"TRAN_MSG": "true"}
    with pytest.raises(IllegalMessageError, match="header TRAN_MSG is reserved"):
        build(headers={"TRAN_MSG": "true"})


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"headers": {"a": ""}}, "needs a name and a value"),
        ({"headers": {"": "a"}}, "needs a name and a value"),
        ({"headers": {"a": "x\x01y"}}, "must not contain"),
        ({"headers": {"a\x02": "x"}}, "must not contain"),
        ({"tag": "a\x02b"}, "must not contain"),
        ({"keys": "a\x01b"}, "must not contain"),
        ({"keys": ["a b"]}, "holds a blank"),
    ],
)
def test_separator_in_properties_raises(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(IllegalMessageError, match=reason):
        build(**options)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tag": "\udcff"}, "TAGS"),
        ({"keys": ["a", "b\ud800"]}, "KEYS"),
        ({"order_key": "\udcff"}, "__SHARDINGKEY"),
        ({"headers": {"city": "\udcff"}}, "city"),
        ({"headers": {"\udcff": "x"}}, "udcff"),
    ],
)
def test_text_that_utf_8_cannot_hold_is_refused_by_name(options: dict[str, Any], name: str) -> None:
    with pytest.raises(IllegalMessageError, match=f"{name}.* not text that UTF-8 can encode"):
        build(**options)
    assert build(tag="gr\u00fcn").properties.count("gr\u00fcn") == 1


@pytest.mark.parametrize("serializer", [plain, text, json_or_text, json, msgpack])
def test_text_body_that_utf_8_cannot_hold_is_refused(serializer: Any) -> None:
    with pytest.raises(IllegalMessageError, match=r"the body .*surrogates not allowed"):
        build("name\udcff", serializer=serializer)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tags": "a"}, "no option 'tags'; did you mean tag?"),
        ({"nonsense": 1}, "no option 'nonsense'"),
        ({"tag": 5}, "tag: 5 is not of type str"),
        ({"keys": [5]}, "keys: 5 is not of type str"),
        ({"headers": ["a"]}, "headers: ['a'] is not of type dict or Mapping"),
        ({"delay": "30s"}, "delay: '30s' is not of type"),
        ({"flag": "1"}, "flag: '1' is not of type int"),
        ({"flag": True}, "flag: True is not of type int"),
        ({"order_key": b"k"}, "order_key: b'k' is not of type str or int"),
        ({"headers": {"a": b"abc"}}, "headers: 'a': b'abc' is not text"),
        ({"headers": {1: "a"}}, "headers: 1: 'a' is not text"),
        ({"timeout": None}, "timeout: None is not of type Real"),
        ({"retries": True}, "retries: True is not of type int"),
        ({"serializer": "json"}, "serializer: 'json' is not an object with dumps and loads"),
    ],
)
def test_unknown_option_or_wrong_type_raises(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(TypeError, match=re.escape(reason)):
        build(**options)


@pytest.mark.parametrize(
    "options",
    [{"timeout": -1}, {"timeout": float("nan")}, {"retries": -1}, {"flag": 1 << 31}],
    ids=str,
)
def test_value_that_none_can_have_is_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(IllegalMessageError, match=name):
        build(**options)


def test_incompressible_body_is_sent_uncompressed() -> None:
    body = random.Random(7).randbytes(4 * 1024 * 1024)
    for compression in ("zlib", "lz4", "zstd"):
        message = build(body, config=ProducerConfig(compression=compression))
        assert (message.sys_flag, len(message.body)) == (0, len(body))


def test_body_has_something_in_it_and_is_not_too_long() -> None:
    config = ProducerConfig(max_message_bytes=10)
    with pytest.raises(IllegalMessageError, match="empty"):
        build(b"")
    assert build(b"x" * 10, config=config).body == b"x" * 10
    with pytest.raises(IllegalMessageError, match="11 bytes exceeds the limit of 10 bytes"):
        build(b"x" * 11, config=config)


def test_body_is_written_by_the_serializer_of_the_send_or_else_of_the_producer() -> None:
    assert build("text").body == b"text"
    assert build({"a": 1}, serializer=json).body == b'{"a":1}'
    assert build({"a": 1}, config=ProducerConfig(serializer=json)).body == b'{"a":1}'
    with pytest.raises(IllegalMessageError):
        build({"a": 1})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("zlib", CompressionType.ZLIB),
        ("lz4", CompressionType.LZ4),
        ("zstd", CompressionType.ZSTD),
    ],
)
def test_long_body_is_compressed(name: Any, kind: CompressionType) -> None:
    config = ProducerConfig(compress_over_bytes=100, compression=name)
    message = build(b"x" * 100, config=config)
    assert message.sys_flag & 1
    assert len(message.body) < 100
    assert inflate(message.body, kind) == b"x" * 100
    for short in (
        build(b"x" * 99, config=config),
        build(b"x" * 100, config=config, compress=False),
    ):
        assert (short.sys_flag, short.body[:1]) == (0, b"x")


def test_compression_may_be_off() -> None:
    message = build(b"x" * 100_000, config=ProducerConfig(compress_over_bytes=0))
    assert (message.sys_flag, len(message.body)) == (0, 100_000)


def test_properties_have_a_limit_in_bytes_not_in_characters() -> None:
    fixed = len(id_properties("ID").encode()) + len("a\x01\x02")
    room = 32_767 - fixed
    assert build(headers={"a": "x" * room}).properties
    with pytest.raises(IllegalMessageError, match="properties of 32768 bytes"):
        build(headers={"a": "x" * (room + 1)})
    with pytest.raises(IllegalMessageError, match="exceed the limit of 32767 bytes"):
        build(headers={"a": "é" * (room // 2 + 1)})


# ---- topics


@pytest.mark.parametrize("topic", ["orders", "%RETRY%g", "x" * 127, "a-b_c|d"])
def test_topic_that_may_be_sent_to(topic: str) -> None:
    check_send_topic(topic)
    check_send_topic(topic)


@pytest.mark.parametrize("topic", ["", " ", "no blank", "a/b", "x" * 300, "SCHEDULE_TOPIC_XXXX"])
def test_topic_that_may_not(topic: str) -> None:
    for _ in range(2):
        with pytest.raises(IllegalMessageError):
            check_send_topic(topic)


# ---- messages and queues


def test_message_is_spread_over_the_arguments_and_those_given_beside_it_win() -> None:
    message = Message(topic="t", body=b"x", tag="a", keys=["k"], headers={"h": "1"}, flag=3)
    topic, body, options = unpacked(message, None, {"tag": "b"})
    assert (topic, body) == ("t", b"x")
    assert options == {
        "tag": "b",
        "keys": ["k"],
        "headers": {"h": "1"},
        "order_key": None,
        "flag": 3,
    }
    given: SendOptions = {"tag": "a"}
    assert unpacked("t", b"x", given) == ("t", b"x", given)
    with pytest.raises(IllegalMessageError, match="not both"):
        unpacked(message, b"x", {})
    wrong: Any = b"t"
    with pytest.raises(TypeError, match="neither the name of a topic nor a Message"):
        unpacked(wrong, b"x", {})


QUEUES = [MessageQueue("t", "b", number) for number in range(4)]


def chosen(**options: Any) -> MessageQueue | None:
    given: Mapping[str, Any] = options
    choose = queue_chooser(given)  # type: ignore[arg-type]
    return None if choose is None else choose(QUEUES)


def test_queue_is_named_selected_or_found_by_its_key() -> None:
    assert queue_chooser({}) is None
    elsewhere = MessageQueue("t", "c", 9)
    assert chosen(queue=elsewhere) == elsewhere
    assert chosen(selector=lambda queues: queues[2]) == QUEUES[2]
    assert chosen(queue=elsewhere, selector=lambda queues: queues[2]) == elsewhere
    assert chosen(selector=lambda queues: queues[2], order_key="k") == QUEUES[2]


def test_key_always_chooses_the_same_queue_and_keys_spread() -> None:
    by_key = {key: chosen(order_key=key) for key in map(str, range(50))}
    assert {key: chosen(order_key=key) for key in by_key} == by_key
    assert set(by_key.values()) == set(QUEUES)
    assert chosen(order_key=0) is not None
