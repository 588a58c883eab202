"""Header in the binary form ROCKETMQ (serialize type 1).

::

    code i16 | language i8 | version i16 | opaque i32 | flag i32
    remark length i32 | remark | ext length i32 | ext entries
    ext entry: key length i16 | key | value length i32 | value

Text is UTF-8. The code has 16 bits, so the POP family (200050...) is not possible in this form.
Java decodes an empty value as null; here it stays empty.

A client writes the same fields in each request of a kind, and most values have constant lengths. So
the layout of a header is cached by its length. A later header of that length is split in one call,
and accepted if all names and lengths are at the cached positions; all others are read field by
field.

Source: RocketMQSerializable of 5.4.0.
"""

import struct
from typing import Final

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire.codes import LANGUAGE_UNKNOWN, LanguageCode
from rocketpy.proto.wire.json_header import MAX_EXT_FIELDS, HeaderFields

_FIXED: Final = struct.Struct(">hbhiii")
_LENGTH: Final = struct.Struct(">i")
_KEY_LENGTH: Final = struct.Struct(">h")
_MAX_LANGUAGE: Final = max(LanguageCode)
_OTHER: Final = int(LanguageCode.OTHER)
_MINIMUM_BYTES: Final = _FIXED.size + _LENGTH.size
_LONGEST_LAYOUT_BYTES: Final = 1_024
_MOST_LAYOUTS: Final = 256
"""Most cached layouts, of at most about 4 KB each."""
_MOST_MISSES: Final = 8
"""Consecutive mismatches after which a layout of the same length is replaced."""


class _Layout:
    """Cached layout of the ext fields of a header.

    Attributes:
        names: of the fields.
        marks: bytes before each value: lengths and name.
        unpack_from: extracts marks and values of a header, alternately.
        misses: consecutive headers of this length with other fields.
    """

    __slots__ = ("marks", "misses", "names", "unpack_from")

    def __init__(self, data: bytes, spans: list[tuple[int, int, int]]) -> None:
        self.names = tuple(data[at + 2 : end - 4].decode() for at, end, _ in spans)
        self.marks = tuple(data[at:end] for at, end, _ in spans)
        form = "".join(f"{end - at}s{following - end}s" for at, end, following in spans)
        self.unpack_from = struct.Struct(">" + form).unpack_from
        self.misses = 0


_layouts: Final[dict[int, _Layout]] = {}


def _to_i16(value: int) -> int:
    """Return the low 16 bits, signed, as Java's cast to short does."""
    return (value & 0xFFFF ^ 0x8000) - 0x8000


def encode_binary_header(  # noqa: PLR0917 - the header's own fields
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    ext_fields: dict[str, str],
) -> bytes:
    """Return the header in binary form; a code beyond 16 bits is truncated as in Java."""
    remark_bytes = remark.encode() if remark else b""
    parts = [b"", remark_bytes, b""]
    ext_bytes = 0
    for key, value in ext_fields.items():
        key_data = key.encode()
        value_data = value.encode()
        ext_bytes += 6 + len(key_data) + len(value_data)
        parts += (
            _KEY_LENGTH.pack(len(key_data)),
            key_data,
            _LENGTH.pack(len(value_data)),
            value_data,
        )
    parts[0] = _FIXED.pack(
        _to_i16(code),
        language if 0 <= language <= _MAX_LANGUAGE else _OTHER,
        _to_i16(version),
        opaque,
        flag,
        len(remark_bytes),
    )
    parts[2] = _LENGTH.pack(ext_bytes)
    return b"".join(parts)


def decode_binary_header(data: bytes | bytearray | memoryview) -> HeaderFields:
    """Decode a binary header.

    Raises:
        BadHeaderError: inconsistent lengths, or text that is not UTF-8.
    """
    data = bytes(data)
    size = len(data)
    if size < _MINIMUM_BYTES:
        msg = f"binary header of {size} bytes is shorter than {_MINIMUM_BYTES}"
        raise BadHeaderError(msg)
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
    ext_at = _FIXED.size + remark_length
    if remark_length < 0 or ext_at + 4 > size:
        raise BadHeaderError("remark is longer than the header")
    (ext_length,) = _LENGTH.unpack_from(data, ext_at)
    position = ext_at + 4
    if ext_length < 0 or position + ext_length > size:
        raise BadHeaderError("ext fields are longer than the header")
    try:
        remark = data[_FIXED.size : ext_at].decode() if remark_length else None
        ext_fields = _known_ext_fields(data, position, ext_length)
        if ext_fields is None:
            ext_fields = _decode_ext_fields(data, position, position + ext_length)
    except UnicodeDecodeError as error:
        msg = f"header text is not UTF-8: {error}"
        raise BadHeaderError(msg) from error
    if not 0 <= language <= _MAX_LANGUAGE:
        language = LANGUAGE_UNKNOWN
    return code, language, version, opaque, flag, remark, ext_fields


def _known_ext_fields(data: bytes, position: int, size_bytes: int) -> dict[str, str] | None:
    """Read the fields of a header by a cached layout; None if it does not match."""
    layout = _layouts.get(size_bytes)
    if layout is None:
        return None
    parts = layout.unpack_from(data, position)
    if parts[::2] != layout.marks:
        layout.misses += 1
        return None
    try:
        values = b"\0".join(parts[1::2]).decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(values) != len(layout.names):  # a value has such a byte as well
        return None
    layout.misses = 0
    return dict(zip(layout.names, values, strict=True))


def _decode_ext_fields(data: bytes, position: int, end: int) -> dict[str, str]:
    ext_fields: dict[str, str] = {}
    begin = position
    spans: list[tuple[int, int, int]] = []
    while position < end:
        if position + 2 > end:
            raise BadHeaderError("ext field is cut short")
        (key_length,) = _KEY_LENGTH.unpack_from(data, position)
        value_at = position + 2 + key_length
        if key_length < 0 or value_at + 4 > end:
            raise BadHeaderError("ext field name is longer than the header")
        (value_length,) = _LENGTH.unpack_from(data, value_at)
        following = value_at + 4 + value_length
        if value_length < 0 or following > end:
            raise BadHeaderError("ext field value is longer than the header")
        ext_fields[data[position + 2 : value_at].decode()] = data[value_at + 4 : following].decode()
        if len(ext_fields) > MAX_EXT_FIELDS:
            msg = f"more than {MAX_EXT_FIELDS} ext fields"
            raise BadHeaderError(msg)
        spans.append((position, value_at + 4, following))
        position = following
    _learn(data, end - begin, spans)
    return ext_fields


def _learn(data: bytes, size_bytes: int, spans: list[tuple[int, int, int]]) -> None:
    known = _layouts.get(size_bytes)
    if not 0 < size_bytes <= _LONGEST_LAYOUT_BYTES or (known and known.misses < _MOST_MISSES):
        return
    if len(_layouts) >= _MOST_LAYOUTS:
        _layouts.clear()
    _layouts[size_bytes] = _Layout(data, spans)
