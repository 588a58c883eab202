"""Replication streams: any split gives the same values; garbage raises only ProtocolError."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import ProtocolError
from rocketpy.proto.replication import auto_switch_frames, classic_frames, pair_frames
from rocketpy.proto.replication.auto_switch_frames import MasterHello, SlaveHello
from rocketpy.proto.replication.epochs import MAX_EPOCHS, Epoch, Epochs
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


NUMBERS = st.integers(0, auto_switch_frames.MAX_EPOCH_NUMBER)


@st.composite
def epoch_lists(draw: Any) -> Epochs:
    count = draw(st.integers(1, 12))
    numbers = draw(st.lists(NUMBERS, min_size=count, max_size=count, unique=True))
    starts = draw(st.lists(OFFSETS, min_size=count, max_size=count, unique=True))
    return tuple(map(Epoch, sorted(numbers), sorted(starts)))


@given(epoch_lists(), OFFSETS, st.data())
def test_auto_switch_hello_of_a_master_survives_any_split(
    epochs: Epochs, end: int, data: Any
) -> None:
    hello, rest = MasterHello(end, epochs), data.draw(st.binary(max_size=20))
    stream = auto_switch_frames.encode_master_hello(hello)
    reader = auto_switch_frames.MasterHelloReader()

    found = [reader.feed(piece) for piece in (*split(stream[:-1], data), stream[-1:] + rest)]

    assert found == [None] * (len(found) - 1) + [hello]
    assert reader.rest() == rest


@given(st.integers(1, (1 << 63) - 1), st.booleans(), st.booleans())
def test_auto_switch_hello_of_a_slave_is_decoded_again(
    broker_id: int, is_learner: bool, is_from_last_file: bool
) -> None:
    hello = SlaveHello(broker_id, is_learner, is_from_last_file)
    data = auto_switch_frames.encode_slave_hello(hello)

    assert auto_switch_frames.is_slave_hello(data[:8])
    assert auto_switch_frames.decode_slave_hello(data) == hello


@given(PARTS, OFFSETS, NUMBERS, OFFSETS, st.data())
def test_auto_switch_parts_and_reports_survive_any_split(
    parts: list[tuple[int, bytes]], confirmed: int, number: int, start: int, data: Any
) -> None:
    epoch = Epoch(number, start)
    stream = b"".join(
        auto_switch_frames.encode_part_head(offset, len(part), epoch, confirmed) + part
        for offset, part in parts
    )
    reader = auto_switch_frames.PartFrameReader()

    found = [frame for piece in split(stream, data) for frame in reader.feed(piece)]

    assert found == [(offset, part, epoch, confirmed) for offset, part in parts]
    offsets = [offset for offset, _ in parts]
    stream = b"".join(map(auto_switch_frames.encode_report, offsets))
    reports = auto_switch_frames.ReportReader()
    assert [each for piece in split(stream, data) for each in reports.feed(piece)] == offsets


def test_longest_hello_of_a_master_is_decoded_again() -> None:
    epochs = tuple(Epoch(number, number) for number in range(MAX_EPOCHS))
    hello = MasterHello(MAX_EPOCHS, epochs)
    data = auto_switch_frames.encode_master_hello(hello)

    assert auto_switch_frames.MasterHelloReader().feed(data) == hello


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
        auto_switch_frames.MasterHelloReader().feed,
        auto_switch_frames.ReportReader().feed,
        auto_switch_frames.PartFrameReader().feed,
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
