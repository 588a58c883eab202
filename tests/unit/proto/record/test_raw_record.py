"""Splitting a record gives the parts of the decoded message; damage raises."""

import pytest

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import MessageExt, decode_message, encode_message, host_to_bytes
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.record.raw_record import split_record

HOSTS = [("1.2.3.4:5", "6.7.8.9:10"), ("[::1]:5", "6.7.8.9:10"), ("[::1]:5", "[::2]:6")]


def _record(hosts: tuple[str, str] = HOSTS[0], topic: str = "T") -> bytes:
    return encode_message(
        MessageExt(
            topic, 3, 7, 11, 900, 0x301, 1_234, hosts[0], 5_678, hosts[1], 2, 77, b"body",
            {"TAGS": "ä", "UNIQ_KEY": "U"},
        )
    )  # fmt: skip


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("topic", ["T", "t" * 200])
def test_split_record_parts_equal_the_decoded_message(hosts: tuple[str, str], topic: str) -> None:
    record = _record(hosts, topic)
    raw, message = split_record(memoryview(record + b"more")), decode_message(record, inflate=False)
    assert raw.size_bytes == message.store_size_bytes == len(record)
    for name in (
        "queue_id",
        "flag",
        "queue_offset",
        "phy_offset",
        "sys_flag",
        "born_timestamp_ms",
        "store_timestamp_ms",
        "reconsume_times",
        "prepared_transaction_offset",
        "body",
    ):
        assert getattr(raw, name) == getattr(message, name), name
    assert raw.born_host == host_to_bytes(message.born_host)
    assert raw.store_host == host_to_bytes(message.store_host)
    assert raw.topic.decode() == message.topic
    assert parse_properties(raw.properties) == message.properties


def test_split_record_damaged_raises() -> None:
    record = _record()
    for at in range(len(record)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(record)
            damaged[at] ^= change
            try:
                decode_message(bytes(damaged), inflate=False)
            except CorruptRecordError:
                with pytest.raises(CorruptRecordError):
                    split_record(bytes(damaged))
            else:
                split_record(bytes(damaged))
    for end in range(len(record)):
        with pytest.raises(CorruptRecordError):
            split_record(record[:end])
