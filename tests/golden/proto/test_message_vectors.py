"""Records written by Apache 5.4.0's own store and encoder."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy.proto.record.message import (
    decode_batch,
    decode_message,
    decode_messages,
    encode_batch,
    encode_message,
    host_to_bytes,
)
from rocketpy.proto.record.record import (
    BLANK_MAGIC,
    RecordKind,
    body_crc,
    iter_records,
    pack_blank,
    pack_record,
    record_size,
    record_store_timestamp_ms,
    topic_field,
)
from rocketpy.proto.record.record_check import RecordCheck, RecordState, check_record, is_intact
from rocketpy.proto.record.sys_flag import COMPRESSED
from rocketpy.proto.record.tags import tags_code

FOLDER = Path(__file__).parents[2] / "vectors" / "message"


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_bytes())


def all_records() -> list[Any]:
    params = []
    for path in sorted(FOLDER.glob("[0-9]*.json")):
        vector = load(path.name)
        stored = vector.get("stored") or ([vector] if "message_hex" in vector else [])
        params += [
            pytest.param(bytes.fromhex(item["message_hex"]), item["decoded"], id=f"{path.stem}-{n}")
            for n, item in enumerate(stored)
        ]
    return params


RECORDS = all_records()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def java_host(host: str) -> bytes:
    """Java writes IPv6 without brackets."""
    address, _, port = host.rpartition(":")
    return host_to_bytes(f"[{address}]:{port}" if ":" in address else host)


def check(record: bytes) -> RecordCheck:
    """Check a record at its own offset."""
    phy_offset = decode_message(record, inflate=False).phy_offset
    return check_record(memoryview(record + bytes(8)), 0, phy_offset)


def stored_properties(record: bytes) -> bytes:
    return check(record).properties


def test_all_vectors_are_here():
    assert len(RECORDS) == 26


@pytest.mark.parametrize(("record", "decoded"), RECORDS)
def test_decodes_as_java_does(record, decoded):
    message = decode_message(record, inflate=False, check_crc=True)
    assert message.store_size_bytes == decoded["total_size"] == len(record)
    assert message.body_crc == decoded["body_crc"]
    assert message.queue_id == decoded["queue_id"]
    assert message.flag == decoded["flag"]
    assert message.queue_offset == decoded["queue_offset"]
    assert message.phy_offset == decoded["physical_offset"]
    assert message.sys_flag == decoded["sys_flag"]
    assert message.born_timestamp_ms == decoded["born_timestamp"]
    assert host_to_bytes(message.born_host) == java_host(decoded["born_host"])
    assert message.store_timestamp_ms == decoded["store_timestamp"]
    assert host_to_bytes(message.store_host) == java_host(decoded["store_host"])
    assert message.reconsume_times == decoded["reconsume_times"]
    assert message.prepared_transaction_offset == decoded["prepared_transaction_offset"]
    assert message.topic == decoded["topic"]
    assert message.properties == decoded["properties"]
    assert message.offset_msg_id == decoded["offset_msg_id"]
    assert tags_code(message.tags) == decoded["tags_code"]
    assert message.version == (2 if decoded["magic_hex"] == "daa320ab" else 1)
    assert len(message.body) == decoded["stored_body_length"]
    assert sha256(message.body) == decoded["stored_body_sha256"]


@pytest.mark.parametrize(("record", "decoded"), RECORDS)
def test_inflates_as_java_does(record, decoded):
    message = decode_message(record)
    assert len(message.body) == decoded["body_length"]
    assert sha256(message.body) == decoded["body_sha256"]
    assert message.sys_flag & COMPRESSED == 0


@pytest.mark.parametrize(("record", "decoded"), RECORDS)
def test_pack_record_writes_the_same_bytes(record, decoded):
    message = decode_message(record, inflate=False)
    topic = topic_field(message.topic)
    properties = stored_properties(record)
    size = record_size(len(message.body), len(topic), len(properties), message.sys_flag)
    buffer = bytearray(b"\xee" * (size + 20))
    pack_record(
        buffer,
        10,
        size,
        body_crc(message.body),
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        message.sys_flag,
        message.born_timestamp_ms,
        host_to_bytes(message.born_host),
        message.store_timestamp_ms,
        host_to_bytes(message.store_host),
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        topic,
        properties,
    )
    assert buffer == b"\xee" * 10 + record + b"\xee" * 10


@pytest.mark.parametrize(("record", "decoded"), RECORDS)
def test_encode_message_writes_the_same_bytes(record, decoded):
    message = decode_message(record, inflate=False)
    assert encode_message(message, properties=stored_properties(record)) == record


@pytest.mark.parametrize(("record", "decoded"), RECORDS)
def test_validated_in_place(record, decoded):
    found = check(record)
    assert found.state is RecordState.RECORD
    assert found.size_bytes == len(record)
    assert found.topic.decode() == decoded["topic"]
    assert found.queue_id == decoded["queue_id"]
    assert found.queue_offset == decoded["queue_offset"]
    assert found.sys_flag == decoded["sys_flag"]
    assert found.store_timestamp_ms == decoded["store_timestamp"]
    assert record_store_timestamp_ms(b"\0" * 7 + record, 7) == decoded["store_timestamp"]
    assert is_intact(memoryview(record), decoded["physical_offset"])


def test_batch_body_and_its_records():
    vector = load("17-batch.json")
    body = bytes.fromhex(vector["client_body_hex"])
    items = decode_batch(body)
    assert len(items) == vector["client_items"]
    assert encode_batch(items) == body
    records = b"".join(bytes.fromhex(item["message_hex"]) for item in vector["stored"])
    messages = decode_messages(records)
    assert [message.body for message in messages] == [item.body for item in items]
    assert [message.flag for message in messages] == [item.flag for item in items]
    places = [(at, size) for at, size, _ in iter_records(records, 0, len(records))]
    assert [stored_properties(records[at : at + size]) for at, size in places] == [
        i.properties for i in items
    ]
    ids = vector["append_msg_ids"].split(",")
    assert [message.offset_msg_id for message in messages] == ids


def test_inner_batch_holds_a_batch():
    message = decode_message(bytes.fromhex(load("18-inner-batch.json")["message_hex"]))
    assert len(decode_batch(message.body)) == int(message.properties["INNER_NUM"])


def test_blank_blank():
    vector = load("19-blank-filler.json")
    head = bytes.fromhex(vector["head_hex"])
    buffer = bytearray(8)
    pack_blank(buffer, 0, vector["remaining"])
    assert buffer == head
    assert int.from_bytes(head[4:], "big", signed=True) == BLANK_MAGIC
    assert list(iter_records(head + b"x" * 20, 0, 28)) == [
        (0, vector["remaining"], RecordKind.BLANK)
    ]
