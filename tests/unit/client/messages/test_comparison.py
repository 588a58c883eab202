"""Bodies that a reader would not get as they were written: refused, with the field."""

import enum
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic
import pydantic.dataclasses
import pytest

import rocketpy
from rocketpy import TypedSerializer
from rocketpy.client.messages.comparison import difference
from rocketpy.client.messages.serializers import json_or_text
from rocketpy.errors import IllegalMessageError

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")
LOCAL_MEAN = datetime(1890, 7, 1, tzinfo=BERLIN)  # 53 minutes and 28 seconds before UTC
ID = UUID("12345678-1234-5678-1234-567812345678")


class Color(enum.StrEnum):
    RED = "red"


class Login(pydantic.BaseModel):
    name: str = "n"
    password: pydantic.SecretStr


class Reading(pydantic.BaseModel):
    value: float | None = None


class Cat(pydantic.BaseModel):
    age: int


class Dog(pydantic.BaseModel):
    age: int


class Kitten(Cat):
    weeks: int = 0


class Kept(pydantic.BaseModel):
    pet: Cat | Dog


class Home(pydantic.BaseModel):
    cat: Cat
    cats: list[Cat] = []


class Priced(pydantic.BaseModel):
    price: str | Decimal


class Dated(pydantic.BaseModel):
    at: datetime | str


class Named(pydantic.BaseModel):
    id: UUID | str


class Row(pydantic.BaseModel):
    items: list[int] | set[int] | tuple[int, ...]


class Series(pydantic.BaseModel):
    items: Sequence[int] = ()


class TwoNames(pydantic.BaseModel):
    amount: int = pydantic.Field(1, validation_alias="in", serialization_alias="out")


class Hidden(pydantic.BaseModel):
    amount: int = pydantic.Field(1, exclude=True)


class Needed(pydantic.BaseModel):
    amount: int = pydantic.Field(exclude=True)


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int = 1


class Instant(pydantic.BaseModel):
    at: datetime


@pydantic.dataclasses.dataclass
class Checked:
    value: float | None = None


class Raw(pydantic.BaseModel):
    data: bytes


class Encoded(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Total(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    amount: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.amount * 2


class Inner(pydantic.BaseModel):
    items: pydantic.Json[list[int]]
    others: list[pydantic.Json[int]] = []


@dataclass
class Mixed:
    cat: Cat
    price: str | Decimal = "1"
    value: float | None = None


@dataclass
class Holder:
    total: Total
    inner: Inner


@dataclass
class Measured:
    value: float = 0
    at: datetime | None = None
    anything: Any = None


@dataclass
class Uncompared:
    value: float = field(default=0, compare=False)


@dataclass(eq=False)
class Identity:
    at: datetime


class Extras(TypedDict):
    values: dict[str, Any]


@dataclass
class Doubling:
    a: int

    def __post_init__(self) -> None:
        self.a *= 2


def refuse(kind: Any, value: Any, words: str) -> None:
    with pytest.raises(IllegalMessageError, match=words):
        TypedSerializer(kind).dumps(value)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Login, Login(password=pydantic.SecretStr("hunter2")), r"body\.password: this SecretStr"),
        (Reading, Reading(value=math.nan), r"body\.value: NaN and infinities have no form"),
        (Reading, Reading(value=-math.inf), r"body\.value: NaN and infinities have no form"),
        (Checked, Checked(math.nan), r"body\.value: NaN and infinities have no form"),
        (Mixed, Mixed(Cat(age=1), value=math.nan), r"body\.value: NaN and infinities"),
        (Mixed, Mixed(Cat(age=1), Decimal("1.5")), r"body\.price: a Decimal would be read as a s"),
        (Mixed, Mixed(Kitten(age=1)), r"body\.cat: a Kitten would be read as a Cat"),
        (Kept, Kept(pet=Dog(age=1)), r"body\.pet: a Dog would be read as a Cat"),
        (Home, Home(cat=Kitten(age=1)), r"body\.cat: a Kitten would be read as a Cat"),
        (Home, Home(cat=Cat(age=1), cats=[Kitten(age=1)]), r"body\.cats\[0\]: a Kitten would be"),
        (list[Cat], [Cat(age=1), Kitten(age=1)], r"body\[1\]: a Kitten would be read as a Cat"),
        (dict[str, Cat], {"a": Kitten(age=1)}, r"body\['a'\]: a Kitten would be read as a Cat"),
        (Priced, Priced(price=Decimal("1.50")), r"body\.price: a Decimal would be read as a str"),
        (Dated, Dated(at="2026-01-01T00:00:00"), r"body\.at: a str would be read as a datetime"),
        (Named, Named(id=str(ID)), r"body\.id: a str would be read as a UUID"),
        (Row, Row(items={1}), r"body\.items: a set would be read as a list"),
        (Row, Row(items=(1,)), r"body\.items: a tuple would be read as a list"),
        (TwoNames, TwoNames(**{"in": 5}), r"body\.amount: this int would be read as another"),
        (Hidden, Hidden(amount=5), r"body\.amount: this int would be read as another value"),
        (
            Open,
            Open.model_validate({"q": date(2026, 1, 1)}),
            r"body\['q'\]: a date would be read as a str",
        ),
        (Instant, Instant(at=LOCAL_MEAN), r"body\.at: its offset from UTC cannot be written"),
        (Raw, Raw(data=b"\xff"), "invalid utf-8"),
    ],
)
def test_pydantic_value_that_would_be_changed_is_not_sent(
    kind: Any, value: Any, words: str
) -> None:
    refuse(kind, value, words)


