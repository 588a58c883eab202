"""Positions of records: groups of one size, other sizes, and damage between them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.arrow import record_positions
from rocketpy.arrow.positions import follow
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.record import MAGIC_V1
from tests.unit.arrow.kit import record

MAGIC = MAGIC_V1.to_bytes(4, "big", signed=True)


def laid(*records: bytes) -> tuple[bytes, list[int]]:
    ends = np.cumsum([len(each) for each in records]).tolist()
    return b"".join(records), [0, *ends[:-1]]


bodies = st.one_of(st.binary(max_size=30), st.sampled_from([b"", b"....." + MAGIC * 3]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 90), bodies), min_size=1, max_size=6))
def test_record_positions_of_groups_of_any_length_finds_each(runs: list[tuple[int, bytes]]) -> None:
    data, starts = laid(*[record(body) for count, body in runs for _ in range(count)])

    assert record_positions(data).tolist() == starts


def test_record_positions_of_a_long_group_of_one_size_finds_each() -> None:
    data, starts = laid(*[record(b"same")] * 9000, record(b"another size"))

    assert record_positions(data).tolist() == starts


def test_record_positions_beyond_one_search_step_finds_each() -> None:
    data, starts = laid(*[record(bytes(1000 + n % 7)) for n in range(2000)])

    assert record_positions(data).tolist() == starts


@pytest.mark.parametrize("count", [1, 40, 5000])
def test_follow_damaged_record_after_a_group_stops_there(count: int) -> None:
    data, starts = laid(*[record(b"x")] * count, bytes(40), *[record(b"x")] * 40)

    positions, stop = follow(np.frombuffer(data, np.uint8), 0, len(data))

    assert positions.tolist() == starts[:count]
    assert stop == starts[count]


def test_follow_record_beginning_before_the_end_is_included() -> None:
    data, starts = laid(*[record(b"x")] * 50)
    raw = np.frombuffer(data, np.uint8)

    positions, stop = follow(raw, 0, starts[44] + 1)

    assert positions.tolist() == starts[:45]
    assert stop == starts[45]


def test_record_positions_invalid_size_raises() -> None:
    data, _ = laid(*[record(b"x")] * 40)
    data += b"\0\0\0\7" + MAGIC + bytes(100)

    with pytest.raises(CorruptRecordError):
        record_positions(data)
