import mmap
import struct

import pytest

from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import decode_message, host_to_bytes
from rocketpy.proto.record.record import (
    MAGIC_V1,
    MAGIC_V2,
    RecordKind,
    body_crc,
    end_of_parts,
    fixed_part,
    iter_records,
    pack_blank,
    pack_record,
    pack_run,
    record_middle,
    record_size,
    record_store_timestamp_ms,
    topic_field,
)
from rocketpy.proto.record.record_check import RecordState, check_record
from rocketpy.proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6

V4 = host_to_bytes("1.2.3.4:5")
V6 = host_to_bytes("[::1]:5")


def pack(buffer, position, topic="T", body=b"body", properties=b"", sys_flag=0, queue_id=1):
    field = topic_field(topic)
    size = record_size(len(body), len(field), len(properties), sys_flag)
    born, stored = V6 if sys_flag & 0x10 else V4, V6 if sys_flag & 0x20 else V4
    pack_record(
        buffer, position, size, body_crc(body), queue_id, 0, 7, position, sys_flag, 1, born, 2,
        stored, 0, 0, body, field, properties,
    )  # fmt: skip
    return size


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_sizes(sys_flag):
    v6_hosts = sys_flag.bit_count()
    assert record_size(0, 1, 0, sys_flag) == 91 + 12 * v6_hosts
    buffer = bytearray(300)
    pack(buffer, 0, sys_flag=sys_flag)
    assert fixed_part(buffer, 0)[0].size == 88 + 12 * v6_hosts


@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize(
    "make", [bytearray, lambda size: mmap.mmap(-1, size), lambda size: memoryview(bytearray(size))]
)
def test_packs_into_any_writable_buffer(make, sys_flag):
    buffer = make(4096)
    size = pack(buffer, 100, sys_flag=sys_flag, properties=b"a\x01b\x02")
    message = decode_message(buffer, 100, check_crc=True)
    assert message.store_size_bytes == size
    assert (message.queue_offset, message.phy_offset, message.store_timestamp_ms) == (7, 100, 2)
    assert record_store_timestamp_ms(buffer, 100) == 2
    assert message.body == b"body"
    assert message.born_host == ("[::1]:5" if sys_flag & 0x10 else "1.2.3.4:5")
    assert message.store_host == ("[::1]:5" if sys_flag & 0x20 else "1.2.3.4:5")
    assert message.properties == {"a": "b"}
    assert bytes(buffer[:100]) == bytes(100)
    assert bytes(buffer[100 + size :]) == bytes(4096 - 100 - size)


@pytest.mark.parametrize(
    ("length", "magic"), [(1, MAGIC_V1), (127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)]
)
def test_long_topics_take_version_two(length, magic):
    buffer = bytearray(1000)
    pack(buffer, 0, topic="t" * length)
    assert struct.unpack_from(">i", buffer, 4)[0] == magic
    assert decode_message(buffer).topic == "t" * length


@pytest.mark.parametrize("sys_flag", [0, 0x30])
@pytest.mark.parametrize("topic", ["T", "T" * 200])
def test_parts_of_a_record_tell_its_end_without_its_size(topic, sys_flag):
    buffer = bytearray(1000)
    end = 7 + pack(buffer, 7, topic, properties=b"a\x01b", sys_flag=sys_flag)
    buffer[7:11] = bytes(4)
    assert end_of_parts(buffer, 7) == end
    assert end_of_parts(buffer[: end - 1], 7) == end
    assert {end_of_parts(buffer[:cut], 7) for cut in range(7, end - 10)} == {0}


def test_topic_field_counts_bytes_and_has_a_limit():
    assert topic_field("é") == b"\x02\xc3\xa9"
    assert topic_field("é" * 64)[:2] == b"\0\x80"
    with pytest.raises(ValueError, match="topic of"):
        topic_field("x" * 32_768)


def test_topic_fields_are_remembered_within_bounds():
    from rocketpy.proto.record import record  # noqa: PLC0415 - looks at its memory

    for n in range(record._TOPIC_FIELDS_LIMIT + 10):
        topic_field(f"bounded-{n}")
    assert len(record._topic_fields) <= record._TOPIC_FIELDS_LIMIT


def test_properties_that_are_too_long_are_refused():
    with pytest.raises(struct.error):
        pack(bytearray(50_000), 0, properties=b"x" * 32_768)


def test_iter_records_stops_at_the_end_of_what_was_written():
    buffer = bytearray(1000)
    first = pack(buffer, 8)
    second = pack(buffer, 8 + first, body=b"")
    assert list(iter_records(buffer, 8, 1000)) == [
        (8, first, RecordKind.MESSAGE),
        (8 + first, second, RecordKind.MESSAGE),
    ]
    assert list(iter_records(buffer, 8, 8 + first + 7)) == [(8, first, RecordKind.MESSAGE)]


