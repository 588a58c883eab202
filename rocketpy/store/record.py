"""Records as they lie in the commit log: judged, not decoded.

Recovery must know more than a decoder: whether bytes are a record, a file's blank, nothing yet,
or a record that was damaged, and how far to go on. ``H`` is 8 bytes for an IPv4 host and 20 for
an IPv6 one::

    0       4       8     12     16     20         28        36       40
    | size  | magic | crc | queue| flag | queue    | physical| sys    | born |
    |       |       |     | id   |      | offset   | offset  | flag   | time |
    48          48+H          56+H         56+2H      60+2H       68+2H
    | born host | store time | store host | reconsume | prepared | body length, body, ...

Source: CommitLog.checkMessageAndReturnSize, MessageDecoder (5.4.0).
"""

import enum
import struct
import zlib
from typing import Final, NamedTuple

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194
BLANK_BYTES: Final = 8
MIN_RECORD_BYTES: Final = 91
_HEAD: Final = struct.Struct(">iIiiiqqi")
_SIZE_MAGIC: Final = struct.Struct(">iI")
_I64: Final = struct.Struct(">q")
_I32: Final = struct.Struct(">i")
_I16: Final = struct.Struct(">h")
_BORN_V6: Final = 0x10
_STORE_V6: Final = 0x20
_CRC_MASK: Final = 0x7FFFFFFF


class RecordState(enum.Enum):
    """What lies at a position."""

    RECORD = "record"
    BLANK = "filler"
    EMPTY = "empty"
    DAMAGED = "damaged"  # its frame and parts add up, its body is not what was stored
    BROKEN = "broken"  # not a record, or its parts do not add up


class RecordCheck(NamedTuple):
    """One position judged; the fields after ``size_bytes`` hold for RECORD and DAMAGED.

    Attributes:
        verdict: what it is.
        size_bytes: how far the next position is; for BROKEN a guess, 0 when there is none.
        queue_id: queue within the topic.
        queue_offset: logical offset in that queue.
        sys_flag: system flags.
        store_timestamp_ms: when it was stored.
        topic: topic bytes.
        properties: property bytes.
    """

    verdict: RecordState
    size_bytes: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp_ms: int = 0
    topic: bytes = b""
    properties: bytes = b""


_EMPTY: Final = RecordCheck(RecordState.EMPTY)


def judge(
    view: memoryview, position: int, phy_offset: int, *, check_crc: bool = True
) -> RecordCheck:
    """Tell what lies at ``position`` of a whole commit-log file.

    Args:
        view: the file.
        position: first byte to look at.
        phy_offset: the same place in the log; a record that claims another one is BROKEN.
        check_crc: whether to check the body.
    """
    rest = len(view) - position
    if rest < BLANK_BYTES:
        return _EMPTY
    size, magic = _SIZE_MAGIC.unpack_from(view, position)
    if magic == BLANK_MAGIC:
        return RecordCheck(RecordState.BLANK, rest)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return _EMPTY if size == 0 and magic == 0 else RecordCheck(RecordState.BROKEN)
    if not MIN_RECORD_BYTES <= size <= rest - BLANK_BYTES:
        return RecordCheck(RecordState.BROKEN)
    broken = RecordCheck(RecordState.BROKEN, size)
    _, _, crc, queue_id, _, queue_offset, own_offset, sys_flag = _HEAD.unpack_from(view, position)
    if own_offset != phy_offset or queue_offset < 0:
        return broken
    end = position + size
    cursor = position + (68 if sys_flag & _BORN_V6 else 56)
    (store_timestamp_ms,) = _I64.unpack_from(view, cursor)
    cursor += 40 if sys_flag & _STORE_V6 else 28
    if cursor + 8 > end:
        return broken
    (body_bytes,) = _I32.unpack_from(view, cursor)
    body_at = cursor + 4
    cursor = body_at + body_bytes
    topic_head = 1 if magic == MAGIC_V1 else 2
    if body_bytes < 0 or cursor + topic_head + 2 > end:
        return broken
    topic_bytes = view[cursor] if magic == MAGIC_V1 else _I16.unpack_from(view, cursor)[0]
    topic_at = cursor + topic_head
    cursor = topic_at + topic_bytes
    if topic_bytes <= 0 or cursor + 2 > end:
        return broken
    (properties_bytes,) = _I16.unpack_from(view, cursor)
    if properties_bytes < 0 or cursor + 2 + properties_bytes != end:
        return broken
    intact = not check_crc or not body_bytes or _crc(view, body_at, body_bytes) == crc
    return RecordCheck(
        RecordState.RECORD if intact else RecordState.DAMAGED,
        size,
        queue_id,
        queue_offset,
        sys_flag,
        store_timestamp_ms,
        bytes(view[topic_at : topic_at + topic_bytes]),
        bytes(view[cursor + 2 : end]),
    )


def _crc(view: memoryview, position: int, size_bytes: int) -> int:
    return zlib.crc32(view[position : position + size_bytes]) & _CRC_MASK


def is_intact(record: memoryview, phy_offset: int) -> bool:
    """Check one whole record on its way out: place, size and body checksum.

    Args:
        record: as long as the entry that led here says.
        phy_offset: where it was found.
    """
    if len(record) < MIN_RECORD_BYTES:
        return False
    size, magic, crc, _, _, _, own_offset, sys_flag = _HEAD.unpack_from(record, 0)
    if size != len(record) or magic not in {MAGIC_V1, MAGIC_V2} or own_offset != phy_offset:
        return False
    body_at = 88 + (12 if sys_flag & _BORN_V6 else 0) + (12 if sys_flag & _STORE_V6 else 0)
    if body_at > size:
        return False
    (body_bytes,) = _I32.unpack_from(record, body_at - 4)
    if body_bytes < 0 or body_at + body_bytes > size:
        return False
    return not body_bytes or _crc(record, body_at, body_bytes) == crc


def store_time_of(view: memoryview, position: int) -> int:
    """Return the store time of a record known to lie at ``position``, ms."""
    (sys_flag,) = _I32.unpack_from(view, position + 36)
    time_ms: int = _I64.unpack_from(view, position + (68 if sys_flag & _BORN_V6 else 56))[0]
    return time_ms