def test_error_about_secret_does_not_contain_it() -> None:
    value = Login(password=pydantic.SecretStr("hunter2"))
    for serializer in (TypedSerializer(Login), rocketpy.json):
        with pytest.raises(IllegalMessageError) as raised:
            serializer.dumps(value)
        assert "hunter2" not in str(raised.value)


def test_json_without_type_refuses_secrets_of_pydantic() -> None:
    value = Login(password=pydantic.SecretStr("hunter2"))
    for serializer in (rocketpy.json, json_or_text):
        for body in (value, [value], {"a": value}):
            with pytest.raises(IllegalMessageError, match="a SecretStr is written as asterisks"):
                serializer.dumps(body)
    assert rocketpy.json.dumps(Priced(price="**********")) == b'{"price":"**********"}'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Hidden(amount=5), r"body\.amount: this int would be read as another value"),
        (TwoNames.model_validate({"in": 5}), r"body\.amount: this int would be read as another"),
        (Home(cat=Kitten(age=1, weeks=2)), r"Expected `Cat` but got `Kitten`|a Kitten would be"),
        (Reading(value=float("nan")), r"body\.value: NaN and infinities"),
        (Instant(at=LOCAL_MEAN), r"body\.at: its offset from UTC"),
        (Needed(amount=5), r"a reader of Needed would not get it: body\.amount: Field required"),
    ],
)
def test_json_without_type_refuses_pydantic_values_that_their_class_reads_otherwise(
    value: Any, words: str
) -> None:
    for serializer in (rocketpy.json, json_or_text):
        for body in (value, [value], {"a": {"b": value}}):
            with pytest.raises(IllegalMessageError, match=words):
                serializer.dumps(body)


@pytest.mark.parametrize(
    "value",
    [
        Hidden(amount=1),
        TwoNames.model_validate({}),
        Total(amount=1),
        Inner.model_validate({"items": "[1,2]", "others": ["3"]}),
        Series(items=(1, 2)),
    ],
)
def test_json_without_type_writes_what_the_class_of_a_pydantic_value_reads(value: Any) -> None:
    data = json_or_text.dumps(value)
    assert TypedSerializer(type(value)).dumps(value) == data
    assert rocketpy.json.loads(rocketpy.json.dumps([value])) == [rocketpy.json.loads(data)]


