"""Bodies of one type: JSON outside, checked when they are written and when they are read."""

import enum
import typing
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Required,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses
import pytest
import typing_extensions

import rocketpy
from rocketpy import TypedSerializer
from rocketpy.errors import IllegalMessageError

T = TypeVar("T")


class Kind(enum.Enum):
    NEW = "new"
    OLD = "old"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


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

OrderId = NewType("OrderId", str)


class Address(TypedDict, total=False):
    city: Required[str]
    street: str


class Point(NamedTuple):
    x: int
    y: int = 0


class Struct(msgspec.Struct):
    id: str
    parts: list[Line] = []


class Paid(msgspec.Struct, tag=True):
    amount: int


class Refunded(msgspec.Struct, tag=True):
    amount: int


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class Node:
    name: str
    below: "list[Node]" = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    state: Literal["paid", "open"]
    id: OrderId
    wait: timedelta
    data: bytes
    pair: tuple[int, str]
    row: tuple[int, ...]
    labels: set[str]
    frozen: frozenset[int]
    money: Decimal
    day: date
    at: time
    by_number: dict[int, str]
    by_day: dict[date, Level]
    address: Address
    point: Point
    struct: Struct
    payment: Paid | Refunded
    box: Box[Line]
    short: Annotated[str, msgspec.Meta(max_length=5)]
    anything: Any = None
    final: Final[int] = 3
    whatever: object = "w"


EVERYTHING = Everything(
    state="paid", id=OrderId("o1"), wait=timedelta(days=1, microseconds=5), data=b"\x00\xff",
    pair=(1, "x"), row=(1, 2), labels={"a", "b"}, frozen=frozenset({1}), money=Decimal("9.90"),
    day=date(2026, 1, 2), at=time(1, 2, 3), by_number={5: "five"},
    by_day={date(2026, 1, 2): Level.HIGH}, address={"city": "Bern"}, point=Point(1, 2),
    struct=Struct("s", [Line("a")]), payment=Refunded(3), box=Box(Line("b")), short="short",
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, ORDER),
        (Everything, EVERYTHING),
        (Address, {"city": "Bern", "street": "Gasse"}),
        (Point, Point(1, 2)),
        (Struct, Struct("s")),
        (Paid | Refunded, Refunded(1)),
        (Literal["a", 1], 1),
        (OrderId, "o1"),
        (Box[Decimal], Box(Decimal("1.10"))),
        (Node, Node("a", [Node("b")])),
        (tuple[int, str], (1, "x")),
        (list[tuple[date, Decimal]], [(date(2026, 1, 2), Decimal("0.10"))]),
        (list[str], ['":', 'a":b', "\\"]),
        (dict[str, float], {'":': 1e17}),
        (dict[UUID, timedelta], {ID: timedelta(seconds=1.5)}),
        (Line | None, None),
        (int | str, "x"),
        (float, 2.0),
        (Kind, Kind.OLD),
        (bytes, b"\xff"),
        (type(None), None),
    ],
)
def test_value_of_supported_type_is_read_as_written(kind: Any, value: Any) -> None:
    serializer = TypedSerializer(kind)
    read = serializer.loads(serializer.dumps(value))
    assert read == value
    assert type(read) is type(value)
    assert serializer.loads(rocketpy.json.dumps(value)) == value, "written without its type"


