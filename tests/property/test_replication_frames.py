"""Replication streams: any split gives the same values; garbage raises only ProtocolError."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import ProtocolError
from rocketpy.proto.replication import classic_frames, pair_frames
from rocketpy.proto.replication.pair_frames import DiskState, FrameTags, Report

KEYS = st.sampled_from([b"", b"k" * 32])
OFFSETS = st.integers(0, (1 << 63) - 1)
PARTS = st.lists(st.tuples(OFFSETS, st.binary(max_size=200)), max_size=6)


@st.composite
def reports(draw: Any) -> Report:
    confirmed, received = sorted((draw(OFFSETS), draw(OFFSETS)))
    return Report(received, confirmed, draw(st.sampled_from(DiskState)))


def split(stream: bytes, data: Any) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(PARTS, st.data())
def test_classic_transfers_survive_any_split(parts: list[tuple[int, bytes]], data: Any) -> None:
    stream = b"".join(
        classic_frames.encode_transfer_head(offset, len(part)) + part for offset, part in parts
    )
    reader = classic_frames.TransferReader()

    found = [part for piece in split(stream, data) for part in reader.feed(piece)]

    assert found == parts


@given(st.lists(OFFSETS, max_size=8), st.data())
def test_classic_reports_survive_any_split(offsets: list[int], data: Any) -> None:
    stream = b"".join(map(classic_frames.encode_report, offsets))
    reader = classic_frames.ReportReader()

    assert [each for piece in split(stream, data) for each in reader.feed(piece)] == offsets


def tags_of(key: bytes) -> FrameTags | None:
    return FrameTags(key) if key else None


@given(PARTS, OFFSETS, KEYS, st.data())
def test_pair_frames_survive_any_split(
    parts: list[tuple[int, bytes]], confirmed: int, key: bytes, data: Any
) -> None:
    tags = tags_of(key)
    stream = b"".join(
        pair_frames.encode_data_head(offset, part, confirmed, tags) + part for offset, part in parts
    )
    reader = pair_frames.DataReader(tags_of(key))

    found = [frame for piece in split(stream, data) for frame in reader.feed(piece)]

    assert [(each.phy_offset, each.data) for each in found] == parts
    assert all(each.confirmed == confirmed for each in found)


@given(st.lists(reports(), max_size=6), KEYS, st.data())
def test_pair_reports_survive_any_split(sent: list[Report], key: bytes, data: Any) -> None:
    tags = tags_of(key)
    stream = b"".join(pair_frames.encode_report(each, tags) for each in sent)
    reader = pair_frames.ReportReader(tags_of(key))

    assert [each for piece in split(stream, data) for each in reader.feed(piece)] == sent


def next_message(data: bytes) -> object:
    reader = pair_frames.HandshakeReader()
    reader.feed(data)
    return reader.next()


@given(st.binary(max_size=300))
def test_garbage_raises_protocol_errors_only(data: bytes) -> None:
    readers: tuple[Callable[[bytes], object], ...] = (
        classic_frames.TransferReader().feed,
        classic_frames.ReportReader().feed,
        pair_frames.DataReader().feed,
        pair_frames.ReportReader().feed,
        pair_frames.DataReader(FrameTags(b"k")).feed,
        pair_frames.ReportReader(FrameTags(b"k")).feed,
        next_message,
    )
    for read in readers:
        try:
            read(data)
        except ProtocolError:
            continue


@given(st.integers(1, 5), st.binary(max_size=200))
def test_garbage_in_handshake_messages_raises_protocol_errors_only(kind: int, body: bytes) -> None:
    reader = pair_frames.HandshakeReader()
    reader.feed((len(body) + 1).to_bytes(4, "big") + bytes([kind]) + body)
    try:
        reader.next()
    except ProtocolError:
        return
