"""Bodies of one class: JSON outside, checked when they are read."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pydantic
import pytest

import rocketpy
from rocketpy import TypedSerializer
from rocketpy.errors import IllegalMessageError


class Kind(enum.Enum):
    NEW = "new"
    OLD = "old"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: UUID
    lines: list[Line]
    at: datetime
    price: float
    kind: Kind = Kind.NEW
    note: str | None = None
    extra: Mapping[str, Line] = field(default_factory=dict)
    total: Decimal = Decimal(0)
    tags: Sequence[str] = ()
    derived: int = field(default=0, init=False)


ID = UUID("12345678-1234-5678-1234-567812345678")
ORDER = Order(
    ID, [Line("a"), Line("b", 2)], datetime(2026, 1, 2, tzinfo=UTC), 2.5, Kind.OLD, "n",
    {"x": Line("c")}, Decimal("1.50"), ["t"],
)  # fmt: skip


def test_dataclass_is_read_as_it_was_written() -> None:
    serializer = TypedSerializer(Order)
    plain = TypedSerializer(Line)
    assert plain.loads(plain.dumps(Line("a", 3))) == Line("a", 3)
    text = (
        b'{"id":"%s","lines":[{"sku":"a"},{"sku":"b","count":2,"unknown":1}],"note":"n",'
        b'"at":"2026-01-02T00:00:00+00:00","price":2.5,"kind":"old","extra":{"x":{"sku":"c"}},'
        b'"total":"1.50","tags":["t"]}' % str(ID).encode()
    )
    assert serializer.loads(text) == ORDER
    minimal = b'{"id":"%s","lines":[],"at":"2026-01-02","price":3}' % str(ID).encode()
    read = serializer.loads(minimal)
    assert (read.price, type(read.price), read.note, read.kind) == (3.0, float, None, Kind.NEW)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (Line, b"", "unexpected end|empty|zero-length"),
        (Line, b"[]", "the body: .* is not a Line"),
        (Line, b'{"count":1}', "the body.sku is missing"),
        (Line, b'{"sku":5}', r"the body\.sku: '5' is not a str"),
        (Line, b'{"sku":"a","count":true}', r"the body\.count: 'True' is not a int"),
        (Line, b'{"sku":"a","count":1.5}', r"the body\.count"),
        (list[Line], b'[{"sku":"a"},{}]', r"the body\[1\]\.sku is missing"),
        (dict[str, int], b'{"a":"b"}', r"the body\['a'\]"),
        (Kind, b'"other"', "the body: 'other' is not a valid Kind"),
        (UUID, b'"x"', "the body: 'x' is no UUID"),
        (Decimal, b'"x"', "the body: 'x' is no Decimal"),
        (datetime, b"5", "is not a text"),
        (int | None, b'"x"', "is not a int and the body: 'x' is not null"),
    ],
)
def test_value_of_another_type_raises_with_its_path(kind: Any, data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TypedSerializer(kind).loads(data)


def test_body_that_is_nested_without_end_is_refused() -> None:
    @dataclass
    class Tree:
        below: Any = None

    assert TypedSerializer(Tree).loads(b'{"below":{"below":null}}').below == {"below": None}
    nested: Any = list[int]
    for _ in range(101):
        nested = list[nested]
    with pytest.raises(ValueError, match="nested too deeply"):
        TypedSerializer(nested).loads(b"[" * 102 + b"1" + b"]" * 102)


def test_annotation_without_json_form_raises() -> None:
    with pytest.raises(TypeError, match="cannot be made of JSON"):
        TypedSerializer[Any](Literal["a"]).loads(b'"a"')  # type: ignore[arg-type]


def test_value_of_another_class_is_not_sent() -> None:
    with pytest.raises(IllegalMessageError, match="is a dict, not a Line"):
        TypedSerializer(Line).dumps({"sku": "a"})
    assert TypedSerializer(list[int]).dumps([1]) == b"[1]"


def test_model_reads_and_writes_itself() -> None:
    class Model:
        """Has what a pydantic model has."""

        def __init__(self, value: str) -> None:
            self.value = value

        def model_dump_json(self) -> str:
            return f'"{self.value}"'

        @classmethod
        def model_validate_json(cls, data: bytes) -> "Model":
            return cls(data.decode().strip('"'))

    serializer = TypedSerializer(Model)
    assert serializer.dumps(Model("ä")) == '"ä"'.encode()
    assert serializer.loads('"ä"'.encode()).value == "ä"


class Part(pydantic.BaseModel):
    sku: str
    count: pydantic.PositiveInt = 1
    ordered: datetime | None = None


@dataclass
class Parcel:
    parts: list[Part]


def test_pydantic_models_are_read_and_written() -> None:
    part = Part(sku="a", count=2, ordered=datetime(2026, 1, 2, tzinfo=UTC))
    serializer = TypedSerializer(Part)
    assert serializer.loads(serializer.dumps(part)) == part
    with pytest.raises(ValueError, match="greater than 0"):
        serializer.loads(b'{"sku": "a", "count": 0}')
    with pytest.raises(IllegalMessageError, match="is a dict, not a Part"):
        serializer.dumps({"sku": "a"})


def test_pydantic_models_stand_in_lists_and_dataclasses() -> None:
    parts = [Part(sku="a"), Part(sku="b", count=3)]
    data = TypedSerializer(list[Part]).dumps(parts)
    assert TypedSerializer(list[Part]).loads(data) == parts
    parcel = TypedSerializer(Parcel).loads(TypedSerializer(Parcel).dumps(Parcel(parts)))
    assert parcel == Parcel(parts)
    with pytest.raises(ValueError, match=r"the body\.parts\[0\]: 1 validation error for Part\nsku"):
        TypedSerializer(Parcel).loads(b'{"parts": [{}]}')


def test_json_takes_pydantic_models_and_says_what_it_does_not() -> None:
    assert rocketpy.json.loads(rocketpy.json.dumps({"part": Part(sku="a")})) == {
        "part": {"sku": "a", "count": 1, "ordered": None}
    }
    for wrong in (object(), Part):
        with pytest.raises(IllegalMessageError, match="cannot be written as JSON"):
            rocketpy.json.dumps(wrong)


def test_text_is_utf_8_and_nothing_else() -> None:
    assert rocketpy.text.loads(rocketpy.text.dumps("ä")) == "ä"
    with pytest.raises(ValueError, match="utf-8"):
        rocketpy.text.loads(b"\xff")
    wrong: Any = b"x"
    with pytest.raises(IllegalMessageError, match="not a text"):
        rocketpy.text.dumps(wrong)
