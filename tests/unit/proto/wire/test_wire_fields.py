"""Headers and bodies are declared where a feature uses them: none waits for one to come."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import ClassVar

import pytest

import rocketpy
from rocketpy.proto import bodies, headers
from rocketpy.proto.headers.base import Header, header, header_fields
from rocketpy.proto.wire.json_body import Body, body
from tests.unit.proto.declared import declared

WORDS = Counter(
    word
    for path in Path(rocketpy.__file__).parent.rglob("*.py")
    for word in re.findall(r"\w+", path.read_text())
)
NAMES = [one.__name__ for one in [*declared(headers, Header), *declared(bodies, Body)]]


@pytest.mark.parametrize("name", NAMES)
def test_every_declared_class_is_used(name: str) -> None:
    assert WORDS[name] > 1, f"{name} is declared, and nothing uses it"


@pytest.mark.parametrize("cls", declared(headers, Header))
def test_every_field_of_a_header_has_a_wire_form(cls: type[Header]) -> None:
    names = [each.wire_name for each in header_fields(cls)]
    assert len(names) == len(set(names)) == len(fields(cls))  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", declared(bodies, Body))
def test_every_field_of_a_body_has_a_json_form(cls: type[Body]) -> None:
    keys = [each.key for each in cls.specs()]
    assert len(keys) == len(set(keys)) == len(fields(cls))  # type: ignore[arg-type]


@body
class Pair(Body):
    first: int = 0
    second: str = ""


@body
class OtherPair(Body):
    first: int = 0
    second: str = ""


def test_equal_values_of_one_class_are_equal() -> None:
    assert Pair(1, "a") == Pair(1, "a")
    assert Pair(1, "a") != Pair(1, "b")
    other: object = OtherPair(1, "a")
    assert Pair(1, "a") != other


def test_they_print_as_they_are_made() -> None:
    assert repr(Pair(1, "a")) == "Pair(first=1, second='a')"


def test_they_can_change_and_so_have_no_hash() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Pair())


def test_derived_header_has_its_own_names() -> None:
    @header
    class First(Header):
        some_name: str

    @header
    class Second(First):
        wire_names: ClassVar[Mapping[str, str]] = {"some_name": "s"}

    assert First(some_name="x").to_ext() == {"someName": "x"}
    assert Second(some_name="x").to_ext() == {"s": "x"}
    assert First.from_ext({"someName": "y", "s": "z"}) == First(some_name="y")
    assert Second.from_ext({"someName": "y", "s": "z"}) == Second(some_name="z")
