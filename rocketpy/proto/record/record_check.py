"""Validates a record in place, without decoding it.

Recovery needs more than a decoder: whether bytes are a record, the blank that ends a file,
unwritten, or a damaged record, and the distance to the next record.

Source: CommitLog.checkMessageAndReturnSize, MessageDecoder (5.4.0).
"""

import enum
import struct
from typing import Final, NamedTuple

from rocketpy.proto.record.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    HOST_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    body_crc,
    fixed_part,
    size_and_magic,
    topic_span,
)


class RecordState(enum.Enum):
    """State of the bytes at a position."""

    RECORD = "record"
    BLANK = "blank"
    EMPTY = "empty"
    DAMAGED = "damaged"  # consistent lengths, but the body differs from its checksum
    BROKEN = "broken"  # not a record, or inconsistent lengths


class RecordCheck(NamedTuple):
    """Result of a check; the fields after `size_bytes` are valid for RECORD and DAMAGED.

    Attributes:
        state: of the bytes.
        size_bytes: distance to the next position; for BROKEN an estimate, or 0.
        queue_id: queue within the topic.
        queue_offset: logical offset in that queue.
        sys_flag: system flags.
        store_timestamp_ms: store time.
        topic: topic bytes.
        properties: property bytes.
    """

    state: RecordState
    size_bytes: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    sys_flag: int = 0
    store_timestamp_ms: int = 0
    topic: bytes = b""
    properties: bytes = b""


_PLAIN: Final = struct.Struct(">iii16xqi44xi")
"""Size, magic, checksum, offset, flags and body length of 88 bytes with IPv4 hosts."""
_HEAD: Final = struct.Struct(">iiii4xqqi16xq20xi")
"""The same fields, with queue, queue offset and store time."""
_EMPTY: Final = RecordCheck(RecordState.EMPTY)
_RECORD: Final = RecordState.RECORD
_new: Final = tuple.__new__


def check_record(
    view: memoryview,
    position: int,
    phy_offset: int,
    *,
    check_crc: bool = True,
    bytes_behind: int = BLANK_BYTES,
) -> RecordCheck:
    """Check the bytes at `position` of a complete commit-log file.

    Args:
        view: the file.
        position: of the first byte.
        phy_offset: offset of this position; a record that claims another one is BROKEN.
        check_crc: whether to check the body.
        bytes_behind: room that a record must leave in its file; 0 for truncated copies.
    """
    found = _plain_record(view, position, phy_offset, check_crc, len(view) - bytes_behind)
    if found is not None:
        return found
    return check_any_record(
        view, position, phy_offset, check_crc=check_crc, bytes_behind=bytes_behind
    )


def check_any_record(
    view: memoryview,
    position: int,
    phy_offset: int,
    *,
    check_crc: bool = True,
    bytes_behind: int = BLANK_BYTES,
) -> RecordCheck:
    """Check any bytes as `check_record` does, on the general path."""
    rest = len(view) - position
    if rest < BLANK_BYTES:
        return _EMPTY
    size, magic = size_and_magic(view, position)
    if magic == BLANK_MAGIC:
        return RecordCheck(RecordState.BLANK, rest)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return _EMPTY if size == 0 and magic == 0 else RecordCheck(RecordState.BROKEN)
    if not MIN_RECORD_BYTES <= size <= rest - bytes_behind:
        return RecordCheck(RecordState.BROKEN)
    record = view[position : position + size]
    parts = _parts(record)
    if parts is None or parts.phy_offset != phy_offset or parts.queue_offset < 0:
        return RecordCheck(RecordState.BROKEN, size)
    if parts.topic_at == parts.topic_end:
        return RecordCheck(RecordState.BROKEN, size)
    intact = not check_crc or parts.body_matches(record)
    return RecordCheck(
        RecordState.RECORD if intact else RecordState.DAMAGED,
        size,
        parts.queue_id,
        parts.queue_offset,
        parts.sys_flag,
        parts.store_timestamp_ms,
        bytes(record[parts.topic_at : parts.topic_end]),
        bytes(record[parts.topic_end + 2 :]),
    )


