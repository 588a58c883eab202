import json

import orjson
import pytest

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire.codes import LANGUAGE_UNKNOWN, LanguageCode
from rocketpy.proto.wire.json_header import (
    MAX_EXT_FIELDS,
    decode_json_header,
    encode_json_header,
    language_code,
)

FULL = {"code": 1, "flag": 2, "language": "JAVA", "opaque": 3, "version": 4}


def decode(**changes):
    return decode_json_header(orjson.dumps({**FULL, **changes}))


def test_absent_keys_keep_javas_defaults():
    assert decode_json_header(b'{"code":1,"flag":0,"opaque":9}') == (1, 0, 0, 9, 0, None, {})
    assert decode_json_header(b"{}") == (0, 0, 0, 0, 0, None, {})


def test_unknown_keys_and_blanks():
    data = b' { "code" : 1 , "more" : [1, {}], "flag":2,"language":"GO","opaque":3,"version":4}\n'
    assert decode_json_header(data) == (1, 9, 4, 3, 2, None, {})


@pytest.mark.parametrize(
    ("language", "code"),
    [("NODE_JS", 13), (3, LanguageCode.PYTHON), ("KLINGON", -1), (99, -1), (True, -1), ([], -1)],
)
def test_languages(language, code):
    assert decode(language=language)[1] == language_code(language) == code


def test_absent_language_is_java_and_an_unknown_one_is_written_as_other():
    assert decode(language=None)[1] == LANGUAGE_UNKNOWN
    assert b'"language":"OTHER"' in encode_json_header(1, -1, 0, 0, 0, None, {})


def test_ext_values_become_text():
    ext = decode(extFields={"a": 1, "b": True, "c": None, "d": "x", "e": 1.5, "f": [1], "g": {}})[6]
    assert ext == {"a": "1", "b": "true", "d": "x", "e": "1.5", "f": "[1]", "g": "{}"}


def test_null_ext_fields_and_remark():
    assert decode(extFields=None, remark=None)[5:] == (None, {})
    assert decode(remark="")[5] == ""
    assert decode(remark=5)[5] == "5"


def test_numbers_as_text_or_whole_floats():
    assert decode(code="310", opaque=7.0)[0:4:3] == (310, 7)


@pytest.mark.parametrize(
    "value", [1 << 31, -(1 << 31) - 1, 1 << 70, "x", "", "9" * 5000, 1.5, True, [], {}]
)
@pytest.mark.parametrize("key", ["code", "flag", "opaque", "version"])
def test_decode_json_header_invalid_number_raises(key, value):
    data = json.dumps({**FULL, key: value}).encode()
    with pytest.raises(BadHeaderError):
        decode_json_header(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"1", b"null", b'"x"', b"\xff\xfe", b'{"code":NaN}', b"{}{}"]
)
def test_decode_json_header_not_an_object_raises(data):
    with pytest.raises(BadHeaderError):
        decode_json_header(data)


@pytest.mark.parametrize("ext", [[], "x", 5])
def test_ext_fields_must_be_an_object(ext):
    with pytest.raises(BadHeaderError):
        decode(extFields=ext)


def test_number_of_ext_fields_is_bounded():
    ext = {str(n): "" for n in range(MAX_EXT_FIELDS)}
    assert len(decode(extFields=ext)[6]) == MAX_EXT_FIELDS
    ext["one more"] = ""
    for values in (ext, {**ext, "0": 5}):
        with pytest.raises(BadHeaderError, match="exceed"):
            decode(extFields=values)
