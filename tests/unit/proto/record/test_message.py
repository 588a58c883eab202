import copy
import dataclasses
import pickle
import struct

import pytest

from rocketpy.errors import BadBodyError, CorruptRecordError
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.message import (
    BatchItem,
    MessageExt,
    bytes_to_host,
    decode_batch,
    decode_message,
    decode_messages,
    encode_batch,
    encode_message,
    host_to_bytes,
    iter_batch,
    split_batch,
)
from rocketpy.proto.record.sys_flag import CompressionType, with_compression

MESSAGE = MessageExt(
    "T", 3, properties={"TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "ID"}, body=b"x" * 50
)


@pytest.mark.parametrize(
    ("host", "stored"),
    [
        ("127.0.0.1:10911", "7f00000100002a9f"),
        ("[::1]:80", "0000000000000000000000000000000100000050"),
        ("fe80::1:80", "fe80000000000000000000000000000100000050"),
    ],
)
def test_hosts(host, stored):
    assert host_to_bytes(host).hex() == stored
    assert host_to_bytes(bytes_to_host(bytes.fromhex(stored))).hex() == stored


def test_zone_is_dropped():
    assert host_to_bytes("[fe80::1%eth0]:1") == host_to_bytes("[fe80::1]:1")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "1.2.3.4",
        "localhost:1",
        "1.2.3.4:",
        "1.2.3.4:x",
        "1.2.3.4:65536",
        "1.2.3.4:-1",
        "[::1]",
        "1.2.3:4",
    ],
)
def test_host_to_bytes_invalid_raises(host):
    with pytest.raises(ValueError, match="is not ip:port"):
        host_to_bytes(host)


def test_views_of_a_message():
    assert MESSAGE.tags == "a"
    assert MESSAGE.keys == ["k1", "k2"]
    assert MESSAGE.msg_id == "ID"
    bare = MessageExt(offset_msg_id="OFF")
    assert (bare.tags, bare.keys, bare.msg_id) == (None, [], "OFF")


@pytest.mark.parametrize("codec", CompressionType)
def test_compressed_bodies(codec):
    stored = MessageExt("T", body=deflate(b"y" * 5000, codec), sys_flag=with_compression(0, codec))
    record = encode_message(stored)
    inflated = decode_message(record)
    assert inflated.body == b"y" * 5000
    assert inflated.sys_flag == codec << 8
    raw = decode_message(record, inflate=False)
    assert (raw.body, raw.sys_flag) == (stored.body, stored.sys_flag)
    with pytest.raises(CorruptRecordError, match="more than 4999"):
        decode_message(record, max_body_bytes=4999)


def test_body_that_does_not_inflate():
    stored = MessageExt(
        "T", phy_offset=77, body=b"nonsense", sys_flag=with_compression(0, CompressionType.ZLIB)
    )
    with pytest.raises(CorruptRecordError, match="physical offset 77: compressed body"):
        decode_message(encode_message(stored))


RECORD = encode_message(MESSAGE)


@pytest.mark.parametrize("size", range(len(RECORD)))
def test_every_cut_is_refused(size):
    with pytest.raises(CorruptRecordError):
        decode_message(RECORD[:size])
    if size:
        with pytest.raises(CorruptRecordError):
            decode_messages(RECORD + RECORD[:size])


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    [
        (0, ">i", 90), (0, ">i", -1), (0, ">i", len(RECORD) - 1), (0, ">i", len(RECORD) + 1),
        (4, ">i", 1),
        (84, ">i", -1), (84, ">i", 1 << 30), (84, ">i", 51), (138, ">b", 127),
        (140, ">h", -1), (140, ">h", 1),
    ],
)  # fmt: skip
def test_lengths_that_do_not_add_up(at, kind, value):
    record = bytearray(RECORD)
    struct.pack_into(kind, record, at, value)
    with pytest.raises(CorruptRecordError):
        decode_message(record)


def test_empty_pull_body():
    assert decode_messages(b"") == []


def test_stored_properties_can_be_kept():
    record = encode_message(MESSAGE, properties=b"a\x01b")
    assert decode_message(record).properties == {"a": "b"}
    assert record.endswith(b"\0\x03a\x01b")