def _plain_record(
    view: memoryview, position: int, phy_offset: int, check_crc: bool, end: int
) -> RecordCheck | None:
    """Check an intact record of version 1 with IPv4 hosts; None for all others.

    A start after a crash calls this for each record behind the checkpoint.
    """
    body_at = position + _HEAD.size
    if body_at > end:
        return None
    size, magic, crc, queue_id, queue_offset, place, sys_flag, store_ms, body_bytes = (
        _HEAD.unpack_from(view, position)
    )
    record_end = position + size
    body_end = body_at + body_bytes
    if (
        magic != MAGIC_V1
        or place != phy_offset
        or queue_offset < 0
        or sys_flag & HOST_FLAGS
        or record_end > end
        or not body_at <= body_end <= record_end - 3
    ):
        return None
    topic_end = body_end + 1 + view[body_end]
    if topic_end == body_end + 1 or topic_end > record_end - 2 or view[topic_end] > 0x7F:
        return None
    if topic_end + 2 + (view[topic_end] << 8 | view[topic_end + 1]) != record_end:
        return None
    if check_crc and body_bytes and body_crc(view[body_at:body_end]) != crc:
        return None
    # As `RecordCheck(...)`, without its Python frame.
    return _new(RecordCheck, (
        _RECORD, size, queue_id, queue_offset, sys_flag, store_ms,
        bytes(view[body_end + 1 : topic_end]), bytes(view[topic_end + 2 : record_end]),
    ))  # fmt: skip


def is_intact(record: memoryview, phy_offset: int) -> bool:
    """Check a record before it is sent: offset, size, lengths and body checksum.

    Args:
        record: bytes of the length in the queue's entry.
        phy_offset: of the record.
    """
    if len(record) < MIN_RECORD_BYTES:
        return False
    if _is_plain_and_intact(record, phy_offset):
        return True
    size, magic = size_and_magic(record, 0)
    if size != len(record) or magic not in {MAGIC_V1, MAGIC_V2}:
        return False
    parts = _parts(record)
    return parts is not None and parts.phy_offset == phy_offset and parts.body_matches(record)


def _is_plain_and_intact(record: memoryview, phy_offset: int) -> bool:
    """Check a record of version 1 with IPv4 hosts on the fast path; False if undecided.

    Messages stored before the start are checked by this when they are read.
    """
    end = len(record)
    size, magic, crc, place, sys_flag, body_bytes = _PLAIN.unpack_from(record)
    at = _PLAIN.size + body_bytes
    if (
        size != end
        or magic != MAGIC_V1
        or place != phy_offset
        or sys_flag & HOST_FLAGS
        or not _PLAIN.size <= at <= end - 3
    ):
        return False
    topic_end = at + 1 + record[at]
    if topic_end > end - 2 or record[topic_end] > 0x7F:
        return False
    if topic_end + 2 + (record[topic_end] << 8 | record[topic_end + 1]) != end:
        return False
    return not body_bytes or body_crc(record[_PLAIN.size : at]) == crc


class _Parts(NamedTuple):
    crc: int
    queue_id: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    store_timestamp_ms: int
    body_at: int
    body_bytes: int
    topic_at: int
    topic_end: int

    def body_matches(self, record: memoryview) -> bool:
        """Compare a body with its checksum; an empty body always matches."""
        end = self.body_at + self.body_bytes
        return not self.body_bytes or body_crc(record[self.body_at : end]) == self.crc


def _parts(record: memoryview) -> _Parts | None:
    """Find the parts of a record; None for inconsistent lengths."""
    try:
        fixed, values = fixed_part(record, 0)
    except struct.error:  # IPv6 hosts in a record too short for them
        return None
    _, magic, crc, queue_id, _, queue_offset, phy_offset, sys_flag = values[:8]
    store_timestamp_ms, body_bytes = values[10], values[14]
    topic = topic_span(record, magic, fixed.size, body_bytes, len(record))
    if topic is None:
        return None
    return _Parts(
        crc,
        queue_id,
        queue_offset,
        phy_offset,
        sys_flag,
        store_timestamp_ms,
        fixed.size,
        body_bytes,
        *topic,
    )
