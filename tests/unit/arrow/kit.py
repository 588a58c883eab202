"""Builders of records to decode, and comparison with the rows of the reference."""

import struct
from typing import Any

import numpy as np

from rocketpy.arrow import RecordDecoder, RowSchema, record_positions, row_schema
from rocketpy.arrow.reference_rows import reference_rows
from rocketpy.proto.record.message import decode_message, host_to_bytes
from rocketpy.proto.record.record import body_crc, pack_record, record_size, topic_field
from rocketpy.proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

EVERYTHING = row_schema(include=("hosts", "properties", "msgId"))


def record(
    body: bytes = b"body",
    properties: bytes = b"UNIQ_KEY\x01ID\x02KEYS\x01k\x02TAGS\x01TagA\x02",
    *,
    topic: str = "Topic",
    queue_id: int = 3,
    queue_offset: int = 7,
    phy_offset: int = 0,
    sys_flag: int = 0,
    born_ms: int = 1_700_000_000_123,
    stored_ms: int = 1_700_000_000_456,
    born_host: str = "10.1.2.3:4567",
    store_host: str = "127.0.0.1:10911",
    flag: int = 5,
) -> bytes:
    born, store = host_to_bytes(born_host), host_to_bytes(store_host)
    sys_flag |= BORN_HOST_V6 if len(born) == 20 else 0
    sys_flag |= STORE_HOST_V6 if len(store) == 20 else 0
    field = topic_field(topic)
    size = record_size(len(body), len(field), len(properties), sys_flag)
    buffer = bytearray(size)
    pack_record(
        buffer,
        0,
        size,
        body_crc(body),
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_ms,
        born,
        stored_ms,
        store,
        2,
        0,
        body,
        field,
        properties,
    )
    return bytes(buffer)


def placed(*records: bytes, base: int = 0) -> bytes:
    """Join records; write its physical offset into each."""
    data = bytearray()
    for each in records:
        at = len(data)
        data += each
        struct.pack_into(">q", data, at + 28, base + at)
    return bytes(data)


def expected(data: bytes, positions: Any, schema: RowSchema = EVERYTHING) -> Any:
    messages = [decode_message(data, int(position)) for position in positions]
    return reference_rows(messages, schema, "broker-a")


def assert_equal_to_reference(data: bytes, schema: RowSchema = EVERYTHING) -> Any:
    positions = record_positions(data)
    batch = RecordDecoder(schema).decode(data, positions, broker_name="broker-a")
    batch.validate(full=True)
    assert batch.schema.equals(schema.arrow)
    assert batch.num_rows == len(positions)
    reference = expected(data, positions, schema)
    for name in batch.schema.names:
        assert batch.column(name).to_pylist() == reference.column(name).to_pylist(), name
    return batch


def at(*positions: int) -> Any:
    return np.array(positions, np.int64)
