"""The stored record: one message as the commit log and a pull response hold it.

All integers are big-endian. With IPv4 hosts (H = 8; 20 with IPv6)::

    0   total size i32       8   body CRC i32      16  flag i32
    4   magic i32            12  queue id i32      20  queue offset i64
    28  physical offset i64  36  system flag i32   40  born timestamp i64, ms
    48  born host H          56  store timestamp i64, ms
    64  store host H         72  reconsume times i32
    76  prepared transaction offset i64
    84  body length i32, body; topic length u8 (V1) or i16 (V2), topic;
        properties length i16, properties

This module is the hot path: it writes into and reads from a buffer (a mapped
file, a pull body) and builds no objects it does not need. ``message`` decodes
whole messages.

Source: MessageExtEncoder, MessageDecoder, CommitLog of 5.4.0.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from mmap import mmap
from typing import Final

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.sys_flag import BORN_HOST_V6, STORE_HOST_V6

ReadBuffer = bytes | bytearray | memoryview | mmap
WriteBuffer = bytearray | memoryview | mmap

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
BLANK_MAGIC: Final = -875286124
BLANK_RECORD_BYTES: Final = 8
"""Head of the blank that ends a file; a record needs this much room after itself."""
PROPERTY_CRC_BYTES: Final = 20

_V6_HOSTS: Final = BORN_HOST_V6 | STORE_HOST_V6
_V4_FIXED: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
_FIXED_BY_HOSTS: Final = {
    0: _V4_FIXED,
    BORN_HOST_V6: struct.Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6: struct.Struct(">iiiiiqqiq8sq20siqi"),
    _V6_HOSTS: struct.Struct(">iiiiiqqiq20sq20siqi"),
}
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_TWO_INTS: Final = struct.Struct(">ii")
_TWO_LONGS: Final = struct.Struct(">qq")
_FIXED_BYTES: Final = _V4_FIXED.size + 2
_TOPIC_FIELDS_LIMIT: Final = 65_536
_CRC_PREFIX: Final = b"__CRC32#\x01"


def body_crc(body: ReadBuffer) -> int:
    """Return the checksum a record stores for its body; 0 for an empty one."""
    return zlib.crc32(body) & 0x7FFFFFFF


_topic_fields: dict[str, bytes] = {}


def topic_field(topic: str) -> bytes:
    """Return a topic with its length in front, as ``pack_record`` wants it (remembered).

    One byte of length for up to 127 bytes of name (record version 1), else two (version 2).

    Raises:
        ValueError: more than 32,767 bytes.
    """
    field = _topic_fields.get(topic)
    if field is None:
        name = topic.encode()
        if len(name) > 32_767:
            msg = f"topic of {len(name)} bytes"
            raise ValueError(msg)
        length = bytes((len(name),)) if len(name) <= 127 else _SHORT.pack(len(name))
        if len(_topic_fields) >= _TOPIC_FIELDS_LIMIT:
            _topic_fields.clear()
        field = _topic_fields[topic] = length + name
    return field


def record_size(
    body_bytes: int, topic_field_bytes: int, properties_bytes: int, sys_flag: int = 0
) -> int:
    """Return the size in bytes of a record.

    ``topic_field_bytes`` counts the topic with its length, ``len(topic_field(topic))``;
    the host bits of ``sys_flag`` count too.
    """
    size = _FIXED_BYTES + body_bytes + topic_field_bytes + properties_bytes
    if sys_flag & _V6_HOSTS:
        size += (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)
    return size


def pack_record(  # noqa: PLR0913, PLR0917 - an object would cost the hot path
    buffer: WriteBuffer,
    position: int,
    size_bytes: int,
    crc: int,
    queue_id: int,
    flag: int,
    queue_offset: int,
    phy_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes | memoryview,
    topic_with_length: bytes,
    properties: bytes,
) -> None:
    """Write a record at ``position``.

    ``size_bytes`` comes from ``record_size`` of the same parts, and the buffer must have
    that room; ``crc`` from ``body_crc`` of the body, ``topic_with_length`` from
    ``topic_field``. ``born_host`` and ``store_host`` have 8 or 20 bytes, as bits 0x10 and
    0x20 of ``sys_flag`` say; ``properties`` at most 32,767 bytes.

    Raises:
        struct.error: a number does not fit its field (nothing but garbage past the
            log's end has been written).
    """
    fixed = _FIXED_BY_HOSTS[sys_flag & _V6_HOSTS] if sys_flag & _V6_HOSTS else _V4_FIXED
    fixed.pack_into(
        buffer,
        position,
        size_bytes,
        MAGIC_V1 if len(topic_with_length) <= 128 else MAGIC_V2,
        crc,
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    at = position + fixed.size
    buffer[at : position + size_bytes] = b"".join(
        (
            body,
            topic_with_length,
            _SHORT.pack(len(properties)),
            properties,
        )
    )


def pack_run(  # noqa: PLR0913, PLR0917 - an object would cost the hot path
    buffer: WriteBuffer,
    position: int,
    records: Iterable[tuple[int, int, bytes, bytes]],
    queue_id: int,
    queue_offset: int,
    phy_offset: int,
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
    topic_with_length: bytes,
) -> tuple[list[int], list[int]]:
    """Write the records of one queue side by side with one copy into the buffer.

    ``records`` are (flag, crc, body, properties); the other arguments are those of
    `pack_record`, offsets being the first record's. Hosts must be IPv4.

    Returns:
        The physical offsets and the sizes of the records.

    Raises:
        struct.error: a number does not fit its field; nothing was written.
    """
    magic = MAGIC_V1 if len(topic_with_length) <= 128 else MAGIC_V2
    fixed_bytes = _FIXED_BYTES + len(topic_with_length)
    pack_fixed, pack_short = _V4_FIXED.pack, _SHORT.pack
    parts: list[bytes] = []
    phy_offsets: list[int] = []
    sizes: list[int] = []
    for flag, crc, body, properties in records:
        body_bytes, properties_bytes = len(body), len(properties)
        size = fixed_bytes + body_bytes + properties_bytes
        fixed = pack_fixed(
            size,
            magic,
            crc,
            queue_id,
            flag,
            queue_offset,
            phy_offset,
            sys_flag,
            born_timestamp_ms,
            born_host,
            store_timestamp_ms,
            store_host,
            reconsume_times,
            0,
            body_bytes,
        )
        parts += (fixed, body, topic_with_length, pack_short(properties_bytes), properties)
        phy_offsets.append(phy_offset)
        sizes.append(size)
        phy_offset += size
        queue_offset += 1
    data = b"".join(parts)
    buffer[position : position + len(data)] = data
    return phy_offsets, sizes


def patch_record(
    buffer: WriteBuffer,
    position: int,
    queue_offset: int,
    phy_offset: int,
    store_timestamp_ms: int,
) -> None:
    """Fill in what only the append knows, in a record that was packed before it."""
    _TWO_LONGS.pack_into(buffer, position + 20, queue_offset, phy_offset)
    at = 68 if _INT.unpack_from(buffer, position + 36)[0] & BORN_HOST_V6 else 56
    _LONG.pack_into(buffer, position + at, store_timestamp_ms)


def pack_blank(buffer: WriteBuffer, position: int, remaining_bytes: int) -> None:
    """Write the head of the blank that ends a file; ``remaining_bytes`` counts the head."""
    _TWO_INTS.pack_into(buffer, position, remaining_bytes, BLANK_MAGIC)


class RecordKind(IntEnum):
    """What ``iter_records`` found."""

    MESSAGE = 0
    BLANK = 1


def iter_records(buffer: ReadBuffer, start: int, end: int) -> Iterator[tuple[int, int, RecordKind]]:
    """Walk over the records between two positions of a buffer.

    Yields (position, size in bytes, kind). Ends after a blank, at the first zero size
    and magic (nothing was written there yet), or when fewer than 8 bytes are left.
    Checks magic and size only.

    Raises:
        CorruptRecordError: a magic or a size that no record has; its ``phy_offset`` is the
            position in the buffer.
    """
    position = start
    while end - position >= 8:
        size, magic = _TWO_INTS.unpack_from(buffer, position)
        if magic in {MAGIC_V1, MAGIC_V2}:
            if size < _FIXED_BYTES + 1 or size > end - position:
                raise CorruptRecordError(position, f"size {size} is impossible here")
            yield position, size, RecordKind.MESSAGE
            position += size
        elif magic == BLANK_MAGIC:
            yield position, size, RecordKind.BLANK
            return
        elif magic == 0 and size == 0:
            return
        else:
            raise CorruptRecordError(position, f"magic {magic & 0xFFFFFFFF:#010x} is unknown")


def record_queue_id(buffer: ReadBuffer, position: int) -> int:
    """Return the queue id of the record at ``position``."""
    return int(_INT.unpack_from(buffer, position + 12)[0])


def record_queue_offset(buffer: ReadBuffer, position: int) -> int:
    """Return the queue offset of the record at ``position``."""
    return int(_LONG.unpack_from(buffer, position + 20)[0])


def record_sys_flag(buffer: ReadBuffer, position: int) -> int:
    """Return the system flag of the record at ``position``."""
    return int(_INT.unpack_from(buffer, position + 36)[0])


def record_store_timestamp_ms(buffer: ReadBuffer, position: int) -> int:
    """Return when the record at ``position`` was stored, ms."""
    at = 68 if _INT.unpack_from(buffer, position + 36)[0] & BORN_HOST_V6 else 56
    return int(_LONG.unpack_from(buffer, position + at)[0])


def fixed_struct(sys_flag: int) -> struct.Struct:
    """Return the struct of a record's fixed part, up to and with the body length."""
    return _FIXED_BY_HOSTS[sys_flag & _V6_HOSTS]


def _body_position(buffer: ReadBuffer, position: int) -> int:
    """Return where the body length of the record stands."""
    sys_flag = _INT.unpack_from(buffer, position + 36)[0]
    at = position + 84
    if sys_flag & _V6_HOSTS:
        at += (12 if sys_flag & BORN_HOST_V6 else 0) + (12 if sys_flag & STORE_HOST_V6 else 0)
    return at


def _topic_span(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Return where the topic's name starts and ends."""
    at = _body_position(buffer, position)
    at += 4 + _INT.unpack_from(buffer, at)[0]
    if _INT.unpack_from(buffer, position + 4)[0] == MAGIC_V2:
        return at + 2, at + 2 + _SHORT.unpack_from(buffer, at)[0]
    return at + 1, at + 1 + buffer[at]


def record_body(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Return where the stored body of the record at ``position`` starts and ends."""
    at = _body_position(buffer, position)
    return at + 4, at + 4 + int(_INT.unpack_from(buffer, at)[0])


def record_topic(buffer: ReadBuffer, position: int) -> str:
    """Return the topic of the record at ``position``, which must be sound."""
    start, end = _topic_span(buffer, position)
    return bytes(buffer[start:end]).decode("utf-8", "replace")


def record_properties(buffer: ReadBuffer, position: int) -> bytes:
    """Return the property bytes of the record at ``position``, which must be sound."""
    at = _topic_span(buffer, position)[1]
    return bytes(buffer[at + 2 : at + 2 + _SHORT.unpack_from(buffer, at)[0]])


def verify_body_crc(buffer: ReadBuffer, position: int) -> bool:
    """Tell whether the stored body matches its checksum (a record without a body does)."""
    start, end = record_body(buffer, position)
    if start == end:
        return True
    return bool(
        body_crc(memoryview(buffer)[start:end]) == _INT.unpack_from(buffer, position + 8)[0]
    )


def property_crc_suffix(crc: int) -> bytes:
    """Return the 20 bytes that end a record with property CRC: digits least significant first."""
    return _CRC_PREFIX + f"{crc}"[::-1].ljust(10, "0").encode() + b"\x02"


def append_property_crc(buffer: WriteBuffer, position: int, size_bytes: int) -> None:
    """Fill in the last 20 bytes of a record, which were left free for its property CRC."""
    end = position + size_bytes - PROPERTY_CRC_BYTES
    crc = body_crc(memoryview(buffer)[position:end])
    buffer[end : position + size_bytes] = property_crc_suffix(crc)


def verify_property_crc(buffer: ReadBuffer, position: int, size_bytes: int) -> bool | None:
    """Check the property CRC of a record.

    Returns:
        Whether it matches, or None when the record has none.
    """
    end = position + size_bytes - PROPERTY_CRC_BYTES
    suffix = bytes(buffer[end : position + size_bytes])
    if not suffix.startswith(_CRC_PREFIX):
        return None
    return suffix == property_crc_suffix(body_crc(memoryview(buffer)[position:end]))
