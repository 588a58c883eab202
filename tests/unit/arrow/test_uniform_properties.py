"""Tails as long as each other, cut as one table of bytes, give the rows of the reference."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketpy.arrow import record_positions
from rocketpy.arrow.record_headers import Heads
from rocketpy.arrow.uniform_properties import EvenTails, even_tails
from tests.unit.arrow.kit import assert_equal_to_reference, record

EVEN = tuple(f"KEYS\x01k{n}\x02TAGS\x01Tag{n}\x02".encode() for n in range(5))


def tails_of(data: bytes) -> EvenTails | None:
    heads = Heads(np.frombuffer(data, np.uint8), record_positions(data))
    return even_tails(pa.py_buffer(data), heads)


def records(*properties: bytes, topic: str = "Topic") -> bytes:
    """Records with these properties, and bodies of different lengths."""
    return b"".join(record(b"b" * n, each, topic=topic) for n, each in enumerate(properties))


def test_the_values_of_even_records() -> None:
    found = tails_of(records(*EVEN))

    assert found is not None
    assert found.topic == b"Topic"
    keys, has = found.values_of("KEYS")
    assert keys.to_pylist() == ["k0", "k1", "k2", "k3", "k4"]
    assert has.all()
    assert found.maps().to_pylist()[3] == [("KEYS", "k3"), ("TAGS", "Tag3")]
    found.maps().validate(full=True)


def test_a_property_that_no_record_has() -> None:
    found = tails_of(records(*EVEN))

    assert found is not None
    values, has = found.values_of("WAIT")
    assert values.to_pylist() == [""] * 5
    assert not has.any()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"KEYS\x01k77\x02TAGS\x01Tag7\x02", id="another length"),
        pytest.param(b"KEYS\x01k\x02TAGS\x01Tag77\x02", id="values of other lengths"),
        pytest.param(b"TAGS\x01Tag7\x02KEYS\x01k7\x02", id="another order"),
        pytest.param(b"KEYT\x01k7\x02TAGS\x01Tag7\x02", id="another name"),
        pytest.param(b"KEYS\x01\x017\x02TAGS\x01Tag7\x02", id="a separator of names in a value"),
        pytest.param(b"KEYS\x01\x027\x02TAGS\x01Tag7\x02", id="a separator of pairs in a value"),
        pytest.param(b"KEYS\x01\xc3\xa4\x02TAGS\x01Tag7\x02", id="no ASCII"),
        pytest.param(b"KEYS\x01\xff7\x02TAGS\x01Tag7\x02", id="no UTF-8"),
        pytest.param(b"KEYS\x01k7\x02TAGS\x01Tag7\x03", id="no separator at the end"),
    ],
)
def test_one_record_that_differs_is_seen(other: bytes) -> None:
    data = records(*EVEN, other)

    assert tails_of(data) is None
    assert_equal_to_reference(data)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"a\x01\x02",
        b"\x01v\x02",
        b"a\x02",
        b"a\x01b\x01c\x02",
        b"a\x01b",
        b"a\x01b\x02a\x01c\x02",
        b"\x02",
        b"a\x01b\x02\x02",
    ],
)
def test_records_that_are_all_alike_but_not_regular(properties: bytes) -> None:
    data = records(properties, properties, properties)

    assert tails_of(data) is None
    assert_equal_to_reference(data)


def test_topics_of_one_length_are_not_taken_for_one() -> None:
    data = records(EVEN[0], topic="Tea") + records(EVEN[1], topic="Pea")

    assert tails_of(data) is None
    assert assert_equal_to_reference(data).column("topic").to_pylist() == ["Tea", "Pea"]


def test_a_topic_that_is_no_ascii() -> None:
    assert_equal_to_reference(records(*EVEN, topic="é"))


def test_no_record() -> None:
    assert tails_of(b"") is None


values = st.text("ab\x03 ~", min_size=1, max_size=3)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "x", "y"]), min_size=1, unique=True),
    st.lists(values, min_size=5, max_size=5),
    st.integers(1, 4),
    st.tuples(st.integers(0, 400), st.integers(0, 255)),
)
def test_even_records_one_of_whose_bytes_changed(
    names: list[str], found: list[str], count: int, change: tuple[int, int]
) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in zip(names, found, strict=False))
    whole = [record(bytes([n]), text.encode()) for n in range(count)]
    assert tails_of(b"".join(whole)) is not None
    assert_equal_to_reference(b"".join(whole))

    at, byte = change
    properties = bytearray(text.encode())
    properties[at % len(properties)] = byte
    whole.append(record(b"changed", bytes(properties)))
    assert_equal_to_reference(b"".join(whole))
