"""Frames of a template equal those encoded field by field."""

import random
from typing import Any

import pytest

from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.proto.wire.frame import decode_command
from rocketpy.proto.wire.request_template import PreparedRequest, RequestTemplate

FIELDS = {"a": 'p"\\', "b": "t", "g": "", "h": "0", "i": "", "m": "false", "n": "Bröker"}
TEMPLATE = RequestTemplate(310, FIELDS, time="g", text="i")
TEXTS = [
    "",
    "K\x01v\x02",
    "é\u2028\U0001f600",
    '"\\\n',
    "x" * 31,
    "x" * 32,
    "y" * 300,
    "z" * 70_000,
]
OPAQUES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 0x7FFFFFFF]
JSON, ROCKETMQ, MSGPACK = 0, 1, 2


def by_hand(time_ms: int, text: str, body: bytes) -> RemotingCommand:
    return make_request(310, {**FIELDS, "g": str(time_ms), "i": text}, body)


def both(serialize_type: int, opaque: int, time_ms: int, text: str, body: bytes) -> list[bytes]:
    prepared, plain = PreparedRequest(TEMPLATE, time_ms, text, body), by_hand(time_ms, text, body)
    for request in (prepared, plain):
        request.serialize_type, request.opaque = serialize_type, opaque
    return [prepared.frame(), encode_command(plain)]


@pytest.mark.parametrize("serialize_type", [JSON, ROCKETMQ, MSGPACK])
def test_same_bytes(serialize_type: int) -> None:
    rng = random.Random(1)
    texts = TEXTS if serialize_type != ROCKETMQ else [text for text in TEXTS if len(text) < 30_000]
    for opaque in OPAQUES:
        for text in texts:
            time_ms, body = rng.choice([0, 7, 1_763_000_000_000]), rng.randbytes(rng.randrange(3))
            drawn, expected = both(serialize_type, opaque, time_ms, text, body)
            assert drawn == expected
            assert decode_command(drawn).ext_fields == {**FIELDS, "g": str(time_ms), "i": text}


@pytest.mark.parametrize("fields", [{"g": "", "i": ""}, {"g": "", "x": "y", "i": ""}])
def test_request_template_without_other_fields(fields: dict[str, str]) -> None:
    template = RequestTemplate(320, fields, time="g", text="i")
    for serialize_type in (JSON, MSGPACK):
        prepared = PreparedRequest(template, 5, "t", b"")
        plain = make_request(320, {**fields, "g": "5", "i": "t"})
        prepared.serialize_type = plain.serialize_type = serialize_type
        assert prepared.frame() == encode_command(plain)


@pytest.mark.parametrize("serialize_type", [JSON, MSGPACK])
def test_fields_that_were_changed_are_sent(serialize_type: int) -> None:
    request = PreparedRequest(TEMPLATE, 5, "t", b"body")
    request.serialize_type = serialize_type
    assert request.ext_fields == by_hand(5, "t", b"").ext_fields
    request.ext_fields["signature"] = "s"
    assert decode_command(request.frame()).ext_fields["signature"] == "s"
    request.ext_fields = {"only": "this"}
    assert decode_command(request.frame()).ext_fields == {"only": "this"}
    assert PreparedRequest(TEMPLATE, 5, "t", b"").ext_fields == by_hand(5, "t", b"").ext_fields


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_body_that_a_serializer_gave_as_another_buffer(kind: Any) -> None:
    for serialize_type in (JSON, MSGPACK):
        request = PreparedRequest(TEMPLATE, 5, "t", kind(b"body"))
        request.serialize_type = serialize_type
        assert decode_command(request.frame()).body == b"body"


def test_prepared_request_oneway_sets_the_flag() -> None:
    request = PreparedRequest(TEMPLATE, 5, "t", b"body")
    request.flag |= 2
    assert decode_command(request.frame()).is_oneway


def test_prepared_request_equals_a_plain_request() -> None:
    assert PreparedRequest(TEMPLATE, 5, "t", b"body") == by_hand(5, "t", b"body")
    assert by_hand(5, "t", b"body") == PreparedRequest(TEMPLATE, 5, "t", b"body")
    assert PreparedRequest(TEMPLATE, 6, "t", b"body") != by_hand(5, "t", b"body")
