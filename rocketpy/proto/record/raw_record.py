"""A stored record taken apart without decoding its text: what is needed to store it again.

`message` decodes one for a reader.

Source: MessageDecoder (5.4.0).
"""

import struct
from typing import Final, NamedTuple

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.record import (
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    ReadBuffer,
    fixed_part,
    topic_span,
)

_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class RawRecord(NamedTuple):
    """The parts of a record, as they are stored.

    Attributes:
        size_bytes: of the whole record.
        queue_id: queue within the topic.
        flag: the application's own flag.
        queue_offset: logical offset in the queue.
        phy_offset: where it begins in the log.
        sys_flag: system flags.
        born_timestamp_ms: when its producer made it.
        born_host: the producer's address, 8 or 20 bytes.
        store_timestamp_ms: when it was stored.
        store_host: the broker's address, 8 or 20 bytes.
        reconsume_times: how often it was tried.
        prepared_transaction_offset: physical offset of its half message, or 0.
        body: compressed or not, as `sys_flag` says.
        topic: UTF-8.
        properties: encoded.
    """

    size_bytes: int
    queue_id: int
    flag: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: bytes
    properties: bytes


def split_record(record: ReadBuffer) -> RawRecord:
    """Take the record apart that the buffer begins with.

    Raises:
        CorruptRecordError: not a whole, consistent record. Its `phy_offset` is the stored one
            where that could be read, else 0.
    """
    try:
        fixed, values = fixed_part(record, 0)
        (size, magic, _, queue_id, flag, queue_offset, phy_offset, sys_flag, born_ms, born_host,
         stored_ms, store_host, times, prepared, body_bytes) = values  # fmt: skip
        if magic not in _MAGICS:
            raise CorruptRecordError(0, f"magic {magic & 0xFFFFFFFF:#010x} is unknown")
        if not MIN_RECORD_BYTES <= size <= len(record):
            raise CorruptRecordError(phy_offset, f"size {size} is impossible here")
        body_at = fixed.size
        topic = topic_span(record, magic, body_at, body_bytes, size)
        if topic is None:
            raise CorruptRecordError(phy_offset, "lengths do not add up to the record's size")
    except struct.error as error:
        raise CorruptRecordError(0, "record is cut short") from error
    topic_at, topic_end = topic
    return RawRecord(
        size,
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_ms,
        born_host,
        stored_ms,
        store_host,
        times,
        prepared,
        bytes(record[body_at : body_at + body_bytes]),
        bytes(record[topic_at:topic_end]),
        bytes(record[topic_end + 2 : size]),
    )
