"""Handshake messages and frames of the pair protocol."""

import hmac
import zlib

import msgspec
import pytest

from rocketpy.errors import BadFrameError, FrameTooLongError
from rocketpy.proto.replication.pair_frames import (
    DATA_HEAD_BYTES,
    MAX_HANDSHAKE_BYTES,
    MAX_SAMPLES,
    NONCE_BYTES,
    PREAMBLE,
    REPORT_BYTES,
    TAG_BYTES,
    Accept,
    Challenge,
    Data,
    DataReader,
    DiskState,
    FrameTags,
    HandshakeReader,
    Hello,
    Message,
    Proof,
    Refusal,
    Refuse,
    Report,
    ReportReader,
    encode_body,
    encode_data_head,
    encode_handshake,
    encode_report,
    without_proof,
)

NONCE = bytes(range(NONCE_BYTES))
HELLO = Hello(cluster="c", name="b", id=1, nonce=NONCE, log="", min=0, end=7, file=1024, disk=True)
CHALLENGE = Challenge(nonce=NONCE, log="id", min=0, end=9, file=1024, proof=b"p" * 32)
MESSAGES: list[Message] = [
    HELLO,
    CHALLENGE,
    Proof(proof=b"q" * 32, samples=[(0, 4, 5), (8, 4, (1 << 32) - 1)]),
    Accept(start=7),
    Refuse(code=Refusal.DIFFERENT_LOG, offset=3, text="differs"),
]


def read(data: bytes) -> Message | None:
    reader = HandshakeReader()
    reader.feed(data)
    found = reader.next()
    return None if found is None else found.message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda each: type(each).__name__)
def test_handshake_message_is_read_as_it_was_written(message: Message) -> None:
    assert read(encode_handshake(message)) == message


def test_preamble_is_no_offset_of_a_classic_slave() -> None:
    assert len(PREAMBLE) == 8
    assert int.from_bytes(PREAMBLE, "big", signed=True) < 0


def test_bytes_after_a_message_are_kept_for_the_stream() -> None:
    reader = HandshakeReader()
    reader.feed(encode_handshake(Accept(start=7)) + b"frames")

    assert reader.next() is not None
    assert reader.rest() == b"frames"
    assert reader.rest() == b""


def test_incomplete_message_waits_for_more() -> None:
    data = encode_handshake(HELLO)
    reader = HandshakeReader()
    for byte in data[:-1]:
        reader.feed(bytes([byte]))
        assert reader.next() is None
    reader.feed(data[-1:])
    assert reader.next() == (HELLO, encode_body(HELLO))


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    fields = {**msgspec.to_builtins(HELLO, builtin_types=(bytes,)), "later": [1]}
    body = msgspec.msgpack.encode(fields)

    assert read((len(body) + 1).to_bytes(4, "big") + b"\1" + body) == HELLO


def test_challenge_without_proof_keeps_unknown_fields() -> None:
    body = msgspec.msgpack.encode({"later": 1, "proof": b"x" * 32})

    assert without_proof(body) == msgspec.msgpack.encode({"later": 1, "proof": b""})


@pytest.mark.parametrize(
    "value", [b"\xa2\xff\xfe", b"\xd7\xff" + b"\xff" * 8], ids=["UTF-8", "timestamp"]
)
def test_challenge_with_a_malformed_unknown_field_is_kept_as_it_is(value: bytes) -> None:
    proof = msgspec.msgpack.encode("proof")

    assert without_proof(b"\x82\xa1z" + value + proof + b"\xa1x") == (
        b"\x82\xa1z" + value + proof + b"\xc4\x00"
    )


@pytest.mark.parametrize("body", [b"\x81\xa2\xff\xfe\x01", b"\x81\xd7\xff" + b"\xff" * 9, b"\x82"])
def test_malformed_challenge_without_proof_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrameError):
        without_proof(body)


@pytest.mark.parametrize(("length", "kind"), [(0, 1), (-1, 1), (5, 0), (5, 6), (5, 255)])
def test_impossible_length_or_type_is_refused(length: int, kind: int) -> None:
    with pytest.raises(BadFrameError):
        read(length.to_bytes(4, "big", signed=True) + bytes([kind]))


def test_message_over_the_limit_is_refused_before_it_arrives() -> None:
    with pytest.raises(FrameTooLongError):
        read((MAX_HANDSHAKE_BYTES + 1).to_bytes(4, "big") + b"\1")


def test_flood_before_the_handshake_is_refused() -> None:
    reader = HandshakeReader()
    with pytest.raises(FrameTooLongError):
        reader.feed(bytes(2 * MAX_HANDSHAKE_BYTES + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": b"short"},
        {"id": -1},
        {"end": -1},
        {"end": 1 << 63},
        {"name": 5},
        {"name": "x" * 600},
        {"disk": "yes"},
    ],
    ids=str,
)
def test_wrong_field_is_refused(changes: dict[str, object]) -> None:
    fields = {**msgspec.to_builtins(HELLO, builtin_types=(bytes,)), **changes}
    body = msgspec.msgpack.encode(fields)

    with pytest.raises(BadFrameError, match="Hello cannot be decoded"):
        read((len(body) + 1).to_bytes(4, "big") + b"\1" + body)


def test_too_many_samples_are_refused() -> None:
    proof = Proof(proof=b"", samples=[(0, 1, 2)] * (MAX_SAMPLES + 1))

    with pytest.raises(BadFrameError):
        read(encode_handshake(proof))


