"""Round trips of fastjson, records, properties, batches and hashes; garbage raises."""

import contextlib
import functools
import json
import zlib
from dataclasses import asdict
from ipaddress import IPv4Address, IPv6Address

from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.errors import BadBodyError, CorruptRecordError, HeaderFieldError
from rocketpy.proto import headers
from rocketpy.proto.bodies.heartbeat import HeartbeatData
from rocketpy.proto.bodies.register import RegisterBrokerBody
from rocketpy.proto.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from rocketpy.proto.headers.base import Header, header_fields
from rocketpy.proto.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import deflate, inflate
from rocketpy.proto.record.message import (
    BatchItem,
    MessageExt,
    decode_batch,
    decode_message,
    decode_messages,
    encode_batch,
    encode_message,
)
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.record import iter_records
from rocketpy.proto.record.sys_flag import CompressionType
from rocketpy.proto.record.tags import IndexKeyHasher, java_string_hash
from rocketpy.proto.wire import fastjson
from rocketpy.runtime.service import run_to_end
from tests.unit.proto.declared import declared

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAME = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=15
)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, I32)
VALUES = st.recursive(
    st.none() | st.booleans() | I64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.dictionaries(QUEUES, inner, max_size=3)
        | st.dictionaries(I64, inner, max_size=3)
    ),
    max_leaves=12,
)


def with_text_keys(value):
    """Return the value as fastjson.loads does: integer keys become text."""
    if isinstance(value, dict):
        return {
            str(key) if isinstance(key, int) else key: with_text_keys(item)
            for key, item in value.items()
        }
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@given(VALUES, st.booleans())
def test_fastjson_round_trip(value, raw_int_keys):
    data = fastjson.dumps(value, raw_int_keys=raw_int_keys)
    assert fastjson.loads(data) == with_text_keys(value)


@given(VALUES)
def test_both_fastjson_readers_agree(value):
    plain = with_text_keys(value)
    try:
        text = json.dumps(plain, indent="\t")
    except TypeError:
        return  # a queue as a key is no JSON
    assert fastjson.loads(text.encode()) == plain
    assert fastjson.loads(b'{{"k":1}:' + text.encode() + b"}") == {'{"k":1}': plain}


@settings(max_examples=400)
@given(
    st.binary(max_size=80)
    | st.text("{}[]:,\"\\0123456789.eE+-truefalsn \t\n'", max_size=60).map(str.encode)
)
def test_fastjson_on_garbage(data):
    try:
        fastjson.loads(data)
    except BadBodyError:
        return


def has_no_second_spelling(address: IPv4Address | IPv6Address) -> bool:
    return (
        isinstance(address, IPv6Address)
        and address.ipv4_mapped is None
        and address.scope_id is None
    )


HOST = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65_535)),
    st.builds(
        "[{}]:{}".format,
        st.ip_addresses(v=6).filter(has_no_second_spelling),
        st.integers(0, 65_535),
    ),
)


@st.composite
def messages(draw):
    return MessageExt(
        draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=200)),
        draw(I32),
        draw(I32),
        draw(I64),
        draw(I64),
        # Host and compression bits follow from the rest.
        draw(I32) & ~0x31,
        draw(I64),
        draw(HOST),
        draw(I64),
        draw(HOST),
        draw(I32),
        draw(I64),
        draw(st.binary(max_size=100)),
        draw(st.dictionaries(NAME, NAME, max_size=5)),
    )


@given(messages())
def test_record_round_trip(message):
    record = encode_message(message)
    decoded = decode_message(record, check_crc=True)
    assert encode_message(decoded) == record
    for name in ("topic", "queue_id", "flag", "queue_offset", "phy_offset", "body", "properties"):
        assert getattr(decoded, name) == getattr(message, name)
    assert (decoded.born_host, decoded.store_host) == (message.born_host, message.store_host)
    assert decoded.sys_flag & ~0x30 == message.sys_flag
    assert decoded.store_timestamp_ms == message.store_timestamp_ms


@given(st.lists(messages(), max_size=4), st.integers(0, 16))
def test_iter_records_finds_every_record(sent, free_bytes):
    records = list(map(encode_message, sent))
    buffer = b"".join(records) + bytes(free_bytes)
    found = [buffer[at : at + size] for at, size, _ in iter_records(buffer, 0, len(buffer))]
    assert found == records
    assert list(map(encode_message, decode_messages(b"".join(records)))) == records


@settings(max_examples=300)
@given(messages(), st.data())
def test_damaged_records_raise_one_error_only(message, data):
    record = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 3))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(record[: data.draw(st.integers(0, len(record)))])
    for damaged in (bytes(record), cut):
        try:
            decode_message(damaged, check_crc=True, max_body_bytes=1 << 20)
        except CorruptRecordError:
            continue


@given(
    st.lists(st.builds(BatchItem, I32, st.binary(max_size=50), st.binary(max_size=50)), max_size=5)
)
def test_batch_round_trip(items):
    assert decode_batch(encode_batch(items)) == items


@given(st.binary(max_size=100))
def test_batch_garbage(data):
    try:
        assert encode_batch(decode_batch(data))[:4] == data[:4]
    except BadBodyError:
        return


