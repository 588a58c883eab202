"""Splits a stored record without decoding its text, to store it again.

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
    """Parts of a record, as stored.

    Attributes:
        size_bytes: of the complete record.
        queue_id: queue within the topic.
        flag: the application's flag.
        queue_offset: logical offset in the queue.
        phy_offset: its position in the log.
        sys_flag: system flags.
        born_timestamp_ms: creation time at the producer.
        born_host: the producer's address, 8 or 20 bytes.
        store_timestamp_ms: store time.
        store_host: the broker's address, 8 or 20 bytes.
        reconsume_times: number of redeliveries.
        prepared_transaction_offset: physical offset of its half message, or 0.
        body: compressed if `sys_flag` says so.
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
    """Split the record at the start of a buffer.

    Raises:
        CorruptRecordError: the record is incomplete or inconsistent. Its `phy_offset` is the
            stored one if readable, else 0.
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