def test_deeply_nested_body_is_refused() -> None:
    body = b"\x91" * 50_000
    with pytest.raises(BadFrameError):
        read((len(body) + 1).to_bytes(4, "big") + b"\1" + body)


# -- frames --------------------------------------------------------------------------------------


def data_frame(phy_offset: int, part: bytes, confirmed: int = 0) -> bytes:
    return encode_data_head(phy_offset, part, confirmed) + part


KEY = b"k" * 32
REPORT = Report(7, 5, DiskState.WRITING)


def tagged_stream() -> list[bytes]:
    tags = FrameTags(KEY)
    parts = (5, b"abc"), (8, b""), (8, b"d")
    return [encode_data_head(offset, part, 3, tags) + part for offset, part in parts]


def test_frames_have_their_layout() -> None:
    tags = FrameTags(KEY)
    assert len(encode_data_head(0, b"", 0)) == DATA_HEAD_BYTES
    assert len(encode_data_head(0, b"", 0, tags)) == DATA_HEAD_BYTES + TAG_BYTES
    assert len(encode_report(REPORT)) == REPORT_BYTES
    assert len(encode_report(REPORT, tags)) == REPORT_BYTES + TAG_BYTES


def test_tag_is_a_keyed_hash_of_number_head_and_data() -> None:
    frames = tagged_stream()
    for number, frame in enumerate(frames):
        head, tag, part = frame[:29], frame[29:45], frame[45:]
        wanted = hmac.digest(KEY, number.to_bytes(8, "big") + head + part, "sha256")
        assert tag == wanted[:16]
        assert head[21:25] == bytes(4)  # no CRC-32 of the data


def test_tagged_frames_are_read_in_their_order() -> None:
    reader, tags = ReportReader(FrameTags(KEY)), FrameTags(KEY)

    assert DataReader(FrameTags(KEY)).feed(b"".join(tagged_stream())) == [
        Data(5, 3, b"abc"),
        Data(8, 3, b""),
        Data(8, 3, b"d"),
    ]
    assert reader.feed(encode_report(REPORT, tags) + encode_report(REPORT, tags)) == [REPORT] * 2


@pytest.mark.parametrize("order", [(1,), (0, 2), (0, 0), (0, 1, 1)], ids=str)
def test_tagged_frame_left_out_or_repeated_is_refused(order: tuple[int, ...]) -> None:
    frames = tagged_stream()
    reader = DataReader(FrameTags(KEY))

    with pytest.raises(BadFrameError, match="wrong tag"):
        reader.feed(b"".join(frames[number] for number in order))


@pytest.mark.parametrize("bit", range(8 * (DATA_HEAD_BYTES + TAG_BYTES + 3)))
def test_changed_bit_of_tagged_data_is_refused(bit: int) -> None:
    stream = bytearray(tagged_stream()[0])
    stream[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadFrameError, match=r"wrong (tag|checksum)"):
        DataReader(FrameTags(KEY)).feed(bytes(stream))


def test_frames_with_another_key_or_none_are_refused() -> None:
    other = FrameTags(b"o" * 32)
    for tags in (other, None):
        with pytest.raises(BadFrameError, match="wrong tag"):
            DataReader(FrameTags(KEY)).feed(encode_data_head(5, b"abc", 3, tags) + bytes(19))
        with pytest.raises(BadFrameError, match="wrong tag"):
            ReportReader(FrameTags(KEY)).feed(encode_report(REPORT, tags) + bytes(TAG_BYTES))


def test_data_is_read_with_its_checksum() -> None:
    stream = data_frame(5, b"abc", 3) + data_frame(8, b"", 4)

    assert DataReader().feed(stream) == [Data(5, 3, b"abc"), Data(8, 4, b"")]


@pytest.mark.parametrize("bit", range(8 * (DATA_HEAD_BYTES + 3)))
def test_changed_bit_of_data_is_refused_at_once(bit: int) -> None:
    stream = bytearray(data_frame(5, b"abc", 3))
    stream[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadFrameError, match="wrong checksum"):
        DataReader().feed(bytes(stream))


def test_other_frame_type_is_refused() -> None:
    head = b"\1" + data_frame(5, b"abc")[1:25]
    with pytest.raises(BadFrameError, match="type 1"):
        DataReader().feed(head + zlib.crc32(head).to_bytes(4, "big"))


def test_data_over_the_limit_is_refused() -> None:
    with pytest.raises(FrameTooLongError):
        DataReader(max_part_bytes=2).feed(data_frame(5, b"abc"))


@pytest.mark.parametrize(
    "report",
    [
        b"\x10" + bytes(17),
        b"\x11" + (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\0",
        b"\x11" + (5).to_bytes(8, "big") + (-1).to_bytes(8, "big", signed=True) + b"\0",
        b"\x11" + (5).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\3",
    ],
    ids=["type", "confirmed beyond received", "negative", "state"],
)
def test_impossible_report_is_refused(report: bytes) -> None:
    with pytest.raises(BadFrameError, match="report of type"):
        ReportReader().feed(report + zlib.crc32(report).to_bytes(4, "big"))


@pytest.mark.parametrize("bit", range(8 * REPORT_BYTES))
def test_changed_bit_of_a_report_is_refused(bit: int) -> None:
    report = bytearray(encode_report(Report(7, 5, DiskState.WRITING)))
    report[bit // 8] ^= 1 << bit % 8

    with pytest.raises(BadFrameError, match="checksum"):
        ReportReader().feed(bytes(report))
