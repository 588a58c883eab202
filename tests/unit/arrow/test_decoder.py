"""`RecordDecoder` gives the rows of the reference, which decodes one record at a time."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.arrow import RecordDecoder, decoder, record_positions, row_schema
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from tests.unit.arrow.kit import EVERYTHING, assert_equal_to_reference, at, placed, record

VECTORS = Path(__file__).parents[2] / "vectors" / "message"
V1_V2 = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")


def apache_records() -> list[bytes]:
    found = [json.loads(path.read_text()) for path in sorted(VECTORS.glob("[0-9]*.json"))]
    records = [bytes.fromhex(each["message_hex"]) for each in found if "message_hex" in each]
    return [each for each in records if each[4:8] in V1_V2]


def test_decode_apache_records_in_one_batch_gives_reference_rows() -> None:
    records = apache_records()
    assert len(records) > 15

    batch = assert_equal_to_reference(b"".join(records))

    assert batch.num_rows == len(records)


@pytest.mark.parametrize(
    ("topic", "more"),
    [
        pytest.param("T" * 200, {}, id="version 2"),
        pytest.param("T", {"born_host": "[fe80::1]:5"}, id="IPv6 born host"),
        pytest.param("T", {"store_host": "[fe80::1]:5"}, id="IPv6 store host"),
        pytest.param("T", {"born_host": "[::1]:5", "store_host": "[::2]:6"}, id="both"),
        pytest.param("T", {"properties": b""}, id="no properties"),
        pytest.param("T", {"properties": b"KEYS\x01a b\x02TAGS\x01T"}, id="last separator missing"),
        pytest.param("T", {"properties": b"KEYS\x01\x02TAGS\x01T\x02"}, id="empty value"),
        pytest.param("T", {"properties": b"\x01v\x02TAGS\x01T\x02"}, id="empty name"),
        pytest.param("T", {"properties": b"name\x02TAGS\x01T\x02"}, id="name only"),
        pytest.param("T", {"properties": b"a\x01b\x01c\x02"}, id="three parts"),
        pytest.param("T", {"properties": b"a\x01b\x02a\x01c\x02"}, id="duplicate name"),
        pytest.param("T", {"properties": "KEYS\x01ключ 鍵\x02".encode()}, id="non-ASCII keys"),
        pytest.param("T", {"properties": b"KEYS\x01\xff\xfe\x02"}, id="keys not UTF-8"),
        pytest.param("T", {"body": b""}, id="empty body"),
        pytest.param("T", {"body": bytes(range(256)) * 400}, id="100 KB body"),
        pytest.param("T", {"born_ms": 1 << 62, "stored_ms": -1}, id="times out of range"),
        pytest.param("T", {"flag": -5, "queue_id": 2**31 - 1}, id="extreme numbers"),
        pytest.param("%DLQ%group", {"properties": b"RETRY_TOPIC\x01T\x02"}, id="dead letter"),
    ],
)
def test_decode_unusual_record_between_common_ones_keeps_order(
    topic: str, more: dict[str, object]
) -> None:
    odd = record(topic=topic, **more)  # type: ignore[arg-type]

    assert_equal_to_reference(odd)
    assert_equal_to_reference(odd + odd)
    batch = assert_equal_to_reference(placed(record(b"1"), odd, record(b"3"), odd, record(b"5")))

    assert batch.column("body").to_pylist()[::2] == [b"1", b"3", b"5"]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_decode_compressed_bodies_inflates_and_keeps_order(codec: CompressionType) -> None:
    packed = deflate(b"long " * 1000, codec)
    odd = record(packed, sys_flag=with_compression(0, codec))

    batch = assert_equal_to_reference(record(b"1") + odd + record(b"3"))

    assert batch.column("body").to_pylist() == [b"1", b"long " * 1000, b"3"]
    assert batch.column("sysFlag").to_pylist()[1] & 1 == 0


def test_decode_unsorted_and_repeated_positions_follows_their_order() -> None:
    data = placed(record(b"1"), record(b"22", topic="T" * 200), record(b"333"))
    first, second, third = record_positions(data)

    batch = RecordDecoder(EVERYTHING).decode(data, at(third, second, first, third), broker_name="b")

    assert batch.column("body").to_pylist() == [b"333", b"22", b"1", b"333"]


def test_decode_without_positions_gives_an_empty_batch() -> None:
    for data in (b"", record()):
        batch = RecordDecoder(EVERYTHING).decode(data, at(), broker_name="b")
        assert batch.num_rows == 0
        assert batch.schema.equals(EVERYTHING.arrow)


def test_decode_message_without_unique_id_gives_its_offset_id() -> None:
    data = record(properties=b"", phy_offset=4711) + record(phy_offset=9)

    ids = assert_equal_to_reference(data).column("msgId").to_pylist()

    assert ids == [decode_message(data).offset_msg_id, "ID"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data, at: data[: at + 40], id="cut short"),
        pytest.param(lambda data, at: data[:at] + bytes(4) + data[at + 4 :], id="size 0"),
        pytest.param(lambda data, at: data[: at + 4] + b"\1\2\3\4" + data[at + 8 :], id="magic"),
        pytest.param(
            lambda data, at: data[: at + 84] + b"\x7f" + data[at + 85 :], id="body length"
        ),
        pytest.param(lambda data, at: data[: at + 84] + b"\xff" + data[at + 85 :], id="negative"),
        pytest.param(
            lambda data, at: data[: at + 92] + b"\x70" + data[at + 93 :], id="topic length"
        ),
        pytest.param(
            lambda data, at: data[: at + 35] + b"\x01" + data[at + 36 :], id="wrong physical offset"
        ),
    ],
)
def test_decode_damaged_record_raises_its_offset_or_skips_it(damage) -> None:
    whole = placed(record(b"1..."), record(b"2..."), record(b"3..."), base=1000)
    positions = record_positions(whole)
    data = damage(whole, int(positions[1]))
    seen: list[CorruptRecordError] = []
    skipping = RecordDecoder(EVERYTHING, damaged="skip", on_damaged=seen.append)

    batch = skipping.decode(data, positions, broker_name="b", base_offset=1000)

    survivors = [b"1..."] if len(data) < len(whole) else [b"1...", b"3..."]
    assert batch.column("body").to_pylist() == survivors
    assert seen[0].phy_offset == 1000 + positions[1]
    assert skipping.damaged_count == len(seen) == 3 - len(survivors)
    with pytest.raises(CorruptRecordError, match=str(1000 + positions[1])):
        RecordDecoder(EVERYTHING).decode(data, positions, broker_name="b", base_offset=1000)


def test_decode_flipped_bit_of_a_body_is_detected_with_check_crc() -> None:
    data = bytearray(placed(record(b"1..."), record(b"2..."), record(b"3...")))
    positions = record_positions(data)
    data[int(positions[1]) + 90] ^= 4

    asked = RecordDecoder(EVERYTHING, check_crc=True, damaged="skip")
    found = asked.decode(data, positions, broker_name="b")
    unasked = RecordDecoder(EVERYTHING).decode(data, positions, broker_name="b")

    assert found.column("body").to_pylist() == [b"1...", b"3..."]
    assert unasked.num_rows == 3


def test_decode_with_tags_keeps_only_their_rows() -> None:
    tagged = [record(bytes([n]), f"TAGS\x01Tag{n % 3}\x02".encode()) for n in range(9)]
    long = record(b"v2", b"TAGS\x01Tag1\x02", topic="T" * 200)
    data = b"".join([*tagged, long, record(b"none", b"")])

    batch = RecordDecoder(row_schema(columns=["body"]), tags=["Tag1"]).decode(
        data, record_positions(data), broker_name="b"
    )

    assert batch.column("body").to_pylist() == [b"\1", b"\4", b"\7", b"v2"]


@pytest.mark.parametrize("style", ["rocketmq", "kafka"])
@pytest.mark.parametrize("value_format", ["binary", "string"])
def test_decode_every_style_and_format_gives_reference_rows(style, value_format) -> None:
    schema = row_schema(
        include=("hosts", "properties", "msgId"), style=style, value_format=value_format
    )
    odd = record(b"\xff text", topic="T" * 200)

    assert_equal_to_reference(record("straße".encode()) + odd + record(b"\xff"), schema)


def test_decode_topic_not_utf8_uses_replacement_characters() -> None:
    data = record(topic="Topic").replace(b"Topic", b"Top\xffc")

    batch = assert_equal_to_reference(data)

    assert batch.column("topic").to_pylist() == ["Top\ufffdc"]


def test_decode_single_column_gives_reference_rows() -> None:
    data = record(b"1") + record(b"2")
    for name in EVERYTHING.names:
        assert_equal_to_reference(data, row_schema(columns=[name]))


def test_decode_keeps_no_reference_to_the_data() -> None:
    data = bytearray(record(b"1"))
    batch = RecordDecoder(EVERYTHING).decode(data, at(0), broker_name="b")

    data.clear()  # fails while a view of it is alive

    assert batch.column("body").to_pylist() == [b"1"]


texts = st.text(st.sampled_from("ab\x01\x02é"), max_size=6).map(str.encode)
pairs = st.lists(
    st.tuples(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "x", "ä"]), st.text("ab é", max_size=4))
)
shaped = pairs.map(
    lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found).encode()
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.one_of(texts, shaped, st.binary(max_size=8)), st.binary(max_size=20)),
        max_size=8,
    ),
    st.booleans(),
)
def test_decode_random_properties_and_bodies_gives_reference_rows(
    parts: list[tuple[bytes, bytes]], with_long: bool
) -> None:
    records = [record(body, properties) for properties, body in parts]
    if with_long:
        records.insert(len(records) // 2, record(topic="T" * 150))

    assert_equal_to_reference(b"".join(records))


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 300))
def test_decode_random_bytes_never_crashes(noise: bytes, position: int) -> None:
    skipping = RecordDecoder(EVERYTHING, damaged="skip")

    batch = skipping.decode(noise, at(position, 0, 10_000), broker_name="b")

    assert batch.num_rows + skipping.damaged_count == 3


@settings(deadline=None)
@given(st.integers(0, 110), st.integers(0, 255))
def test_decode_changed_byte_gives_the_reference_row(index: int, value: int) -> None:
    data = bytearray(record(b"1") + record(b"body of the second") + record(b"3"))
    second = len(record(b"1"))
    data[second + index] = value
    try:
        wanted = decode_message(data, second).body
    except CorruptRecordError:
        wanted = None
    skipping = RecordDecoder(row_schema(columns=["body"]), damaged="skip")

    batch = skipping.decode(data, at(second), broker_name="b")

    assert batch.column("body").to_pylist() == ([] if wanted is None else [wanted])


def test_decode_distant_rows_allocates_only_for_them() -> None:
    """Distant rows must not reserve memory for the bytes between them."""
    data = record(b"1") + bytes(200_000_000) + record(b"2")
    before = pa.total_allocated_bytes()

    batch = RecordDecoder(EVERYTHING).decode(
        data, at(0, len(data) - len(record(b"2"))), broker_name="b"
    )

    assert batch.column("body").to_pylist() == [b"1", b"2"]
    assert pa.total_allocated_bytes() - before < 1_000_000


@pytest.mark.parametrize("codec", list(CompressionType))
def test_batches_end_at_the_limit_of_inflated_bytes(
    codec: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few KB of compressed records may inflate to any number of MB."""
    monkeypatch.setattr(decoder, "INFLATED_BYTES", 200_000)
    packed = deflate(b"long " * 20_000, codec)
    large = record(packed, sys_flag=with_compression(0, codec))
    odd = record(b"odd", b"name\x02TAGS\x01T\x02")
    data = b"".join([record(b"1"), large, odd, record(b"2"), large, odd, large, odd] * 3)
    positions = record_positions(data)
    whole = RecordDecoder(EVERYTHING).decode(data, positions, broker_name="b")

    found = list(RecordDecoder(EVERYTHING).batches(data, positions, broker_name="b"))

    assert (
        pa.Table.from_batches(found)
        .combine_chunks()
        .equals(pa.Table.from_batches([whole]).combine_chunks())
    )
    assert len(found) == 5
    assert max(batch.column("body").nbytes for batch in found) < 250_000
    assert_equal_to_reference(data)


def test_batches_without_body_column_ignore_inflated_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "INFLATED_BYTES", 10)
    packed = deflate(b"long " * 1_000, CompressionType.ZLIB)
    data = record(packed, sys_flag=with_compression(0, CompressionType.ZLIB)) * 3
    keys_only = RecordDecoder(row_schema(columns=["keys"]))

    found = list(keys_only.batches(data, record_positions(data), broker_name="b"))

    assert [batch.num_rows for batch in found] == [3]


def test_batches_without_positions_yields_none() -> None:
    assert not list(RecordDecoder(EVERYTHING).batches(b"", at(), broker_name="b"))
