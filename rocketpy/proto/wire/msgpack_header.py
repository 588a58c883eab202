"""Header as a msgpack array (serialize type 2), only between RocketPy peers.

Seven items: code, language, version, opaque, flag, remark or nil, ext fields (a map of text to
text). Only peers that support this form receive it, so parsing is strict.
"""

import struct
from typing import Final

import msgpack  # type: ignore[import-untyped]  # has no stubs

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire.codes import LANGUAGE_UNKNOWN, LanguageCode
from rocketpy.proto.wire.json_header import MAX_EXT_FIELDS, HeaderFields

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
    """Return the header as a msgpack array."""
    known = language if 0 <= language <= _MAX_LANGUAGE else _OTHER
    packed: bytes = msgpack.packb((code, known, version, opaque, flag, remark, ext_fields))
    return packed


def decode_msgpack_header(data: bytes | bytearray | memoryview) -> HeaderFields:
    """Decode a msgpack header.

    Raises:
        BadHeaderError: not msgpack, or not the array of `encode_msgpack_header`.
    """
    try:
        header = msgpack.unpackb(data, max_map_len=MAX_EXT_FIELDS)
    except Exception as error:  # msgpack raises six unrelated classes on bad bytes
        msg = f"header is not msgpack: {error!r}"
        raise BadHeaderError(msg) from error
    try:
        code, language, version, opaque, flag, remark, ext_fields = header
        # Reject values that are not i32, or not text, in one call each.
        _FOUR_INTS.pack(code, version, opaque, flag)
        "".join(ext_fields)
        "".join(ext_fields.values())
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        msg = f"msgpack header has an absent or wrong field: {error!r}"
        raise BadHeaderError(msg) from error
    if (
        header.__class__ is not list
        or code.__class__ is not int
        or language.__class__ is not int
        or version.__class__ is not int
        or opaque.__class__ is not int
        or flag.__class__ is not int
        or not (remark is None or remark.__class__ is str)
    ):
        raise BadHeaderError("msgpack header has a field of a wrong type")
    if not 0 <= language <= _MAX_LANGUAGE:
        language = LANGUAGE_UNKNOWN
    return code, language, version, opaque, flag, remark, ext_fields
