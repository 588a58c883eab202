"""Records of every kind, intact and damaged, decoded by the reference and the compiled decoder."""

import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from rocketpy.arrow import RecordDecoder, row_schema
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from tests.unit.arrow.kit import placed, record

_SHAPES = (
    "UNIQ_KEY\x01{0:032X}\x02KEYS\x01key{0}\x02TAGS\x01Tag{1}\x02CLUSTER\x01DefaultCluster\x02",
    "KEYS\x01key{0}\x02TAGS\x01Tag{1}\x02",
    "TAGS\x01Tag{1}\x02KEYS\x01key{0}\x02",
    "KEYS\x01ключ{0}\x02TAGS\x01Tag{1}\x02a\x01" + "鍵" * 50 + "\x02",
    "TAGS\x01Tag{1}",
    "KEYS\x01a\x00b\x02TAGS\x01Tag{1}\x02" + "n\x01" + "v" * 300 + "\x02",
    "",
    "KEYS\x01\x02TAGS\x01Tag{1}\x02",
    "\x01v\x02TAGS\x01Tag{1}\x02",
    "name\x02TAGS\x01Tag{1}\x02",
    "KEYS\x01a\x02KEYS\x01b\x02",
    "a\x01b\x01c\x02",
    "".join(f"n{n}\x01v\x02" for n in range(70)),
)
_EVERYTHING = ("hosts", "properties", "msgId")


class Case(NamedTuple):
    """Input of one decoding."""

    data: bytes
    positions: Any
    base_offset: int | None
    columns: dict[str, Any]
    options: dict[str, Any]


class Decoded(NamedTuple):
    """Outcome of one decoding: batches, error, and the reported damage."""

    batches: list[Any]
    error: str
    damaged: list[str]


def random_case(seed: int) -> Case:
    """Return consecutive records, mostly of one shape, with some bytes damaged."""
    chance = random.Random(seed)
    shape = chance.choice(_SHAPES)
    records = [_record(chance, number, shape) for number in range(chance.randrange(40))]
    base = chance.choice((0, 0, 1 << 30))
    whole = placed(*records, base=base)
    starts = np.cumsum([0, *map(len, records)])[: len(records)]
    data = bytearray(whole)
    for _ in range(chance.choice((0, 0, 1, 3, 30)) if data else 0):
        data[chance.randrange(len(data))] = chance.choice(
            (0, 1, 2, 0x7F, 0xFF, chance.randrange(256))
        )
    if chance.random() < 0.2:
        del data[chance.randrange(len(data) + 1) :]
    positions = starts.tolist()
    if chance.random() < 0.2:
        positions += [chance.randrange(-9, len(data) + 9) for _ in range(5)]
        chance.shuffle(positions)
    columns: dict[str, Any] = {"include": _EVERYTHING}
    if chance.random() < 0.3:
        names = row_schema(include=_EVERYTHING).names
        columns = {"columns": chance.sample(names, chance.randrange(1, 5))}
    if chance.random() < 0.2:
        columns["value_format"] = "string"
    options = {
        "check_crc": chance.random() < 0.3,
        "damaged": chance.choice(("skip", "skip", "fail")),
        "tags": chance.choice(((), (), ("Tag1", "Tag2"))),
    }
    offset = chance.choice((None, base))
    return Case(bytes(data), np.array(positions, np.int64), offset, columns, options)


def _record(chance: random.Random, number: int, shape: str) -> bytes:
    if chance.random() < 0.1:
        shape = chance.choice(_SHAPES)
    properties = shape.format(number, number % 4).encode()
    body = chance.choice((b"", b"body", bytes(range(256)), b"x" * 64, "ключ".encode(), b"b" * 700))
    more: dict[str, Any] = {"queue_offset": number, "queue_id": number % 3}
    odd = chance.random()
    if odd < 0.03:
        more["topic"] = "T" * 200
    elif odd < 0.06:
        more["born_host"] = "[fe80::1]:5"
    elif odd < 0.09:
        body = deflate(body, CompressionType.LZ4)
        more["sys_flag"] = with_compression(0, CompressionType.LZ4)
    elif odd < 0.12:
        more["born_ms"] = chance.choice((1 << 62, -1, -(1 << 62)))
    elif odd < 0.15:
        more["topic"] = "тема"
    return record(body, properties, **more)


def decoded(case: Case, *, is_pure: bool) -> Decoded:
    """Decode a case with the reference or with the compiled decoder."""
    with pytest.MonkeyPatch.context() as patch:
        if is_pure:
            patch.setenv("ROCKETPY_PURE", "1")
        damaged: list[str] = []
        decoder = RecordDecoder(
            row_schema(**case.columns),
            **case.options,
            on_damaged=lambda error: damaged.append(str(error)),
        )
    batches = []
    error = ""
    try:
        for batch in decoder.batches(
            case.data, case.positions, broker_name="broker-a", base_offset=case.base_offset
        ):
            batch.validate(full=True)
            batches.append(batch)
    except CorruptRecordError as damage:
        error = str(damage)
    return Decoded(batches, error, damaged)


def compare(case: Case) -> int:
    """Decode a case both ways; return the number of rows.

    Raises:
        AssertionError: they differ.
    """
    pure, compiled = decoded(case, is_pure=True), decoded(case, is_pure=False)
    assert compiled.error == pure.error
    assert sorted(compiled.damaged) == sorted(pure.damaged)
    assert len(compiled.batches) == len(pure.batches)
    for ours, reference in zip(compiled.batches, pure.batches, strict=True):
        assert ours.schema.equals(reference.schema)
        for name in reference.schema.names:
            assert ours.column(name).equals(reference.column(name)), name
    return sum(batch.num_rows for batch in pure.batches)
