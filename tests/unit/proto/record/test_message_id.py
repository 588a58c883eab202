import pytest

from rocketpy.proto.record.message import host_to_bytes
from rocketpy.proto.record.message_id import (
    UniqIdGenerator,
    decode_message_id,
    decode_uniq_id,
    encode_message_id,
    offset_id_from_bytes,
)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "0" * 31, "0" * 40])
@pytest.mark.parametrize("decode", [decode_message_id, decode_uniq_id])
def test_decode_invalid_ids_raise(decode, text):
    with pytest.raises(ValueError, match=r".+"):
        decode(text)


def test_ids_from_text_and_bytes_agree():
    host = "10.0.0.1:10911"
    assert encode_message_id(host, 42) == offset_id_from_bytes(host_to_bytes(host), 42)
    assert decode_message_id(encode_message_id(host, 42).lower()) == (host, 42)


def test_counter_runs_and_wraps():
    generator = UniqIdGenerator(b"\x0a\0\0\1", 0x1_0002, 0x1_0000_0003, first_counter=0xFFFF)
    generator.set_month(1000, 9000)
    assert generator.next_id(1005) == "0A00000100020000000300000005FFFF"
    assert generator.next_id(1006) == "0A000001000200000003000000060000"
    assert len(UniqIdGenerator(bytes(16), 1, 1).next_id(0)) == 56


def test_uniq_id_generator_needs_the_next_month():
    generator = UniqIdGenerator(bytes(4), 1, 1)
    assert generator.needs_month(0)
    generator.set_month(1000, 2000)
    assert [generator.needs_month(now) for now in (999, 1000, 1999, 2000)] == [
        True,
        False,
        False,
        True,
    ]


def test_born_takes_the_latest_month_not_in_the_future():
    generator = UniqIdGenerator(bytes(4), 1, 1)
    generator.set_month(10_000, 20_000)
    parts = decode_uniq_id(generator.next_id(15_000))
    assert parts.born_ms(15_000, 10_000, 0) == 15_000
    assert parts.born_ms(21_000, 20_000, 10_000) == 15_000
