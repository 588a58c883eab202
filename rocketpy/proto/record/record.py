"""Layout of the stored record: a message in the commit log and in pull responses.

All integers are big-endian. With IPv4 hosts (H = 8; 20 with IPv6)::

    0   total size i32       8   body CRC i32      16  flag i32
    4   magic i32            12  queue id i32      20  queue offset i64
    28  physical offset i64  36  system flag i32   40  born timestamp i64, ms
    48  born host H          56  store timestamp i64, ms
    64  store host H         72  reconsume times i32
    76  prepared transaction offset i64
    84  body length i32, body; topic length u8 (V1) or i16 (V2), topic;
        properties length i16, properties

This module declares the layout, writes records into a buffer (a mapped file) and finds their parts,
without temporary objects. `record_check` validates a record in place, `message` decodes it. For
speed, `record_check`, `property_locator` and the compiled modules repeat the positions of the
fields that they read.

Source: MessageExtEncoder, MessageDecoder, CommitLog of 5.4.0.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import chain, count, repeat
from mmap import mmap
from typing import Any, Final

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

ReadBuffer = bytes | bytearray | memoryview | mmap
WriteBuffer = bytearray | memoryview | mmap

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
BLANK_MAGIC: Final = -875286124
BLANK_BYTES: Final = 8
"""Head of the blank that ends a file; a record must leave this much room after it."""

MAGIC_AT: Final = 4
QUEUE_OFFSET_AT: Final = 20
PHY_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36

V4_HOST_BYTES: Final = 8
V6_HOST_BYTES: Final = 20
HOST_FLAGS: Final = BORN_HOST_V6 | STORE_HOST_V6
"""Bits of the system flag that affect the layout."""

_V4_FIXED: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
_FIXED_BY_HOSTS: Final = {
    0: _V4_FIXED,
    BORN_HOST_V6: struct.Struct(">iiiiiqqiq20sq8siqi"),
    STORE_HOST_V6: struct.Struct(">iiiiiqqiq8sq20siqi"),
    HOST_FLAGS: struct.Struct(">iiiiiqqiq20sq20siqi"),
}
_SHARED_BY_HOSTS: Final = {
    hosts: struct.Struct(">" + fixed.format.removeprefix(">iiiiiqq").removesuffix("i"))
    for hosts, fixed in _FIXED_BY_HOSTS.items()
}
"""Middle of a record: from the system flag to before the body's length."""
V4_MIDDLE_BYTES: Final = _SHARED_BY_HOSTS[0].size
"""Length of `record_middle` between IPv4 hosts."""
FIXED_NAMES: Final = (
    "size_bytes",
    "magic",
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "phy_offset",
    "sys_flag",
    "born_timestamp_ms",
    "born_host",
    "store_timestamp_ms",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_bytes",
)
"""The fields of the fixed part, in the order of the layout."""
FIXED_BYTES: Final = _V4_FIXED.size + 2
"""Size of a record with IPv4 hosts without its body, topic field and properties."""
MIN_RECORD_BYTES: Final = FIXED_BYTES + 1

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_SIZE_MAGIC: Final = struct.Struct(">ii")
_HEAD_BYTES: Final = _SIZE_MAGIC.size
_STORE_TIMESTAMP_AT: Final = 48 + V4_HOST_BYTES
_MAGIC_FLAG_BODY: Final = struct.Struct(">4xi28xi44xi")
"""Magic, system flag and body length, with IPv4 hosts."""
_V6_EXTRA_BYTES: Final = V6_HOST_BYTES - V4_HOST_BYTES
_TOPIC_FIELDS_LIMIT: Final = 65_536


CRC_MASK: Final = 0x7FFFFFFF
"""Bits of a body's CRC-32 that a record stores."""


def body_crc(body: ReadBuffer) -> int:
    """Return the checksum a record stores for its body; 0 for an empty one."""
    return zlib.crc32(body) & CRC_MASK


_topic_fields: dict[str, bytes] = {}


