"""Checks of log positions, with intact and damaged bytes."""

import struct
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.proto.record import record_check
from rocketpy.proto.record.record import BLANK_MAGIC, MIN_RECORD_BYTES, record_store_timestamp_ms
from rocketpy.proto.record.record_check import (
    RecordState,
    check_any_record,
    check_record,
    is_intact,
)
from tests.unit.store.store_kit import Kit, message

BODY = b"the body of a message"


def record(**more: Any) -> tuple[bytes, int]:
    """Return the bytes of a second record, and its position."""
    store = Kit().open()
    store.put_message(message(b"first"))
    put = store.put_message(message(BODY, **more))
    view = store.look_message(put.phy_offset)
    assert view is not None
    return bytes(view), put.phy_offset


RECORD, PLACE = record()
ROOM = bytes(64)


def verdict(data: bytes, place: int = PLACE) -> RecordState:
    return check_record(memoryview(data + ROOM), 0, place).state


def test_check_record_returns_the_fields_of_queues() -> None:
    found = check_record(memoryview(RECORD + ROOM), 0, PLACE)
    assert found.state is RecordState.RECORD
    assert (found.size_bytes, found.queue_id, found.queue_offset) == (len(RECORD), 0, 1)
    assert found.topic == b"Topic"
    assert found.properties.startswith(b"UNIQ_KEY")
    assert found.store_timestamp_ms == record_store_timestamp_ms(RECORD, 0)
    assert is_intact(memoryview(RECORD), PLACE)


def test_check_record_with_ipv6_hosts() -> None:
    data, place = record(born_host=b"\1" * 16 + b"\0\0\0\5")
    assert verdict(data, place) is RecordState.RECORD
    assert is_intact(memoryview(data), place)
    assert record_store_timestamp_ms(data, 0) == record_store_timestamp_ms(RECORD, 0)


def test_check_record_at_another_offset_is_broken() -> None:
    assert verdict(RECORD, PLACE + 1) is RecordState.BROKEN
    assert not is_intact(memoryview(RECORD), PLACE + 1)


def test_check_record_wrong_body_is_damaged_with_check_crc() -> None:
    at = RECORD.index(BODY)
    data = RECORD[:at] + b"T" + RECORD[at + 1 :]
    assert verdict(data) is RecordState.DAMAGED
    assert (
        check_record(memoryview(data + ROOM), 0, PLACE, check_crc=False).state is RecordState.RECORD
    )
    assert not is_intact(memoryview(data), PLACE)


def test_check_record_of_empty_and_blank_space() -> None:
    assert check_record(memoryview(bytes(100)), 0, 0).state is RecordState.EMPTY
    assert check_record(memoryview(bytes(7)), 0, 0).state is RecordState.EMPTY
    blank = struct.pack(">ii", 50, BLANK_MAGIC) + bytes(42)
    found = check_record(memoryview(blank), 0, 0)
    assert (found.state, found.size_bytes) == (RecordState.BLANK, 50)


@pytest.mark.parametrize("size", [-1, 0, MIN_RECORD_BYTES - 1, len(RECORD) - 1, 1 << 30])
def test_check_record_invalid_size_is_broken(size: int) -> None:
    data = struct.pack(">i", size) + RECORD[4:]
    assert verdict(data) is RecordState.BROKEN
    assert not is_intact(memoryview(data), PLACE)


def test_lengths_that_do_not_add_up() -> None:
    topic_length_at = RECORD.index(b"\x05Topic")
    data = RECORD[:topic_length_at] + b"\x04" + RECORD[topic_length_at + 1 :]
    assert verdict(data) is RecordState.BROKEN
    assert not is_intact(memoryview(data), PLACE)


@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_one_changed_byte_never_breaks_the_check(at: int, change: int) -> None:
    data = bytearray(RECORD + ROOM)
    data[at] ^= change
    found = check_record(memoryview(data), 0, PLACE)
    assert found.state in set(RecordState)
    if found.state is RecordState.RECORD:
        assert found.size_bytes == len(RECORD)


@given(st.integers(0, len(RECORD) - 1), st.integers(0, 255))
def test_is_intact_agrees_with_check_record(at: int, byte: int) -> None:
    data = bytearray(RECORD)
    data[at] = byte

    with patch.object(record_check, "_is_plain_and_intact", return_value=False):
        closer = is_intact(memoryview(data), PLACE)

    assert is_intact(memoryview(data), PLACE) == closer


@given(st.integers(0, len(RECORD) - 1), st.integers(0, 255), st.booleans(), st.integers(0, 9))
def test_check_record_fast_path_agrees_with_the_general_path(
    at: int, byte: int, check_crc: bool, rest: int
) -> None:
    data = bytearray(RECORD + ROOM[:rest])
    data[at] = byte

    view = memoryview(data)

    for place in (PLACE, PLACE + 1):
        for behind in (0, 8):
            quick = check_record(view, 0, place, check_crc=check_crc, bytes_behind=behind)
            closer = check_any_record(view, 0, place, check_crc=check_crc, bytes_behind=behind)
            assert quick == closer


def test_check_record_uses_the_fast_path() -> None:
    """Without it the start after a crash would be correct, but slower."""
    with patch.object(record_check, "check_any_record", side_effect=AssertionError):
        assert verdict(RECORD) is RecordState.RECORD


@given(st.binary(max_size=200))
def test_check_record_of_any_bytes_never_raises(data: bytes) -> None:
    assert check_record(memoryview(data), 0, 0).state in set(RecordState)
    is_intact(memoryview(data), 0)
