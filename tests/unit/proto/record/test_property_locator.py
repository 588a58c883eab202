"""Values extracted from many records equal those of a search in each."""

import random
from collections.abc import Sequence

import pytest

from rocketpy.proto.record.message import host_to_bytes
from rocketpy.proto.record.property_locator import SHAPE_BYTES, RecordShape
from rocketpy.proto.record.record import pack_record, properties_of, record_size, topic_field
from tests.sampling import sample

NAMES = (b"a", b"carrier", b"none")
V4, V6 = host_to_bytes("1.2.3.4:5"), host_to_bytes("[::1]:5")


def record(properties: bytes, body: bytes = b"body", topic: str = "T", flags: int = 0) -> bytes:
    field = topic_field(topic)
    size = record_size(len(body), len(field), len(properties), flags)
    buffer = bytearray(size)
    born, stored = V6 if flags & 0x10 else V4, V6 if flags & 0x20 else V4
    pack_record(
        buffer, 0, size, 0, 0, 0, 7, 0, flags, 1, born, 2, stored, 0, 0, body, field, properties
    )
    return bytes(buffer)


def searched(one: bytes, names: Sequence[bytes] = NAMES) -> tuple[bytes, ...]:
    """Return the last value of each property that is not empty."""
    found = dict.fromkeys(names, b"")
    for item in properties_of(one).split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if separator and value and name in found:
            found[name] = value
    return tuple(found.values())


def shape_of(one: bytes, names: Sequence[bytes] = NAMES) -> RecordShape:
    shape = RecordShape.of(memoryview(one), names)
    assert shape is not None
    return shape


def cut(shape: RecordShape, records: Sequence[bytes]) -> list[tuple[bytes, ...] | None]:
    """Extract values from consecutive records with others between them."""
    memory, positions = bytearray(b"before"), []
    for one in records:
        positions.append(len(memory))
        memory += one + b"\x02a\x01between\x02"
    return shape.values(memoryview(memory), positions, [len(one) for one in records])


def test_record_shape_values_of_records_with_different_bodies() -> None:
    records = [
        record(b"UNIQ_KEY\x01%032d\x02a\x01%d\x02carrier\x01UA\x02" % (n, n % 10), b"\x02" * n)
        for n in range(50)
    ]
    found = cut(shape_of(records[3]), records)
    assert found == [(b"%d" % (n % 10), b"UA", b"") for n in range(50)]


@pytest.mark.parametrize(
    "other",
    [
        record(b"a\x0117\x02b\x012\x02"),
        record(b"a\x011\x02c\x012\x02"),
        record(b"b\x011\x02a\x012\x02"),
        record(b"a\x01\x02\x02b\x012\x02"),
        record(b"a\x011\x02b\x01\x02\x02"),
        record(b"a\x011\x02b\x012"),
        record(b"a\x011\x02b\x012\x02", topic="U"),
        record(b"a\x011\x02b\x012\x02", topic="T" * 200),
        record(b"a\x011\x02b\x012\x02", flags=0x10),
        record(b"a\x011\x02b\x012\x02", flags=0x1),
        record(b""),
    ],
)
def test_record_shape_values_of_another_layout_are_none(other: bytes) -> None:
    own = record(b"a\x011\x02b\x012\x02")
    shape = shape_of(own, [b"b"])
    assert cut(shape, [own, other, own]) == [(b"2",), None, (b"2",)]


def test_record_shape_includes_constant_properties_unless_wanted() -> None:
    waits, hurries = record(b"WAIT\x01true_\x02a\x011\x02"), record(b"WAIT\x01false\x02a\x011\x02")
    assert cut(shape_of(waits, [b"a"]), [waits, hurries]) == [(b"1",), None]
    wanted = shape_of(waits, [b"WAIT"])
    assert cut(wanted, [waits, hurries]) == [(b"true_",), (b"false",)]


@pytest.mark.parametrize(
    "stored",
    [
        b"a\x011\x02a\x012\x02",
        b"a\x011\x02a\x01\x02",
        b"aa\x011\x02carriera\x012\x02",
        b"\x02\x02a\x01x\x01y\x02nothing\x02",
        b"a",
        b"",
    ],
)
def test_last_value_that_is_not_empty_counts(stored: bytes) -> None:
    own = record(stored, topic="T" * 130)
    assert cut(shape_of(own), [own]) == [searched(own)]


def test_record_shape_of_unsupported_records_is_none() -> None:
    long = record(b"a\x01" + b"x" * 2_000)
    many = record(b"".join(b"p%d\x011\x02" % number for number in range(30)))
    whole = record(b"a\x011\x02")
    for one in (long, many, record(b"", flags=0x20), whole[:20], whole[:88] + bytes(3), bytes(200)):
        assert RecordShape.of(memoryview(one), NAMES) is None
    assert SHAPE_BYTES >= 2_048


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_record_shape_values_equal_those_of_a_search(seed: int) -> None:
    rng = random.Random(seed)
    values = [b"1", b"2", b"UA", b"", b"x\x01y", b"carrier", b"\x01", b"a\x01"]
    names = [b"a", b"carrier", b"UNIQ_KEY", b"KEYS", b"", b"aa", b"WAIT"]

    def any_record(templates: Sequence[bytes]) -> bytes:
        pairs = [
            template + b"\x01" + rng.choice(values) + rng.choice([b"\x02"] * 9 + [b""])
            for template in templates
        ]
        body = rng.choice([b"", b"\x02a\x011\x02", b"body"])
        return record(b"".join(pairs), body, rng.choice(["T", "T", "TT", "T" * 130]))

    templates = rng.sample(names, rng.randrange(1, 5))
    records = [any_record(templates) for _ in range(200)]
    alike = 0
    for own in records[:20]:
        for one, found in zip(records, cut(shape_of(own), records), strict=True):
            assert found is None or found == searched(one)
            alike += found is not None
        alone = [one for one in records if cut(shape_of(own), [one]) != [None]]
        assert cut(shape_of(own), alone) == [searched(one) for one in alone]
    assert alike >= 20
