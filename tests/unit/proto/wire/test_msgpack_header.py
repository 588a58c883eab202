from typing import Any

import msgpack  # type: ignore[import-untyped]  # has no stubs
import pytest

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire.json_header import MAX_EXT_FIELDS
from rocketpy.proto.wire.msgpack_header import decode_msgpack_header, encode_msgpack_header

FULL: dict[str, Any] = {
    "code": 200_050,
    "language": 3,
    "version": 493,
    "opaque": -3,
    "flag": 2,
    "remark": None,
    "extFields": {},
}


def test_round_trip():
    fields = (200_050, 3, 493, -3, 1, "remark", {"a": "ü"})
    assert decode_msgpack_header(encode_msgpack_header(*fields)) == fields


def packed(**changes):
    return msgpack.packb(list({**FULL, **changes}.values()))


def test_encode_msgpack_header_is_an_array_of_seven():
    assert encode_msgpack_header(200_050, 3, 493, -3, 2, None, {}) == packed()


@pytest.mark.parametrize("language", [14, -1])
def test_unknown_languages(language):
    assert decode_msgpack_header(packed(language=language))[1] == -1
    assert msgpack.unpackb(encode_msgpack_header(1, language, 0, 0, 0, None, {}))[1] == 7


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "1"},
        {"code": True},
        {"opaque": 1 << 31},
        {"flag": None},
        {"language": "JAVA"},
        {"version": 1.0},
        {"remark": 5},
        {"extFields": [1]},
        {"extFields": {"a": 1}},
        {"extFields": {"a": b"1"}},
        {"extFields": {b"a": "1"}},
    ],
)
def test_wrong_types_are_refused(changes):
    with pytest.raises(BadHeaderError):
        decode_msgpack_header(packed(**changes))


@pytest.mark.parametrize("key", list(FULL))
def test_absent_fields_are_refused(key):
    with pytest.raises(BadHeaderError):
        decode_msgpack_header(msgpack.packb([v for k, v in FULL.items() if k != key]))


def test_map_is_refused():
    with pytest.raises(BadHeaderError):
        decode_msgpack_header(msgpack.packb(FULL))


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x80more", b"\x93\x01", b"\x91" * 2000, b"\xa1\xff", b"\x05"]
)
def test_decode_msgpack_header_not_an_array_raises(data):
    with pytest.raises(BadHeaderError):
        decode_msgpack_header(data)


def test_number_of_ext_fields_is_bounded():
    fields = {str(n): "" for n in range(MAX_EXT_FIELDS + 1)}
    with pytest.raises(BadHeaderError):
        decode_msgpack_header(encode_msgpack_header(1, 0, 0, 0, 0, None, fields))