def test_body_with_unknown_fields_and_defaults_is_read() -> None:
    text = (
        b'{"id":"%s","lines":[{"sku":"a"},{"sku":"b","count":2,"unknown":1}],"note":"n",'
        b'"at":"2026-01-02T00:00:00+00:00","price":2.5,"kind":"old","extra":{"x":{"sku":"c"}},'
        b'"total":"1.50","tags":["t"]}' % str(ID).encode()
    )
    assert TypedSerializer(Order).loads(text) == ORDER
    minimal = b'{"id":"%s","lines":[],"at":"2026-01-02T00:00:00Z","price":3}' % str(ID).encode()
    read = TypedSerializer(Order).loads(minimal)
    assert (read.price, type(read.price), read.note, read.kind) == (3.0, float, None, Kind.NEW)


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (Line, b"", "body: input data was truncated"),
        (Line, b"{", "body: input data was truncated"),
        (Line, b"[]", "body: expected `object`, got `array`"),
        (Line, b'{"count":1}', "body: object missing required field `sku`"),
        (Line, b'{"sku":5}', r"body\.sku: expected `str`, got `int`"),
        (Line, b'{"sku":"a","count":"1"}', r"body\.count: expected `int`, got `str`"),
        (Line, b'{"sku":"a","count":true}', r"body\.count: expected `int`, got `bool`"),
        (Line, b'{"sku":"a","count":1.5}', r"body\.count: expected `int`, got `float`"),
        (list[Line], b'[{"sku":"a"},{}]', r"body\[1\]: object missing required field `sku`"),
        (dict[str, int], b'{"a":"b"}', r"body\[\.\.\.\]: expected `int`, got `str`"),
        (Kind, b'"other"', "body: invalid enum value 'other'"),
        (UUID, b'"x"', "body: invalid UUID"),
        (Decimal, b'"x"', "body: invalid decimal string"),
        (datetime, b"5", "body: expected `datetime`, got `int`"),
        (int | None, b'"x"', r"body: expected `int \| null`, got `str`"),
        (tuple[int, str], b"[1]", "body: expected `array` of length 2"),
        (Literal["a"], b'"b"', "body: invalid enum value 'b'"),
    ],
)
def test_body_of_another_type_raises_with_its_path(kind: Any, data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TypedSerializer(kind).loads(data)


def test_deeply_nested_body_raises_value_error() -> None:
    data = b'{"name":"a","below":[' * 100_000
    for kind in (Node, Any, list[Any]):
        with pytest.raises(ValueError, match="nested too deeply"):
            TypedSerializer(kind).loads(data if kind is Node else b"[" * 100_000)


@dataclass
class Base:
    a: int


@dataclass
class Sub(Base):
    b: int = 2


@dataclass
class WithPath:
    files: list[Path]


@dataclass
class Deep:
    boxes: dict[str, WithPath]


@dataclass
class WithUnion:
    item: Base | Sub | None


@dataclass
class WithInit:
    seed: InitVar[int]


@dataclass
class Computed:
    price: int
    total: int = field(init=False)


class Floats(enum.Enum):
    HALF = 0.5


class Plain:
    pass


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Path, "^Path: Path has no form in JSON; use a dataclass"),
        (Plain, "^Plain: Plain has no form in JSON"),
        (WithPath, r"^WithPath\.files: Path has no form in JSON"),
        (Deep, r"^Deep\.boxes\.files: Path has no form in JSON"),
        (Box[complex], "complex has no form in JSON"),
        (tuple[int, Path], r"\[1\]: Path has no form in JSON"),
        (Base | Sub, "a reader could not tell them apart: use one class, or msgspec.Struct"),
        (WithUnion, r"^WithUnion\.item: .*a reader could not tell them apart"),
        (dict[str, int] | Line, "a reader could not tell them apart"),
        (str | datetime, "a reader could not tell them apart"),
        (dict[tuple[int, int], str], "keys of an object are of one type"),
        (dict[int | str, str], "keys of an object are of one type"),
        (dict[Decimal, str], "keys of an object are of one type"),
        (dict[Literal["a", 1], str], "keys of an object are of one type"),
        (WithInit, "^WithInit: .*InitVar"),
        (Computed, r"^Computed\.total: a field with init=False needs a default"),
        (Floats, "^Floats: "),
        (OrderedDict[str, int], "has no form in JSON"),
        (Iterable[int], "has no form in JSON"),
    ],
)
def test_type_that_cannot_be_read_is_refused_when_named(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        TypedSerializer(kind)


def test_type_with_unknown_name_is_refused_when_named() -> None:
    @dataclass
    class Lost:
        item: "Missing"  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="Lost: name 'Missing' is not defined"):
        TypedSerializer(Lost)


def test_value_that_could_not_be_read_is_not_sent() -> None:
    def refused(kind: Any, value: Any, words: str) -> None:
        with pytest.raises(IllegalMessageError, match=words):
            TypedSerializer(kind).dumps(value)

    wrong: Any = "3"
    refused(Line, {"sku": "a"}, "is a dict, not a Line")
    refused(Line, Line("a", wrong), r"body\.count: expected `int`, got `str`")
    refused(list[int], ["x"], r"body\[0\]: expected `int`, got `str`")
    refused(float, float("nan"), "body: expected `float`, got `null`")
    refused(Base, Sub(1, 3), "a Sub would be read as a Base")
    refused(float | None, float("nan"), "body: NaN and infinities have no form in JSON")
    refused(list[Any], [{"a": (float("inf"),)}], r"body\[0\]\['a'\]\[0\]: NaN and infinities")
    refused(list[Base], [Sub(1, 3)], r"body\[0\]: a Sub would be read as a Base")
    refused(Address, {"city": "Bern", "zip": "3000"}, "the key 'zip' is not of its type")
    refused(Any, object(), "a object has no form in JSON")
    assert TypedSerializer(list[int]).dumps([1]) == b"[1]"


