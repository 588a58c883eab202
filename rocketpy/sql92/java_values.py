"""Java's value semantics for conditions: conversion of texts to numbers, and comparison.

Integer is `int`, Long is `Long`, Double is `float`, Boolean is `bool`, String is `str`, null is
None. Texts are parsed as numbers as in Java, which differs from Python: no blanks and no `_` in
whole numbers, `NaN` greater than everything, `-0.0` less than `0.0`.

Source: ComparisonExpression.__compare (5.4.0); Integer, Long and Double of Java 8.
"""

import math
import re
from typing import Final

Value = str | int | float | bool | None

MAX_INTEGER: Final = (1 << 31) - 1
MAX_LONG: Final = (1 << 63) - 1

# One digit of any script in the basic plane, as in Character.digit.
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_MAX_NUMBER_CHARS: Final = 1_024
_MAX_WHOLE_CHARS: Final = 100
_SURELY_WHOLE_CHARS: Final = 10


class MismatchError(Exception):
    """Two values that Java cannot compare, so the condition has no result."""


class Long(int):
    """Integer of 64 bits; texts compared with it are parsed as such."""

    __slots__ = ()


def to_integer(text: str) -> int:
    """Read a text as Integer.valueOf does; raises MismatchError."""
    if len(text) < _SURELY_WHOLE_CHARS and text.isdecimal() and text.isascii():
        return int(text)
    return _whole(text, MAX_INTEGER)


def to_long(text: str) -> Long:
    """Read a text as Long.valueOf does; raises MismatchError."""
    return Long(_whole(text, MAX_LONG))


def to_double(text: str) -> float:
    """Read a text as Double.valueOf does; raises MismatchError."""
    trimmed = text.strip(_TRIMMED)
    if len(trimmed) <= _MAX_NUMBER_CHARS:
        if _DECIMAL.fullmatch(trimmed):
            return float(trimmed if trimmed.endswith(("N", "y")) else trimmed.rstrip("fFdD"))
        hexadecimal = _HEX.fullmatch(trimmed)
        if hexadecimal is not None:
            try:
                return float.fromhex(hexadecimal[1])
            except OverflowError:
                return -math.inf if trimmed[0] == "-" else math.inf
    raise MismatchError


def to_boolean(text: str) -> bool:
    """Read a text as Boolean.valueOf does."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Compare as Double.compareTo: negative, 0 or positive."""
    if left < right:
        return -1
    if left > right:
        return 1
    return _rank(left) - _rank(right)


def compare(left: Value, right: Value) -> int:
    """Compare two values that are not None; values of unrelated types are "less".

    Raises:
        MismatchError: a text is not a number, or a boolean is compared with a text.
    """
    one, other = type(left), type(right)
    if one is bool and other is str:
        raise MismatchError  # a cast that cannot succeed, in Apache's code
    if one is str and other is not str:
        left, one = _converted(str(left), other), other
    elif other is str and one is not str:
        right, other = _converted(str(right), one), one
    if one is str or one is bool or other is bool:
        if one is not other:
            return -1
        return (left > right) - (left < right)  # type: ignore[operator]
    assert isinstance(left, int | float)
    assert isinstance(right, int | float)
    if one is float or other is float:
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def equal(left: Value, right: Value) -> bool | None:
    """Compare as `=` does: two nulls are equal; a null on the left gives unknown.

    Raises:
        MismatchError: see `compare`.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    return compare(left, right) == 0


def _rank(number: float) -> int:
    """Rank values that Python treats as equal or unordered: -0.0, all others, NaN."""
    if math.isnan(number):
        return 1
    return -1 if number == 0 and math.copysign(1, number) < 0 else 0


def _converted(text: str, kind: type) -> Value:
    if kind is bool:
        return to_boolean(text)
    if kind is float:
        return to_double(text)
    return to_long(text) if kind is Long else to_integer(text)


def _whole(text: str, highest: int) -> int:
    if len(text) > _MAX_WHOLE_CHARS:
        text = _without_leading_zeros(text)
    if not _WHOLE.fullmatch(text) or max(text) > "\uffff":
        raise MismatchError
    number = int(text)
    if not -highest - 1 <= number <= highest:
        raise MismatchError
    return number


def _without_leading_zeros(text: str) -> str:
    sign = text[:1] if text[:1] in {"+", "-"} else ""
    shortened = sign + (text[len(sign) :].lstrip("0") or "0")
    if len(shortened) > _MAX_WHOLE_CHARS:
        raise MismatchError
    return shortened
