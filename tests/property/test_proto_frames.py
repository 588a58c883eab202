"""Frames: any split of a stream gives the same commands; garbage raises only ProtocolError."""

import json

import msgpack  # type: ignore[import-untyped]  # has no stubs
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.errors import ProtocolError
from rocketpy.proto.wire.binary_header import decode_binary_header
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.proto.wire.frame import CommandReader, decode_command
from rocketpy.proto.wire.json_header import decode_json_header
from rocketpy.proto.wire.msgpack_header import decode_msgpack_header

I32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@st.composite
def commands(draw, serialize_types=(0, 1, 2)):
    serialize_type = draw(st.sampled_from(serialize_types))
    i16 = st.integers(-(1 << 15), (1 << 15) - 1)
    narrow = i16 if serialize_type == 1 else I32
    remark = draw(st.none() | TEXT)
    return RemotingCommand(
        draw(narrow),
        draw(st.integers(0, 13)),
        draw(narrow),
        draw(I32),
        draw(I32),
        # A binary header cannot tell an empty remark from none.
        (remark or None) if serialize_type == 1 else remark,
        draw(st.dictionaries(TEXT, TEXT, max_size=6)),
        draw(st.binary(max_size=60)),
        serialize_type,
    )


@given(commands())
def test_round_trip(command):
    assert decode_command(encode_command(command)) == command


@given(st.lists(commands(), max_size=5), st.data())
def test_any_split_gives_the_same_commands(sent, data):
    stream = b"".join(map(encode_command, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    reader = CommandReader()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[start:end])
    assert received == sent
    assert reader.error is None
    assert reader.pending_bytes == 0


@given(st.lists(commands(), max_size=3), st.binary(min_size=1, max_size=80), st.integers(1, 7))
def test_garbage_after_frames_costs_no_whole_frame(sent, garbage, step):
    stream = b"".join(map(encode_command, sent)) + garbage
    reader = CommandReader(1 << 16)
    received = []
    for start in range(0, len(stream), step):
        received += reader.feed(stream[start : start + step])
    assert received[: len(sent)] == sent
    assert reader.pending_bytes <= len(garbage)


@settings(max_examples=300)
@given(commands(), st.data())
def test_flipped_bytes_raise_protocol_errors_only(command, data):
    frame = bytearray(encode_command(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    reader = CommandReader()
    reader.feed(bytes(frame))
    assert reader.error is None or isinstance(reader.error, ProtocolError)


def only_protocol_errors(decode, data):
    try:
        code, language, version, opaque, flag, remark, ext_fields = decode(data)
    except ProtocolError:
        return
    assert all(type(number) is int for number in (code, language, version, opaque, flag))
    assert remark is None or type(remark) is str
    assert all(type(key) is type(value) is str for key, value in ext_fields.items())


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_header_decoders_on_garbage(data):
    for decode in (decode_json_header, decode_binary_header, decode_msgpack_header):
        only_protocol_errors(decode, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KEYS = ["code", "flag", "language", "opaque", "version", "remark", "extFields", "other"]


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), JSON) | JSON)
def test_json_headers_of_any_shape(value):
    only_protocol_errors(decode_json_header, json.dumps(value).encode())


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(KEYS), JSON) | JSON)
def test_msgpack_headers_of_any_shape(value):
    try:
        data = msgpack.packb(value)
    except OverflowError:
        return
    only_protocol_errors(decode_msgpack_header, data)
