"""Header as JSON, the default of every official client.

Keys: code, extFields, flag, language, opaque, remark, serializeTypeCurrentRPC, version, in Java's
order, without blanks and nulls.

Parsing is as tolerant as Java's decoder: absent keys have Java's defaults, unknown keys are
ignored, a language may be a number or unknown, and ext values that are numbers, booleans, arrays or
objects become their JSON text (a null value is the same as an absent one).

Source: RemotingSerializable, RemotingCommand of 5.4.0; tolerance measured.
"""

import struct
from typing import Any, Final, TypeAlias

import orjson

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire.codes import LANGUAGE_UNKNOWN, LanguageCode

MAX_EXT_FIELDS: Final = 4096
"""Limit of ext fields in a header; Apache's clients send about fifteen."""

HeaderFields: TypeAlias = tuple[int, int, int, int, int, str | None, dict[str, str]]
"""code, language, version, opaque, flag, remark, ext fields."""

_LANGUAGE_CODES: Final[dict[str, int]] = {code.name: int(code) for code in LanguageCode}
_LANGUAGE_NAMES: Final[dict[int, str]] = {int(code): code.name for code in LanguageCode}
_OTHER: Final = "OTHER"
_FOUR_INTS: Final = struct.Struct(">iiii")
_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1


def language_code(name: object) -> int:
    """Return the code of a language given by name or number; -1 if unknown."""
    if isinstance(name, str):
        return _LANGUAGE_CODES.get(name, LANGUAGE_UNKNOWN)
    if isinstance(name, int) and not isinstance(name, bool) and name in _LANGUAGE_NAMES:
        return name
    return LANGUAGE_UNKNOWN


def encode_json_header(  # noqa: PLR0917 - the header's own fields
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str],
) -> bytes:
    """Return the header as compact JSON."""
    header: dict[str, Any] = {"code": code}
    if ext_fields:
        header["extFields"] = ext_fields
    header["flag"] = flag
    header["language"] = _LANGUAGE_NAMES.get(language, _OTHER)
    header["opaque"] = opaque
    if remark is not None:
        header["remark"] = remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = version
    return orjson.dumps(header)


def decode_json_header(data: bytes | bytearray | memoryview) -> HeaderFields:
    """Decode a JSON header.

    Raises:
        BadHeaderError: not JSON, not an object, or a field has another type.
    """
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        msg = f"header is not JSON: {error}"
        raise BadHeaderError(msg) from error
    try:
        code = header["code"]
        version = header["version"]
        opaque = header["opaque"]
        flag = header["flag"]
        language = _LANGUAGE_CODES[header["language"]]
        # `in` and indexing need no call, and take half the time of `get`, in every request.
        remark = header["remark"] if "remark" in header else None  # noqa: SIM401
        ext_fields = header["extFields"] if "extFields" in header else None  # noqa: SIM401
        # Rejects numbers that are not i32, in one call.
        _FOUR_INTS.pack(code, version, opaque, flag)
        if ext_fields is None:
            ext_fields = {}
        else:
            # Rejects values that are not text, in one call; the result is not used.
            "".join(ext_fields.values())
    except (KeyError, TypeError, AttributeError, struct.error):
        return _decode_tolerantly(header)
    if (
        (remark is not None and remark.__class__ is not str)
        or code.__class__ is not int
        or opaque.__class__ is not int
        or flag.__class__ is not int
        or version.__class__ is not int
    ):
        return _decode_tolerantly(header)
    if len(ext_fields) > MAX_EXT_FIELDS:
        raise _too_many_fields(len(ext_fields))
    return code, language, version, opaque, flag, remark, ext_fields


def _too_many_fields(count: int) -> BadHeaderError:
    return BadHeaderError(f"{count} ext fields exceed the limit of {MAX_EXT_FIELDS}")


def _decode_tolerantly(header: object) -> HeaderFields:
    if not isinstance(header, dict):
        msg = f"header is a JSON {type(header).__name__}, not an object"
        raise BadHeaderError(msg)
    remark = header.get("remark")
    return (
        _to_int(header, "code"),
        language_code(header.get("language", "JAVA")),
        _to_int(header, "version"),
        _to_int(header, "opaque"),
        _to_int(header, "flag"),
        None if remark is None else _to_text(remark),
        _to_ext_fields(header.get("extFields")),
    )


def _to_int(header: dict[str, Any], key: str) -> int:
    value = header.get(key)
    if value is None:
        return 0
    if isinstance(value, str):
        try:
            value = int(value) if len(value) <= 11 else None
        except ValueError:
            value = None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not _INT_MIN <= value <= _INT_MAX:
        msg = f"header key {key} is not a 32-bit number"
        raise BadHeaderError(msg)
    return value


def _to_ext_fields(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadHeaderError("header key extFields is not an object")
    if len(value) > MAX_EXT_FIELDS:
        raise _too_many_fields(len(value))
    return {name: _to_text(item) for name, item in value.items() if item is not None}


def _to_text(value: object) -> str:
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
