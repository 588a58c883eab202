"""Parsing of numbers and comparison of values as in Java."""

import math

import pytest

from rocketpy.sql92.java_values import (
    Long,
    MismatchError,
    Value,
    compare,
    equal,
    to_boolean,
    to_double,
    to_integer,
    to_long,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), ("+5", 5), ("-5", -5), ("007", 7), ("0" * 200 + "7", 7), ("\uff15", 5),
     ("-2147483648", -(2**31))],
)  # fmt: skip
def test_whole_number(text: str, number: int) -> None:
    assert to_integer(text) == number
    assert to_long(text) == number


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "1_000", "5.0", "5L", "--5", "+", "x", "\U0001d7ce", "9" * 5_000]
)
def test_no_whole_number(text: str) -> None:
    for read in (to_integer, to_long):
        with pytest.raises(MismatchError):
            read(text)


def test_width_counts() -> None:
    assert to_long("2147483648") == 2**31
    with pytest.raises(MismatchError):
        to_integer("2147483648")
    with pytest.raises(MismatchError):
        to_long("9223372036854775808")


@pytest.mark.parametrize(
    ("text", "number"),
    [(" 1.5\t", 1.5), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("5f", 5.0), ("5D", 5.0),
     ("-Infinity", -math.inf), ("1e999", math.inf), ("0x1p3", 8.0), ("-0x.8p1d", -1.0),
     ("0x1p9999", math.inf)],
)  # fmt: skip
def test_double(text: str, number: float) -> None:
    assert to_double(text) == number


@pytest.mark.parametrize("text", ["", "1_0", "inf", "nan", "1e", "0x10", "1 2", "NaNf", "\uff15"])
def test_no_double(text: str) -> None:
    with pytest.raises(MismatchError):
        to_double(text)


@pytest.mark.parametrize(
    ("left", "right", "sign"),
    [
        ("6", 5, 1), (5, "6", -1), ("5", 5.0, 0), (5, 5.0, 0), (Long(5), 5, 0), (5, Long(6), -1),
        ("2147483648", Long(5), 1), ("true", True, 0), ("x", True, -1), (True, 1, -1),
        (1, True, -1), (math.nan, math.inf, 1), (math.nan, math.nan, 0), (-0.0, 0.0, -1),
        ("a", "b", -1), (False, True, -1),
    ],
)  # fmt: skip
def test_compare_of_all_types(left: Value, right: Value, sign: int) -> None:
    found = compare(left, right)
    assert (found > 0) - (found < 0) == sign


def test_compare_of_incomparable_values_raises() -> None:
    for left, right in (("x", 5), (5, "5.5"), ("x", 5.5), (True, "true")):
        with pytest.raises(MismatchError):
            compare(left, right)


def test_nulls() -> None:
    assert equal(None, None) is True
    assert equal(None, "x") is None
    assert equal("x", None) is False
    assert to_boolean("TRUE")
    assert not to_boolean("yes")