class Part(pydantic.BaseModel):
    sku: str
    count: pydantic.PositiveInt = 1
    ordered: datetime | None = None


class Renamed(pydantic.BaseModel):
    price: Decimal = pydantic.Field(alias="Preis")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime


@pydantic.dataclasses.dataclass
class Checked:
    count: pydantic.PositiveInt


@dataclass
class Parcel:
    parts: list[Part]
    weight: Decimal = Decimal(0)
    labels: set[str] = field(default_factory=set)


@dataclass
class Archive:
    parts: list[Part]
    file: Path = Path("a")


@dataclass
class Limited:
    count: pydantic.PositiveInt


class Cash(pydantic.BaseModel):
    type: Literal["cash"] = "cash"
    amount: int = 0


class Card(pydantic.BaseModel):
    type: Literal["card"] = "card"
    amount: int = 0


class Longer(Part):
    price: int


class Optional(Part):
    price: int = 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Part, Part(sku="a", count=2, ordered=datetime(2026, 1, 2, tzinfo=UTC))),
        (Renamed, Renamed(Preis=Decimal("1.10"))),
        (Strict, Strict(at=datetime(2026, 1, 2, tzinfo=UTC))),
        (Checked, Checked(3)),
        (Parcel, Parcel([Part(sku="a")], Decimal("1.50"), {"x"})),
        (Limited, Limited(3)),
        (list[Part], [Part(sku="a"), Part(sku="b", count=3)]),
        (dict[str, Part | None], {"a": Part(sku="a"), "b": None}),
        (Cash | Card, Card(amount=1)),
        (Part | Longer, Longer(sku="a", price=1)),
        (Longer | Part, Part(sku="a")),
        (Annotated[int, pydantic.Field(gt=0)], 3),
    ],
)
def test_pydantic_value_is_read_as_written(kind: Any, value: Any) -> None:
    serializer = TypedSerializer(kind)
    read = serializer.loads(serializer.dumps(value))
    assert read == value
    assert type(read) is type(value)
    assert serializer.loads(rocketpy.json.dumps(value)) == value, "written without its type"


def test_type_that_pydantic_alone_supports_is_read_as_written() -> None:
    serializer = TypedSerializer(Archive)
    archive = Archive([Part(sku="a")], Path("b"))
    assert serializer.loads(serializer.dumps(archive)) == archive


