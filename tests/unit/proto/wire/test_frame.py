import struct

import pytest

from rocketpy.errors import BadFrameError, BadHeaderError, FrameTooLongError
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.proto.wire.frame import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    CommandReader,
    decode_command,
)


def frame(header: bytes, body: bytes = b"", *, kind: int = 0, length: int | None = None) -> bytes:
    total = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">iI", total, kind << 24 | len(header)) + header + body


@pytest.fixture
def reader() -> CommandReader:
    return CommandReader()


def test_whole_frame_leaves_nothing_behind(reader):
    (command,) = reader.feed(encode_command(make_request(105, {"topic": "T"}, b"body")))
    assert (command.code, command.ext_fields, command.body) == (105, {"topic": "T"}, b"body")
    assert reader.pending_bytes == 0


def test_byte_by_byte(reader):
    data = encode_command(make_request(34, None, b"x" * 50)) * 2
    commands = [command for at in range(len(data)) for command in reader.feed(data[at : at + 1])]
    assert [command.body for command in commands] == [b"x" * 50] * 2


def test_rest_is_kept_until_it_is_whole(reader):
    data = encode_command(make_request(10, None, b"x" * 1000))
    assert reader.feed(data[:500]) == []
    assert reader.pending_bytes == 500
    assert reader.feed(b"") == []
    (command,) = reader.feed(data[500:])
    assert len(command.body) == 1000
    assert reader.pending_bytes == 0


def test_frames_before_a_bad_one_are_returned(reader):
    good = encode_command(make_request(1))
    commands = reader.feed(good + good + frame(b"no json") + good)
    assert len(commands) == 2
    assert isinstance(reader.error, BadHeaderError)
    assert reader.feed(good) == []


@pytest.mark.parametrize("length", [3, 0, -1, -(1 << 31)])
def test_length_that_is_too_small(reader, length):
    assert reader.feed(struct.pack(">i", length)) == []
    assert isinstance(reader.error, BadFrameError)


def test_frame_that_is_too_long_is_refused_before_it_arrives(reader):
    assert reader.feed(struct.pack(">i", MAX_FRAME_BYTES - 4)) == []
    assert reader.error is None
    other = CommandReader()
    other.feed(struct.pack(">iI", MAX_FRAME_BYTES - 3, 0))
    assert isinstance(other.error, FrameTooLongError)
    assert other.error.length_bytes == MAX_FRAME_BYTES + 1
    assert other.pending_bytes == 0


@pytest.mark.parametrize(
    ("data", "guess"),
    [
        (b"GET / HTTP/1.1", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"SSH-2.0-x", "SSH"),
        (b"\x16\x03\x01\0\xc8\x01", "TLS"),
    ],
)
def test_feed_other_protocols_are_named(reader, data, guess):
    assert reader.feed(data + bytes(100)) == []
    assert isinstance(reader.error, FrameTooLongError)
    assert guess in str(reader.error)


def test_limit_can_be_smaller():
    data = encode_command(make_request(1, None, b"x" * 100))
    exact = CommandReader(len(data))
    assert len(exact.feed(data)) == 1
    tight = CommandReader(len(data) - 1)
    assert tight.feed(data) == []
    assert isinstance(tight.error, FrameTooLongError)


def test_header_longer_than_its_frame(reader):
    reader.feed(struct.pack(">iI", 10, 7) + b"123456")
    assert isinstance(reader.error, BadFrameError)


def test_header_over_its_limit(reader):
    reader.feed(frame(b" " * (MAX_HEADER_BYTES + 1)))
    assert isinstance(reader.error, FrameTooLongError)


def test_header_at_its_limit(reader):
    assert len(reader.feed(frame(b'{"code":1}'.ljust(MAX_HEADER_BYTES)))) == 1


@pytest.mark.parametrize("kind", [3, 127, 255])
def test_unknown_serialization(reader, kind):
    reader.feed(frame(b"{}", kind=kind))
    assert isinstance(reader.error, BadFrameError)


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_empty_header(reader, kind):
    reader.feed(frame(b"", kind=kind))
    assert isinstance(reader.error, BadHeaderError)


@pytest.mark.parametrize("data", [b"", b"\0\0", encode_command(make_request(1)) * 2])
def test_decode_command_wants_exactly_one(data):
    with pytest.raises(BadFrameError):
        decode_command(data)


def test_decode_command_raises_what_is_wrong():
    with pytest.raises(BadHeaderError):
        decode_command(frame(b"[]"))


def test_feed_bodies_are_copied(reader):
    data = encode_command(make_request(1, None, b"abc"))
    reader.feed(data[:-1])
    (command,) = reader.feed(data[-1:])
    assert type(command.body) is bytes
    assert isinstance(command, RemotingCommand)
