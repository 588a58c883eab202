"""The compiled decoder gives the rows of the reference, and reads nothing outside the data."""

import os
import random

import numpy as np
import pyarrow as pa
import pytest

from rocketpy.arrow import compiled_rows, record_positions
from rocketpy.arrow.compiled_rows import MakeRows
from tests.compiler import compiler
from tests.unit.arrow.decoding_cases import Case, compare, random_case
from tests.unit.arrow.kit import record
from tests.unit.arrow.test_decoder import apache_records

WANTED = os.environ.get("ROCKETPY_PURE") != "1"
EVERYTHING = {"include": ("hosts", "properties", "msgId")}


def make_rows() -> MakeRows:
    found = compiled_rows.compiled_rows()
    if found is None:
        pytest.skip("this installation is pure")
    return found


def test_compiled_rows_is_available_where_a_compiler_is() -> None:
    is_there = compiled_rows.compiled_rows() is not None
    assert is_there or not WANTED or compiler() is None, (
        "there is a C compiler and no compiled module: python -m pip install --no-deps -e ."
    )
    assert WANTED or not is_there


def test_compiled_rows_when_required_and_missing_raises_import_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled_rows, "_MODULE", "rocketpy.arrow._none")
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    monkeypatch.delenv("ROCKETPY_COMPILED", raising=False)

    assert compiled_rows.compiled_rows() is None
    monkeypatch.setenv("ROCKETPY_COMPILED", "1")
    with pytest.raises(ImportError, match="_none"):
        compiled_rows.compiled_rows()


@pytest.mark.parametrize("hundred", range(4))
def test_decoders_of_random_records_give_equal_rows(hundred: int) -> None:
    rows = sum(compare(random_case(hundred * 100 + seed)) for seed in range(100))

    assert rows > 300


def test_decoders_of_apache_records_with_a_changed_byte_give_equal_rows() -> None:
    chance = random.Random(1)
    whole = b"".join(apache_records())
    positions = record_positions(whole)
    for options in ({"damaged": "skip"}, {"damaged": "skip", "check_crc": True}):
        assert compare(Case(whole, positions, None, EVERYTHING, options)) == len(positions)
        for _ in range(50):
            data = bytearray(whole)
            data[chance.randrange(len(data))] = chance.randrange(256)
            compare(Case(bytes(data), positions, None, EVERYTHING, options))


def test_decoders_of_many_properties_give_equal_rows() -> None:
    """There are more pairs than the first allocation holds."""
    shape = "".join(f"name{n}\x01value{n}\x02" for n in range(60)).encode()
    data = record(b"1", shape) * 500 + record(b"2") * 500

    assert compare(Case(data, record_positions(data), None, EVERYTHING, {})) == 1000


def test_body_growing_during_read_is_left_out() -> None:
    """A log may be written meanwhile: the buffers have room for the lengths read at first."""
    data = bytearray(record(b"1" * 10) + record(b"2" * 10))
    places = np.array([0, len(data) // 2], np.int64)
    rows = make_rows()(pa.py_buffer(data), places, None, None, False, False)
    assert rows.body_room == 20
    data[84:88] = (12).to_bytes(4, "big")
    data[100] = 3  # the length of the topic, with the new body length

    rows.read([], pa.allocate_buffer(12), pa.allocate_buffer(20))

    assert rows.count <= 2
    assert rows.body_bytes <= 20


def test_properties_growing_during_read_are_left_out() -> None:
    """Topic and properties are copied to a buffer with room for the lengths read at first."""
    data = bytearray(record(b"1" * 200, b"KEYS\x01a\x02") + record(b"2" * 200, b"KEYS\x01a\x02"))
    places = np.array([0, len(data) // 2], np.int64)
    rows = make_rows()(pa.py_buffer(data), places, None, (b"KEYS",), False, False)
    for at in places.tolist():  # an empty body and topic, and properties in all the rest
        rest = len(data) // 2 - 91
        data[at + 84 : at + 91] = bytes(5) + rest.to_bytes(2, "big")

    rows.read([], None, None)

    assert rows.count == 0
    assert rows.odd() == b"\1\1"


def test_decoders_of_short_texts_give_equal_rows() -> None:
    """Words of eight bytes are read: these texts, with the bytes before them, are shorter."""
    for shape in (b"a\x01b", b"a\x01b\x02", b"a\x01b\x02c\x01d", b""):
        data = record(b"", shape, topic="") + record(b"", shape, topic="t")
        assert compare(Case(data, record_positions(data), None, EVERYTHING, {})) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda rows: rows.read([(16, "int", bytearray(7))], None, None),
        lambda rows: rows.read([(20, "long", bytearray(15))], None, None),
        lambda rows: rows.read([(81, "long", bytearray(16))], None, None),
        lambda rows: rows.read([], bytearray(11), bytearray(20)),
        lambda rows: rows.read([], bytearray(12), bytearray(7)),
        lambda rows: rows.topics(bytearray(11), bytearray(1000)),
        lambda rows: rows.topics(bytearray(12), bytearray(10)),
        lambda rows: rows.values(0, bytearray(0), bytearray(12), bytearray(100), False),
        lambda rows: rows.values(0, bytearray(1), bytearray(12), bytearray(1), False),
        lambda rows: rows.maps(bytearray(8), *[bytearray(1000)] * 4),
        lambda rows: rows.maps(*[bytearray(1000)] * 2, bytearray(9), *[bytearray(1000)] * 2),
        lambda rows: rows.maps(*[bytearray(1000)] * 4, bytearray(9)),
    ],
)
def test_rows_with_a_small_buffer_raises_value_error(call) -> None:
    data = record(b"body") * 2
    places = np.array([0, len(data) // 2], np.int64)
    rows = make_rows()(data, places, None, (b"KEYS",), False, False)
    if "read" not in call.__code__.co_names:
        rows.read([], None, None)

    with pytest.raises(ValueError, match=r"needed|no field"):
        call(rows)


def test_rows_with_invalid_calls_raises() -> None:
    rows = make_rows()(record(), np.array([0], np.int64), None, (b"KEYS",), False, False)
    rows.read([], None, None)

    with pytest.raises(ValueError, match="once"):
        rows.read([], None, None)
    with pytest.raises(IndexError):
        rows.slot_size(1)
    with pytest.raises(ValueError, match="too many"):
        make_rows()(record(), np.array([0], np.int64), None, (b"a", b"b", b"c", b"d"), False, False)