def test_pydantic_constraints_are_checked_in_both_directions() -> None:
    for kind, data in (
        (Part, b'{"sku": "a", "count": 0}'),
        (Limited, b'{"count": 0}'),
        (Checked, b'{"count": 0}'),
        (Annotated[int, pydantic.Field(gt=0)], b"0"),
    ):
        with pytest.raises(ValueError, match="greater than 0"):
            TypedSerializer[Any](kind).loads(data)
    with pytest.raises(IllegalMessageError, match="greater than 0"):
        TypedSerializer(Limited).dumps(Limited(0))
    with pytest.raises(IllegalMessageError, match="is a dict, not a Part"):
        TypedSerializer(Part).dumps({"sku": "a"})
    with pytest.raises(IllegalMessageError, match="a Longer would be read as a Part"):
        TypedSerializer(Part).dumps(Longer(sku="a", price=1))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Part | Optional, "a reader could not tell Part from Optional"),
        (list[Optional | Part], "could not tell Optional from Part; give each a field `type: Lit"),
        (dict[str, Struct | Part], "Struct"),
    ],
)
def test_pydantic_type_that_cannot_be_read_is_refused_when_named(kind: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        TypedSerializer(kind)


def test_json_takes_pydantic_models_and_names_what_it_cannot_hold() -> None:
    assert rocketpy.json.loads(rocketpy.json.dumps({"part": Part(sku="a")})) == {
        "part": {"sku": "a", "count": 1, "ordered": None}
    }
    for wrong in (object(), Part, {"a": complex(1)}, [float("nan")], {(1, 2): 3}, "\ud800"):
        with pytest.raises(IllegalMessageError, match="cannot be written as JSON"):
            rocketpy.json.dumps(wrong)


def test_json_reads_numbers_and_subclasses_as_written() -> None:
    class Name(str):
        __slots__ = ()

    class Count(int):
        pass

    for value in (2**63, 2**64 - 1, -(2**63), 0.1, 1e300, Name("n"), Count(5), [None]):
        assert rocketpy.json.loads(rocketpy.json.dumps(value)) == value
    for value in (2**64 + 1, -(2**70) - 1):
        assert TypedSerializer(int).loads(TypedSerializer(int).dumps(value)) == value
        assert rocketpy.json.loads(rocketpy.json.dumps(value)) == value


def test_bytes_that_are_not_json_raise_value_error() -> None:
    for data in (b"", b"{", b"nul", b"[NaN]", b'"\xff"', b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            rocketpy.json.loads(data)


def test_text_is_utf_8_and_nothing_else() -> None:
    assert rocketpy.text.loads(rocketpy.text.dumps("ä")) == "ä"
    with pytest.raises(ValueError, match="utf-8"):
        rocketpy.text.loads(b"\xff")
    wrong: Any = b"x"
    with pytest.raises(IllegalMessageError, match="not a text"):
        rocketpy.text.dumps(wrong)


class ExtendedOrder(typing_extensions.TypedDict):
    amount: int
    note: typing_extensions.NotRequired[str]


class ExtendedPart(typing_extensions.TypedDict, total=False):
    amount: typing_extensions.Annotated[int, "pieces"]


class ExtendedRow(typing_extensions.NamedTuple):
    amount: int


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ExtendedOrder, {"amount": 1}),
        (ExtendedPart, {}),
        (ExtendedPart, {"amount": 2}),
        (list[ExtendedOrder], [{"amount": 1, "note": "n"}]),
        (ExtendedOrder | None, {"amount": 1}),
        (dict[str, ExtendedPart], {"a": {"amount": 1}}),
        (ExtendedRow, ExtendedRow(1)),
        (typing_extensions.NewType("Number", int), 5),
        (typing_extensions.Literal["a", "b"], "a"),
    ],
    ids=str,
)
def test_types_of_typing_extensions_are_written_and_read(kind: Any, value: Any) -> None:
    serializer = TypedSerializer(kind)
    assert serializer.loads(serializer.dumps(value)) == value
    with pytest.raises(IllegalMessageError):
        serializer.dumps({"amount": "many"})


@pytest.mark.parametrize("kind", [set, frozenset, dict[str, set], list[set[Any]]])  # type: ignore[type-arg]
def test_values_that_a_reader_could_not_put_in_a_set_are_refused(kind: Any) -> None:
    values = {dict[str, set]: {"a": {(1, 2)}}, list[set[Any]]: [{(1, 2)}]}  # type: ignore[type-arg]
    serializer = TypedSerializer(kind)
    with pytest.raises(IllegalMessageError, match="unhashable"):
        serializer.dumps(values.get(kind, {(1, 2)} if kind is set else frozenset({(1, 2)})))
    if kind in {set, frozenset}:
        with pytest.raises(ValueError, match="unhashable"):
            serializer.loads(b"[[1, 2]]")
        with pytest.raises(ValueError, match="unhashable"):
            serializer.convert([[1, 2]])


def test_type_alias_is_read_as_its_type_or_refused_when_named() -> None:
    lines = typing_extensions.TypeAliasType("lines", list[Line])
    paths = typing_extensions.TypeAliasType("paths", list[Path])
    if typing_extensions.TypeAliasType is getattr(typing, "TypeAliasType", None):
        for kind, value in ((lines, [Line("a")]), (dict[str, lines], {"x": [Line("a", 2)]})):
            serializer: TypedSerializer[Any] = TypedSerializer(kind)
            assert serializer.loads(serializer.dumps(value)) == value
    else:  # before Python 3.12: a stand-in that no library reads
        with pytest.raises(TypeError, match="lines"):
            TypedSerializer(lines)
    with pytest.raises(TypeError, match=r"^paths: Path has no form in JSON"):
        TypedSerializer(paths)
