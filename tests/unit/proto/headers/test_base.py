"""Parsing and formatting of header fields."""

import pytest

from rocketpy.errors import HeaderFieldError
from rocketpy.proto.headers.base import Header, header, parse_bool, parse_int32, parse_int64
from rocketpy.proto.headers.client import UnregisterClientRequestHeader
from rocketpy.proto.headers.offset import ResetOffsetRequestHeader
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.headers.topic import GetTopicConfigRequestHeader

PULL = {
    "consumerGroup": "g", "topic": "t", "queueId": "1", "queueOffset": "9223372036854775807",
    "maxMsgNums": "32",
    "sysFlag": "3", "commitOffset": "0", "suspendTimeoutMillis": "15000", "subVersion": "17",
    "unknown": "x", "bname": "b",
}  # fmt: skip


def test_reads_and_writes():
    pull = PullMessageRequestHeader.from_ext(PULL)
    assert (pull.queue_offset, pull.subscription, pull.max_msg_bytes) == ((1 << 63) - 1, None, None)
    assert pull.to_ext() == {k: v for k, v in PULL.items() if k != "unknown"}


@pytest.mark.parametrize("name", ["consumerGroup", "queueId", "subVersion"])
def test_required_field_is_named(name):
    with pytest.raises(HeaderFieldError, match=f"header field {name} is required") as caught:
        PullMessageRequestHeader.from_ext({k: v for k, v in PULL.items() if k != name})
    assert caught.value.field == name


@pytest.mark.parametrize(
    "value", ["x", "1.0", " 1", "1_0", "2147483648", "-2147483649", "--1", "+", "9" * 30, "²"]
)
def test_wrong_number_is_named(value):
    with pytest.raises(HeaderFieldError, match="queueId"):
        PullMessageRequestHeader.from_ext({**PULL, "queueId": value})


def test_number_limits():
    assert parse_int32("n", "-2147483648") == -(1 << 31)
    assert parse_int32("n", "+2147483647") == (1 << 31) - 1
    assert parse_int64("n", "-9223372036854775808") == -(1 << 63)
    with pytest.raises(HeaderFieldError, match="does not fit in 64 bits"):
        parse_int64("n", "9223372036854775808")


def test_empty_number_is_absent_and_an_empty_text_is_not():
    pull = PullMessageRequestHeader.from_ext({**PULL, "maxMsgBytes": "", "topic": ""})
    assert (pull.max_msg_bytes, pull.topic) == (None, "")
    with pytest.raises(HeaderFieldError):
        PullMessageRequestHeader.from_ext({**PULL, "queueId": ""})


def test_booleans_are_javas():
    assert [parse_bool("b", text) for text in ("true", "TRUE", "false", "1", "yes")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_defaults_and_odd_names():
    reset = ResetOffsetRequestHeader.from_ext(
        {"group": "g", "topic": "t", "timestamp": "-1", "isForce": "true"}
    )
    assert (reset.queue_id, reset.offset, reset.is_force) == (-1, None, True)
    assert UnregisterClientRequestHeader(client_id="c").to_ext() == {"clientID": "c"}
    assert GetTopicConfigRequestHeader.from_ext({"topic": "t", "lo": "true"}).lo is True


def test_fields_without_a_wire_form_are_a_mistake():
    @header
    class Wrong(Header):
        field: bytes

    with pytest.raises(TypeError, match="no wire form"):
        Wrong.from_ext({"field": "x"})
