"""Ids, hashes, checksums and property texts computed by Apache 5.4.0's own classes."""

import json
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from rocketpy.proto.record.message_id import (
    UniqIdGenerator,
    decode_message_id,
    decode_uniq_id,
    encode_message_id,
)
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.record import body_crc
from rocketpy.proto.record.tags import IndexKeyHasher, java_string_hash, tags_code

FILE = Path(__file__).parents[2] / "vectors" / "message" / "ids-hashes.json"
VECTORS = json.loads(FILE.read_bytes())
NOVEMBER_2026_MS = 1_793_491_200_000  # the ids were made on 2026-11-21, in UTC
OCTOBER_2026_MS = 1_790_812_800_000


@pytest.mark.parametrize("vector", VECTORS["uniq_ids"], ids=lambda vector: vector["uniq_id"])
def test_uniq_id(vector):
    parts = decode_uniq_id(vector["uniq_id"])
    assert parts.ip == IPv6Address(vector["ip"]).packed
    assert parts.pid == int(vector["pid_low16_hex"], 16)
    assert parts.process_hash == int(vector["classloader_hash_hex"], 16)
    assert parts.month_ms == int(vector["time_diff_hex"], 16)
    assert parts.counter == int(vector["counter_hex"], 16)
    generator = UniqIdGenerator(
        parts.ip, parts.pid, parts.process_hash, first_counter=parts.counter
    )
    now_ms = NOVEMBER_2026_MS + parts.month_ms
    assert generator.needs_month(now_ms)
    generator.set_month(NOVEMBER_2026_MS, NOVEMBER_2026_MS + 30 * 86_400_000)
    assert not generator.needs_month(now_ms)
    assert generator.next_id(now_ms) == vector["uniq_id"]
    # Java's own helper is a month late when asked within the id's millisecond.
    born_ms = parts.born_ms(now_ms, NOVEMBER_2026_MS, OCTOBER_2026_MS)
    assert vector["nearly_time_ms"] - born_ms in {0, OCTOBER_2026_MS - NOVEMBER_2026_MS}
    assert born_ms == 1_795_252_143_253 + (parts.month_ms - 0x68F5DC95)


@pytest.mark.parametrize("vector", VECTORS["offset_msg_ids"], ids=lambda vector: vector["id"])
def test_offset_id(vector):
    host = f"[{vector['host']}]" if ":" in vector["host"] else vector["host"]
    assert encode_message_id(f"{host}:{vector['port']}", vector["offset"]) == vector["id"]
    assert decode_message_id(vector["id"]) == (f"{host}:{vector['port']}", vector["offset"])


@pytest.mark.parametrize("vector", VECTORS["hashes"], ids=lambda vector: ascii(vector["string"]))
def test_hashes(vector):
    text = vector["string"]
    assert java_string_hash(text) == vector["java_hash_code"]
    assert tags_code(text) == vector["tags_code"]
    topic, separator, key = text.partition("#")
    if separator:
        assert IndexKeyHasher().hash(topic, key) == vector["index_key_hash"]


@pytest.mark.parametrize("vector", VECTORS["crc32"], ids=lambda vector: str(vector["length"]))
def test_crc32(vector):
    head = bytes.fromhex(vector["hex_head"])
    if len(head) < vector["length"]:
        assert set(head) == {0}
        head = bytes(vector["length"])
    assert body_crc(head) == vector["crc32_31bit"]


@pytest.mark.parametrize("vector", VECTORS["properties"], ids=lambda vector: vector["encoded_hex"])
def test_properties(vector):
    encoded = bytes.fromhex(vector["encoded_hex"])
    assert encode_properties(vector["map"]) == encoded
    assert parse_properties(encoded) == vector["decoded_back"]
    assert parse_properties(encoded.decode()) == vector["decoded_back"]