def test_iter_records_ends_with_the_blank():
    buffer = bytearray(1000)
    size = pack(buffer, 0)
    pack_blank(buffer, size, 1000 - size)
    assert list(iter_records(buffer, 0, 1000))[-1] == (size, 1000 - size, RecordKind.BLANK)


@pytest.mark.parametrize(
    "head",
    [(5, 12345), (0, MAGIC_V1), (-1, MAGIC_V2), (90, MAGIC_V1), (100_000, MAGIC_V1), (7, 0)],
)
def test_iter_records_names_the_place_of_damage(head):
    buffer = bytearray(300)
    size = pack(buffer, 0)
    struct.pack_into(">ii", buffer, size, *head)
    walk = iter_records(buffer, 0, 300)
    assert next(walk) == (0, size, RecordKind.MESSAGE)
    with pytest.raises(CorruptRecordError) as caught:
        next(walk)
    assert caught.value.phy_offset == size


def test_flipped_bit_fails_the_checksum():
    buffer = bytearray(300)
    pack(buffer, 0)
    buffer[89] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        decode_message(buffer, check_crc=True)
    assert decode_message(buffer).topic == "T"


def test_empty_body_has_no_checksum():
    buffer = bytearray(300)
    pack(buffer, 0, body=b"")
    assert body_crc(b"") == 0
    assert decode_message(buffer, check_crc=True).body == b""


class WriteLog(bytearray):
    """Buffer that records its content after each write, as a kill would leave it."""

    def __init__(self, size):
        super().__init__(size)
        self.states = []

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.states.append(bytes(self))


def states_of_a_run(buffer):
    field, body, properties = topic_field("T"), b"x" * 40, b"K\x01v\x02"
    size = record_size(len(body), len(field), len(properties), 0)
    middle = record_middle(0, 1, V4, 2, V4, 0)
    pack_run(
        buffer, 0, [size] * 3, [body_crc(body)] * 3, [body] * 3, [properties] * 3, [0] * 3,
        1, 0, [0, size, 2 * size], middle, field,
    )  # fmt: skip


@pytest.mark.parametrize("write", [lambda buffer: pack(buffer, 0), states_of_a_run])
def test_record_is_there_only_when_all_of_it_is(write):
    """The size is written last: a process killed during an append leaves no torn record."""
    buffer = WriteLog(1_000)
    write(buffer)
    assert len(buffer.states) > 1
    for state in buffer.states[:-1]:
        assert state[:8] == bytes(8)
        assert check_record(memoryview(state), 0, 0).state is RecordState.EMPTY
    assert check_record(memoryview(buffer.states[-1]), 0, 0).state is RecordState.RECORD


def test_number_that_does_not_fit_writes_nothing():
    buffer = bytearray(300)
    with pytest.raises(struct.error):
        pack(buffer, 0, queue_id=1 << 40)
    assert buffer == bytes(300)


@pytest.mark.parametrize(
    "shapes",
    [[(10, 4)] * 5, [(10, 4), (10, 5), (11, 4)], [(0, 0)] * 3, [(3, 0)], [(9, 5), (8, 6)]],
    ids=["one_shape", "mixed", "empty", "single", "one_size"],
)
@pytest.mark.parametrize("topic", ["Topic", "T" * 200])
@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize("store_host", [V4, V6])
def test_run_is_what_its_records_are_one_by_one(shapes, topic, born_host, store_host):
    records = [
        (number, body_crc(b"b" * body), b"b" * body, bytes([65 + number]) * properties)
        for number, (body, properties) in enumerate(shapes)
    ]
    run, single = bytearray(3_000), bytearray(3_000)
    field = topic_field(topic)
    sys_flag = (
        1 | (BORN_HOST_V6 if born_host is V6 else 0) | (STORE_HOST_V6 if store_host is V6 else 0)
    )
    position, offsets, sizes = 7, [], []
    for number, (flag, crc, body, properties) in enumerate(records):
        size = record_size(len(body), len(field), len(properties), sys_flag)
        pack_record(
            single, position, size, crc, 3, flag, 50 + number, 900 + position - 7, sys_flag, 11,
            born_host, 12, store_host, 2, 0, body, field, properties,
        )  # fmt: skip
        offsets.append(900 + position - 7)
        sizes.append(size)
        position += size
    flags, crcs, bodies, properties = zip(*records, strict=True)
    middle = record_middle(sys_flag, 11, born_host, 12, store_host, 2)
    pack_run(
        run, 7, sizes, crcs, bodies, properties, flags, 3, 50, offsets, middle, field,
    )  # fmt: skip
    assert run == single