def topic_field(topic: str) -> bytes:
    """Return a topic with its length prefix, for `pack_record` (cached).

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

    `topic_field_bytes` counts the topic with its length, `len(topic_field(topic))`;
    the host bits of `sys_flag` count too.
    """
    size = FIXED_BYTES + body_bytes + topic_field_bytes + properties_bytes
    if sys_flag & HOST_FLAGS:
        size += _V6_EXTRA_BYTES if sys_flag & BORN_HOST_V6 else 0
        size += _V6_EXTRA_BYTES if sys_flag & STORE_HOST_V6 else 0
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
    """Write a record at `position`.

    `size_bytes` is the result of `record_size` for the same parts, and the buffer must have that
    room; `crc` is that of `body_crc`, `topic_with_length` that of `topic_field`. `born_host` and
    `store_host` have 8 or 20 bytes, by bits 0x10 and 0x20 of `sys_flag`; `properties` have at most
    32,767 bytes.

    Raises:
        struct.error: a number does not fit its field; nothing was written.
    """
    fixed = _FIXED_BY_HOSTS[sys_flag & HOST_FLAGS] if sys_flag & HOST_FLAGS else _V4_FIXED
    head = fixed.pack(
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
    buffer[position + _HEAD_BYTES : position + size_bytes] = b"".join(
        (
            head[_HEAD_BYTES:],
            body,
            topic_with_length,
            _SHORT.pack(len(properties)),
            properties,
        )
    )
    # The size is written last: a process killed before it leaves the end of the log, not a torn
    # record.
    buffer[position : position + _HEAD_BYTES] = head[:_HEAD_BYTES]


def record_middle(
    sys_flag: int,
    born_timestamp_ms: int,
    born_host: bytes,
    store_timestamp_ms: int,
    store_host: bytes,
    reconsume_times: int,
) -> bytes:
    """Return the bytes of a record between its physical offset and its body's length.

    Arguments are those of `pack_record`; messages of a bulk are not transactional.

    Raises:
        struct.error: a number does not fit its field.
    """
    return _SHARED_BY_HOSTS[sys_flag & HOST_FLAGS].pack(
        sys_flag, born_timestamp_ms, born_host, store_timestamp_ms, store_host, reconsume_times, 0
    )


def pack_run(  # noqa: PLR0913, PLR0917 - an object would cost the hot path
    buffer: WriteBuffer,
    position: int,
    sizes_bytes: Sequence[int],
    crcs: Sequence[int],
    bodies: Sequence[bytes],
    properties: Sequence[bytes],
    flags: Sequence[int],
    queue_id: int,
    queue_offset: int,
    phy_offsets: Sequence[int],
    middle: bytes,
    topic_with_length: bytes,
) -> None:
    """Write consecutive records of one topic, with one copy into the buffer.

    The sequences have one value per record; `queue_offset` is that of the first. Arguments are
    those of `pack_record`, except `middle`: see `record_middle`. The encoding works on columns,
    without Python code for each record.

    Raises:
        struct.error: a number does not fit its field; nothing was written.
    """
    magic = MAGIC_V1 if len(topic_with_length) <= 128 else MAGIC_V2
    body_bytes, properties_bytes = [*map(len, bodies)], [*map(len, properties)]
    heads = (
        sizes_bytes, repeat(magic), crcs, repeat(queue_id), flags, count(queue_offset),
        phy_offsets, repeat(middle), body_bytes,
    )  # fmt: skip
    fixed = f">iiiiiqq{len(middle)}si"
    body, rest = body_bytes[0], properties_bytes[0]
    if (
        body_bytes.count(body) == len(bodies) == properties_bytes.count(rest)
    ):  # which is common for one sender
        record = struct.Struct(f"{fixed}{body}s{len(topic_with_length)}sh{rest}s")
        parts: Iterable[bytes] = map(
            record.pack, *heads, bodies, repeat(topic_with_length), properties_bytes, properties
        )
    else:
        parts = chain.from_iterable(
            zip(
                map(struct.Struct(fixed).pack, *heads),
                bodies,
                repeat(topic_with_length),
                map(_SHORT.pack, properties_bytes),
                properties,
                strict=False,
            )
        )
    data = memoryview(b"".join(parts))
    start = position + _HEAD_BYTES
    buffer[start : position + len(data)] = data[_HEAD_BYTES:]
    buffer[position:start] = data[:_HEAD_BYTES]  # last, as in `pack_record`


def pack_blank(buffer: WriteBuffer, position: int, remaining_bytes: int) -> None:
    """Write the head of the blank that ends a file; `remaining_bytes` counts the head."""
    _SIZE_MAGIC.pack_into(buffer, position, remaining_bytes, BLANK_MAGIC)


class RecordKind(IntEnum):
    """Kind of a result of `iter_records`."""

    MESSAGE = 0
    BLANK = 1


def iter_records(buffer: ReadBuffer, start: int, end: int) -> Iterator[tuple[int, int, RecordKind]]:
    """Iterate over the records between two positions of a buffer.

    Yields (position, size in bytes, kind). Ends after a blank, at the first zero size and magic
    (unwritten space), or when fewer than 8 bytes are left.
    Checks magic and size only.

    Raises:
        CorruptRecordError: an invalid magic or size; its `phy_offset` is the position in the
            buffer.
    """
    position = start
    while end - position >= BLANK_BYTES:
        size, magic = _SIZE_MAGIC.unpack_from(buffer, position)
        if magic in {MAGIC_V1, MAGIC_V2}:
            if size < MIN_RECORD_BYTES or size > end - position:
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


def size_and_magic(buffer: ReadBuffer, position: int) -> tuple[int, int]:
    """Return the first two numbers at `position`, which has at least 8 bytes."""
    size, magic = _SIZE_MAGIC.unpack_from(buffer, position)
    return size, magic


def fixed_part(buffer: ReadBuffer, position: int) -> tuple[struct.Struct, tuple[Any, ...]]:
    """Return the fixed part of the record at `position`: its struct and its values.

    The values are those of the layout above in its order, from the total size to the body
    length; the body begins `struct.size` bytes after `position`.

    Raises:
        struct.error: the buffer ends before the fixed part does.
    """
    fixed = _FIXED_BY_HOSTS[_INT.unpack_from(buffer, position + SYS_FLAG_AT)[0] & HOST_FLAGS]
    return fixed, fixed.unpack_from(buffer, position)


def fixed_format(sys_flag: int = 0) -> str:
    """Return the `struct` format of the fixed part; only the host bits of the flag matter."""
    return _FIXED_BY_HOSTS[sys_flag & HOST_FLAGS].format


def topic_span(
    buffer: ReadBuffer, magic: int, body_at: int, body_bytes: int, end: int
) -> tuple[int, int] | None:
    """Return start and end of a record's topic; its properties follow 2 bytes later.

    Args:
        buffer: with the record.
        magic: of the record: determines the width of the topic's length.
        body_at: start of its body.
        body_bytes: length of its body.
        end: end of the record.

    Returns:
        None when body, topic and properties do not end at the end of the record.
    """
    at = body_at + body_bytes
    if body_bytes < 0 or at + 3 > end:
        return None
    if magic == MAGIC_V1:
        start = at + 1
        topic_end: int = start + buffer[at]
    else:
        start = at + 2
        topic_end = start + _SHORT.unpack_from(buffer, at)[0]
    if topic_end < start or topic_end + 2 > end:
        return None
    properties_bytes = _SHORT.unpack_from(buffer, topic_end)[0]
    return (start, topic_end) if topic_end + 2 + properties_bytes == end else None


def end_of_parts(buffer: ReadBuffer, position: int) -> int:
    """Return the end of a record by the lengths of its parts instead of its size.

    Args:
        buffer: with the record, which may be damaged.
        position: of the record.

    Returns:
        0 when the lengths exceed the buffer.
    """
    try:
        fixed, values = fixed_part(buffer, position)
        at = position + fixed.size + max(0, values[-1])
        wide = values[1] == MAGIC_V2
        at += 2 + _SHORT.unpack_from(buffer, at)[0] if wide else 1 + buffer[at]
        return int(at + 2 + _SHORT.unpack_from(buffer, at)[0])
    except (struct.error, IndexError):
        return 0


def properties_of(record: ReadBuffer) -> bytes:
    """Return the properties of a record that is the complete buffer."""
    magic, sys_flag, body_bytes = _MAGIC_FLAG_BODY.unpack_from(record)
    at = _V4_FIXED.size
    if sys_flag & HOST_FLAGS:
        at = _FIXED_BY_HOSTS[sys_flag & HOST_FLAGS].size
        body_bytes = _INT.unpack_from(record, at - _INT.size)[0]
    at += body_bytes
    if magic == MAGIC_V1:
        at += 1 + record[at]
    else:
        at += 2 + _SHORT.unpack_from(record, at)[0]
    return bytes(record[at + 2 :])


def record_store_timestamp_ms(buffer: ReadBuffer, position: int) -> int:
    """Return the store time of the record at `position`, ms."""
    at = position + _STORE_TIMESTAMP_AT
    if _INT.unpack_from(buffer, position + SYS_FLAG_AT)[0] & BORN_HOST_V6:
        at += _V6_EXTRA_BYTES
    return int(_LONG.unpack_from(buffer, at)[0])
