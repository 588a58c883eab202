"""The header as a msgpack map (serialize type 2), spoken between RocketPy peers only.

The keys are those of the JSON header, but ``language`` is a number. A peer that
did not ask for this form never receives it, so reading is strict.
"""

import struct
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # has no stubs

from rocketpy.errors import BadHeaderError
from rocketpy.proto.codes import LANGUAGE_UNKNOWN, LanguageCode
from rocketpy.proto.json_header import MAX_EXT_FIELDS, HeaderFields

__all__ = ["decode_msgpack_header", "encode_msgpack_header"]

_FOUR_INTS: Final = struct.Struct(">iiii")
_MAX_LANGUAGE: Final = max(LanguageCode)
_OTHER: Final = int(LanguageCode.OTHER)


def encode_msgpack_header(  # noqa: PLR0917 - the header's own fields
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str],
) -> bytes:
    """Return the header as a msgpack map."""
    header: dict[str, Any] = {
        "code": code,
        "flag": flag,
        "language": language if 0 <= language <= _MAX_LANGUAGE else _OTHER,
        "opaque": opaque,
        "version": version,
    }
    if ext_fields:
        header["extFields"] = ext_fields
    if remark is not None:
        header["remark"] = remark
    packed: bytes = msgpack.packb(header)
    return packed


def decode_msgpack_header(data: bytes | bytearray | memoryview) -> HeaderFields:
    """Read a msgpack header.

    Raises:
        BadHeaderError: not msgpack, or not the map ``encode_msgpack_header`` writes.
    """
    try:
        header = msgpack.unpackb(data, max_map_len=MAX_EXT_FIELDS)
    except Exception as error:  # msgpack raises six unrelated classes on bad bytes
        msg = f"header is not msgpack: {error!r}"
        raise BadHeaderError(msg) from error
    try:
        code = header["code"]
        language = header["language"]
        version = header["version"]
        opaque = header["opaque"]
        flag = header["flag"]
        remark = header.get("remark")
        ext_fields = header.get("extFields", {})
        _FOUR_INTS.pack(code, version, opaque, flag)
        "".join(ext_fields.keys())
        "".join(ext_fields.values())
    except (KeyError, TypeError, AttributeError, struct.error) as error:
        msg = f"msgpack header has an absent or wrong field: {error!r}"
        raise BadHeaderError(msg) from error
    numbers = (code, language, version, opaque, flag)
    if any(number.__class__ is not int for number in numbers) or not (
        remark is None or isinstance(remark, str)
    ):
        raise BadHeaderError("msgpack header has a field of a wrong type")
    if not 0 <= language <= _MAX_LANGUAGE:
        language = LANGUAGE_UNKNOWN
    return code, language, version, opaque, flag, remark, ext_fields