ITEMS = [BatchItem(1, b"one", b"a\x01b\x02"), BatchItem(2, b"", b"")]


def test_batch_layout():
    assert encode_batch(ITEMS[1:]).hex() == "00000016000000000000000000000002000000000000"
    assert decode_batch(encode_batch(ITEMS)) == ITEMS
    assert decode_batch(b"") == []


@pytest.mark.parametrize("size", [n for n in range(1, 51) if n != 29])
def test_every_cut_of_a_batch_is_refused(size):
    assert len(encode_batch(ITEMS)) == 51
    with pytest.raises(BadBodyError):
        decode_batch(encode_batch(ITEMS)[:size])


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0, -1), (0, 21), (16, -1), (16, 99)])
def test_batch_lengths_that_do_not_add_up(at, value):
    body = bytearray(encode_batch(ITEMS))
    struct.pack_into(">i", body, at, value)
    with pytest.raises(BadBodyError):
        decode_batch(bytes(body))


@pytest.mark.parametrize(
    "shapes",
    [[(100, 20)] * 32, [(0, 0)] * 3, [(5, 5)], [(5, 6), (6, 5)], [(5, 5), (5, 5), (5, 6)]],
    ids=["one_shape", "empty", "single", "one_size", "mixed"],
)
def test_batches_of_one_shape_are_taken_apart_as_others_are(shapes):
    items = [
        BatchItem(number, bytes([number]) * body, b"p" * properties)
        for number, (body, properties) in enumerate(shapes)
    ]
    data = encode_batch(items)
    assert list(map(BatchItem._make, iter_batch(data))) == items
    for cut in range(1, len(data), 7):
        try:
            read = list(iter_batch(data[:cut]))
        except BadBodyError:
            continue
        assert read == [tuple(item) for item in items[: len(read)]]
        assert len(encode_batch(items[: len(read)])) == cut


@pytest.mark.parametrize(
    "lengths", [[(4, 3)] * 5, [(4, 3), (3, 4), (4, 3)], [(0, 0)] * 2, [], [(9, 1)]]
)
def test_batch_split_by_columns_holds_what_its_items_are(lengths):
    items = [
        BatchItem(number, bytes([number]) * body, b"p" * properties)
        for number, (body, properties) in enumerate(lengths)
    ]
    data = encode_batch(items)
    assert [BatchItem(*each) for each in zip(*split_batch(data), strict=True)] == items


def test_splitting_refuses_what_reading_one_by_one_refuses():
    data = bytearray(encode_batch([BatchItem(0, b"body", b"prop")] * 3))
    for position in range(len(data)):
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytes(data[:position]) + bytes([value]) + bytes(data[position + 1 :])
            try:
                wanted = list(iter_batch(changed))
            except BadBodyError:
                with pytest.raises(BadBodyError):
                    split_batch(changed)
            else:
                assert list(zip(*split_batch(changed), strict=True)) == wanted
    for end in range(1, len(data)):
        if end % 30:
            with pytest.raises(BadBodyError):
                split_batch(bytes(data[:end]))


def test_message_lazy_fields_are_equal_after_copy_and_pickle() -> None:
    sent = MessageExt(
        topic="t",
        queue_offset=7,
        phy_offset=900,
        body=b"body",
        properties={"a": "b"},
        born_host="1.2.3.4:5",
        reconsume_times=2,
    )
    record = encode_message(sent)
    copied = copy.copy(decode_message(record))
    unpickled = pickle.loads(pickle.dumps(decode_message(record)))
    replaced = dataclasses.replace(decode_message(record), topic="other")
    read = decode_message(record)
    assert read == decode_message(record) == copied == unpickled
    assert (read.properties, read.born_host, read.reconsume_times) == ({"a": "b"}, "1.2.3.4:5", 2)
    assert (replaced.topic, replaced.phy_offset, replaced.offset_msg_id) == (
        "other",
        900,
        read.offset_msg_id,
    )
    read.properties["more"] = "kept"
    assert read.properties["more"] == "kept", "it is read once"
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        read.nonsense  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError):
        sent.nonsense  # type: ignore[attr-defined]  # noqa: B018
