import enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.runtime.config.values import OptionType, allowed, parse_value, value_text


class Role(enum.Enum):
    ASYNC_MASTER = 1
    SLAVE = 2


class Mode(enum.Enum):
    OFF = "disabled"


def of(hint: Any, **metadata: Any) -> OptionType:
    return OptionType.from_hint(hint, metadata)


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_come_back(number: int) -> None:
    assert parse_value(value_text(number, of(int)), of(int)) == number


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_numbers_come_back(number: float) -> None:
    kind = of(float, min=-1e40, max=1e40)
    assert parse_value(value_text(number, kind), kind) == number


@given(st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True)).map(tuple))
def test_lists_come_back(items: tuple[str, ...]) -> None:
    for separator in (";", " "):
        kind = of(tuple[str, ...], separator=separator)
        assert parse_value(value_text(items, kind), kind) == items


@pytest.mark.parametrize(
    ("hint", "value", "text"),
    [
        (bool, True, "true"),
        (Role, Role.SLAVE, "SLAVE"),
        (Mode, Mode.OFF, "disabled"),
        (int | None, None, ""),
        (str, "a=b", "a=b"),
    ],
)
def test_others_come_back(hint: Any, value: object, text: str) -> None:
    assert value_text(value, of(hint)) == text
    assert parse_value(text, of(hint)) == value


def test_enum_is_also_read_by_name() -> None:
    assert parse_value("OFF", of(Mode)) is Mode.OFF


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (int, "9223372036854775808"),
        (int, "1.0"),
        (int, "0x10"),
        (int, "١"),  # noqa: RUF001 - a digit, but not one of ours
        (float, "inf"),
        (float, "one"),
        (bool, "1"),
        (Role, "slave"),
        (Literal["a", "b"], "c"),
    ],
)
def test_parse_value_invalid_text_raises(hint: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_value(text, of(hint))


def test_allowed_describes_accepted_values() -> None:
    assert allowed(of(int, min=1)) == "a whole number, at least 1"
    assert allowed(of(int, max=9)) == "a whole number, at most 9"
    assert allowed(of(float, min=0, max=1)) == "a number from 0 to 1"
    assert allowed(of(tuple[Role, ...])) == "a list of (one of ASYNC_MASTER, SLAVE)"
    assert allowed(of(str)) == "text"


def test_field_of_another_type_is_a_programming_error() -> None:
    for hint in (dict[str, str], int | str, object):
        with pytest.raises(AssertionError):
            of(hint)
