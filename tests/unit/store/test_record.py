"""What lies at a place of the log, whatever was done to the bytes."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.store.record import (
    BLANK_MAGIC,
    MIN_RECORD_BYTES,
    RecordState,
    is_intact,
    judge,
    store_time_of,
)
from tests.unit.store.store_kit import Kit, message

BODY = b"the body of a message"


def record(**more: object) -> tuple[bytes, int]:
    """Bytes of a second record, and its place."""
    store = Kit().open()
    store.put_message(message(b"first"))
    put = store.put_message(message(BODY, **more))
    view = store.look_message(put.phy_offset)
    assert view is not None
    return bytes(view), put.phy_offset


RECORD, PLACE = record()
ROOM = bytes(64)


def verdict(data: bytes, place: int = PLACE) -> RecordState:
    return judge(memoryview(data + ROOM), 0, place).verdict


def test_a_record_is_told_with_what_queues_need() -> None:
    found = judge(memoryview(RECORD + ROOM), 0, PLACE)
    assert found.verdict is RecordState.RECORD
    assert (found.size_bytes, found.queue_id, found.queue_offset) == (len(RECORD), 0, 1)
    assert found.topic == b"Topic"
    assert found.properties.startswith(b"UNIQ_KEY")
    assert found.store_timestamp_ms == store_time_of(memoryview(RECORD), 0)
    assert is_intact(memoryview(RECORD), PLACE)


def test_ipv6_hosts_move_what_follows() -> None:
    data, place = record(born_host=b"\1" * 16 + b"\0\0\0\5")
    assert verdict(data, place) is RecordState.RECORD
    assert is_intact(memoryview(data), place)
    assert store_time_of(memoryview(data), 0) == store_time_of(memoryview(RECORD), 0)


def test_the_same_bytes_elsewhere_are_not_that_record() -> None:
    assert verdict(RECORD, PLACE + 1) is RecordState.BROKEN
    assert not is_intact(memoryview(RECORD), PLACE + 1)


def test_a_wrong_body_is_damage_unless_nobody_looks() -> None:
    at = RECORD.index(BODY)
    data = RECORD[:at] + b"T" + RECORD[at + 1 :]
    assert verdict(data) is RecordState.DAMAGED
    assert judge(memoryview(data + ROOM), 0, PLACE, check_crc=False).verdict is RecordState.RECORD
    assert not is_intact(memoryview(data), PLACE)


def test_nothing_and_blank() -> None:
    assert judge(memoryview(bytes(100)), 0, 0).verdict is RecordState.EMPTY
    assert judge(memoryview(bytes(7)), 0, 0).verdict is RecordState.EMPTY
    blank = struct.pack(">iI", 50, BLANK_MAGIC) + bytes(42)
    found = judge(memoryview(blank), 0, 0)
    assert (found.verdict, found.size_bytes) == (RecordState.BLANK, 50)


@pytest.mark.parametrize("size", [-1, 0, MIN_RECORD_BYTES - 1, len(RECORD) - 1, 1 << 30])
def test_a_size_that_cannot_be(size: int) -> None:
    data = struct.pack(">i", size) + RECORD[4:]
    assert verdict(data) is RecordState.BROKEN
    assert not is_intact(memoryview(data), PLACE)


@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_one_changed_byte_never_breaks_the_judge(at: int, change: int) -> None:
    data = bytearray(RECORD + ROOM)
    data[at] ^= change
    found = judge(memoryview(data), 0, PLACE)
    assert found.verdict in set(RecordState)
    if found.verdict is RecordState.RECORD:
        assert found.size_bytes == len(RECORD)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_judged(data: bytes) -> None:
    assert judge(memoryview(data), 0, 0).verdict in set(RecordState)
    is_intact(memoryview(data), 0)