def test_json_without_type_writes_pydantic_dataclasses_with_their_aliases() -> None:
    @pydantic.dataclasses.dataclass
    class Aliased:
        price: int = pydantic.Field(alias="Preis")

    value = TypedSerializer(Aliased).loads(b'{"Preis":5}')
    data = json_or_text.dumps(value)
    assert data == b'{"Preis":5}'
    assert TypedSerializer(Aliased).loads(data) == value


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Measured, Measured(2**53 + 1), r"body\.value: a float cannot hold this int"),
        (Uncompared, Uncompared(2**53 + 1), r"body\.value: a float cannot hold this int"),
        (list[float], [1, 2**63 + 1], r"body\[1\]: a float cannot hold this int"),
        (Measured, Measured(at=LOCAL_MEAN), r"body\.at: its offset .* convert it to UTC"),
        (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=1))), "its offset from"),
        (time, time(1, tzinfo=timezone(timedelta(seconds=90))), "body: its offset from UTC"),
        (time, time(1, tzinfo=BERLIN), "body: its offset from UTC"),
        (dict[datetime, int], {LOCAL_MEAN: 1}, "body: the key .* would be changed"),
        (Identity, Identity(LOCAL_MEAN), r"body\.at: its offset from UTC"),
        (dict, {1: "a"}, "body: the key 1 is not of its type, and would be changed or dropped"),
        (dict, {"a": {1.5: 1}}, r"body\['a'\]: the key 1.5 is not of its type"),
        (dict[Any, int], {ID: 1}, "the key UUID.* is not of its type"),
        (Any, {1: "a"}, "body: the key 1 is not of its type"),
        (Extras, {"values": {"a": {b"x": 1}}}, r"body\['values'\]\['a'\]: the key b'x'"),
        (Measured, Measured(anything={1: 2}), r"body\.anything: the key 1 is not of its type"),
        (Measured, Measured(anything=date(2026, 1, 1)), r"body\.anything: a date would be read"),
        (list[T], [Decimal(1)], r"body\[0\]: a Decimal would be read as a str"),  # type: ignore[valid-type]
        (set[int], [1, 1], "body: a list would be read as a set"),
        (list[int], {1}, "body: a set would be read as a list"),
        (Doubling, Doubling(1), r"body\.a: this int would be read as another value"),
    ],
)
def test_value_that_would_be_changed_is_not_sent(kind: Any, value: Any, words: str) -> None:
    refuse(kind, value, words)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Measured, Measured(2**53)),
        (Measured, Measured(1, datetime(2026, 7, 1, tzinfo=BERLIN), {"a": [None, 1.5, True]})),
        (Measured, Measured(1, datetime(1890, 7, 1, tzinfo=BERLIN).astimezone(UTC))),
        (Reading, Reading(value=1.5)),
        (Kept, Kept(pet=Cat(age=1))),
        (Priced, Priced(price="1.50")),
        (Dated, Dated(at=datetime(2026, 1, 1, tzinfo=UTC))),
        (Dated, Dated(at="tomorrow")),
        (Row, Row(items=[1])),
        (TwoNames, TwoNames.model_validate({})),
        (Open, Open.model_validate({"q": {"b": [1]}})),
        (Encoded, Encoded(data=b"\xff\x00")),
        (Total, Total(amount=2)),
        (Inner, Inner.model_validate({"items": "[1, 2]", "others": ["3"]})),
        (Holder, Holder(Total(amount=2), Inner.model_validate({"items": "[1]"}))),
        (list[pydantic.Json[int]], [1]),
    ],
)
def test_value_that_is_read_as_written_is_sent(kind: Any, value: Any) -> None:
    serializer = TypedSerializer(kind)
    assert serializer.loads(serializer.dumps(value)) == value


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Sequence[int], (1, 2), [1, 2]),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (frozenset[int], {1}, frozenset({1})),
        (Series, Series(items=(1, 2)), Series(items=[1, 2])),
        (str, Color.RED, "red"),
        (dict[str, int], OrderedDict(a=1), {"a": 1}),
        (bytes, bytearray(b"x"), b"x"),
        (Decimal, 5, Decimal(5)),
        (Decimal, 1e-7, Decimal("1e-7")),
    ],
)
def test_value_of_like_type_is_read_as_the_type(kind: Any, value: Any, read: Any) -> None:
    serializer = TypedSerializer(kind)
    found = serializer.loads(serializer.dumps(value))
    assert (found, type(found)) == (read, type(read))


def test_time_in_the_hour_that_clocks_repeat_is_sent() -> None:
    for fold in (0, 1):
        at = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)
        serializer = TypedSerializer(datetime)
        assert serializer.loads(serializer.dumps(at)).timestamp() == at.timestamp()
    for text in ("NaN", "sNaN", "-0", "1.10"):
        decimals = TypedSerializer(Decimal)
        assert str(decimals.loads(decimals.dumps(Decimal(text)))) == text


def test_private_attrs_field_is_refused_when_named() -> None:
    class Account:  # stands for a class of attrs
        __attrs_attrs__ = (SimpleNamespace(name="_id"), SimpleNamespace(name="n"))
        _id: int
        n: int

    for kind, words in ((Account, r"Account\._id"), (list[Account], r"\._id")):
        with pytest.raises(TypeError, match=f"{words}: private fields of attrs classes are not"):
            TypedSerializer(kind)


def test_values_nested_too_deeply_raise_value_error() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested too deeply"):
        difference(value, value, swaps_arrays=True)


def test_objects_without_equality_are_compared_by_their_attributes() -> None:
    class Thing:
        def __init__(self, size: int) -> None:
            self.size = size

    assert not difference(Thing(1), Thing(1), swaps_arrays=True)
    assert "a Thing" not in difference(Thing(1), Thing(2), swaps_arrays=True)
    assert difference(Thing(1), Thing(2), swaps_arrays=True)