@given(st.dictionaries(NAME, NAME, max_size=8))
def test_properties_round_trip(properties):
    stored = encode_properties(properties)
    assert parse_properties(stored) == properties
    assert parse_properties(stored[:-1]) == properties


@given(st.binary(max_size=60))
def test_properties_never_raise(data):
    assert all(name and value for name, value in parse_properties(data).items())


@given(st.text(max_size=600))
def test_java_hash_is_the_polynomial(text):
    units = text.encode("utf-16-le", "surrogatepass")
    value = functools.reduce(
        lambda h, at: (31 * h + int.from_bytes(units[at : at + 2], "little")) & 0xFFFFFFFF,
        range(0, len(units), 2),
        0,
    )
    assert java_string_hash(text) & 0xFFFFFFFF == value


HASHER = IndexKeyHasher()


@given(TEXT, st.text("0123456789ABCDEF", max_size=60) | st.text(max_size=300))
def test_index_hash_is_the_absolute_hash(topic, key):
    value = abs(java_string_hash(f"{topic}#{key}"))
    assert HASHER.hash(topic, key) == HASHER.hash(topic, key) == (0 if value == 1 << 31 else value)


@given(st.binary(max_size=2000), st.sampled_from(CompressionType))
def test_compression_round_trip(body, codec):
    packed = deflate(body, codec)
    assert inflate(packed, codec) == body
    if len(body) > 1:
        try:
            inflate(packed, codec, len(body) - 1)
        except BadBodyError:
            return
        raise AssertionError("the bound was ignored")


@given(st.binary(max_size=200), st.integers(0, 7))
def test_inflating_garbage(body, codec):
    try:
        assert len(inflate(body, codec, 10_000)) <= 10_000
    except BadBodyError:
        return


OPTIONAL_TEXT = st.none() | TEXT
SENDS = st.builds(
    SendMessageRequestHeaderV2,
    producer_group=TEXT,
    topic=TEXT,
    default_topic=TEXT,
    default_topic_queue_nums=I32,
    queue_id=I32,
    sys_flag=I32,
    born_timestamp=I64,
    flag=I32,
    properties=OPTIONAL_TEXT,
    reconsume_times=st.none() | I32,
    unit_mode=st.booleans(),
    batch=st.booleans(),
    max_reconsume_times=st.none() | I32,
    bname=OPTIONAL_TEXT,
)


@given(SENDS)
def test_send_header_round_trips(header):
    assert SendMessageRequestHeaderV2.from_ext(header.to_ext()) == header
    whole = SendMessageRequestHeader(**asdict(header))
    assert SendMessageRequestHeader.from_ext(whole.to_ext()) == whole


ALL_HEADERS = declared(headers, Header)


@settings(max_examples=300)
@given(st.sampled_from(ALL_HEADERS), st.data())
def test_headers_on_any_values(cls, data):
    values = st.sampled_from(
        ["", "0", "-1", "true", "x", "9" * 30, " 1", "1_0", "\uff12", "\u0663", "+5"]
    )
    ext = {
        spec.wire_name: data.draw(values) for spec in header_fields(cls) if data.draw(st.booleans())
    }
    with contextlib.suppress(HeaderFieldError):
        header = cls.from_ext(ext)
        assert cls.from_ext(header.to_ext()) == header


TOPIC_NAME = st.text("abcXYZ_-%|09", min_size=1, max_size=20)
TOPICS = st.builds(
    TopicConfig,
    TOPIC_NAME,
    I32,
    I32,
    I32,
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    attributes=st.dictionaries(TEXT, TEXT, max_size=2),
)


@given(st.lists(TOPICS, max_size=4), st.lists(TEXT, max_size=2))
def test_registration_in_both_forms(topics, servers):
    table = {topic.topic_name: topic for topic in topics}
    wrapper = TopicConfigSerializeWrapper(table, topic_queue_mapping_info_map={})
    body = RegisterBrokerBody(wrapper, servers)
    assert run_to_end(RegisterBrokerBody.read_compressed(body.encode_compressed())) == body
    assert RegisterBrokerBody.decode(body.encode()) == body
    if topics:
        wrapper.topic_queue_mapping_info_map = None
        assert run_to_end(RegisterBrokerBody.read_plain(body.encode())) == body


@settings(max_examples=300)
@given(
    VALUES
    | st.fixed_dictionaries(
        {},
        optional={
            "clientID": VALUES,
            "consumerDataSet": st.lists(VALUES),
            "producerDataSet": VALUES,
        },
    )
)
def test_bodies_of_any_shape(value):
    for cls in (HeartbeatData, RegisterBrokerBody):
        try:
            decoded = cls.decode(fastjson.dumps(value))
        except BadBodyError:
            continue
        assert cls.decode(decoded.encode()) == decoded


@given(st.binary(max_size=100))
def test_compressed_registration_garbage(data):
    for body in (b"\x78" + data, zlib.compress(data)):
        try:
            run_to_end(RegisterBrokerBody.read_compressed(body))
        except BadBodyError:
            continue
