"""Positions of errors, and limits of conditions."""

import pytest

from rocketpy.errors import ExpressionError
from rocketpy.sql92.condition import MAX_EXPRESSION_CHARS, Condition, compile_condition


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("", 0, "the end"),
        ("a >", 3, "the end"),
        ("a = 'x", 4, "closing quote"),
        ("a == 5", 3, "'='"),
        ("a != 5", 2, "no such sign"),
        ("(a = 1", 6, "expected )"),
        ("a IN (1)", 6, "text in quotes"),
        ("a > 'x'", 2, "only numbers"),
        ("a = NULL", 2, "IS NULL"),
        ("5", 0, "true nor false"),
        ("a BETWEEN 6 AND 3", 2, "lower value first"),
        ("a > 9223372036854775808", 4, "at most"),
        ("a > 0.0", 4, "zero"),
    ],
)
def test_parse_error_names_the_position(expression: str, position: int, reason: str) -> None:
    with pytest.raises(ExpressionError, match=f"at character {position + 1}: ") as caught:
        compile_condition(expression)
    assert caught.value.position == position
    assert reason in caught.value.reason


def test_parse_returns_the_position_of_ignored_text() -> None:
    assert Condition("a = 1 AMD b = 2").ignored_from == 6
    assert compile_condition("a = 1  -- done\n").ignored_from is None


@pytest.mark.parametrize("rest", ["AMD b = 2", "garbage here", "b", ")", "'"])
def test_compile_condition_with_text_behind_it_raises(rest: str) -> None:
    with pytest.raises(ExpressionError):
        compile_condition(f"a IS NULL {rest}")


def test_expression_is_bounded_in_length_and_depth() -> None:
    with pytest.raises(ExpressionError, match="at most 16384"):
        compile_condition("a" * (7 << 20))
    for deep in ("(" * 5_000 + "a", "-" * 5_000 + "a", "NOT " * 4_000 + "a", "+ " * 5_000 + "a"):
        with pytest.raises(ExpressionError, match="inside each other"):
            compile_condition(deep)
    with pytest.raises(ExpressionError, match="inside each other"):
        compile_condition("a" + " = 1" * 1_000)
    with pytest.raises(ExpressionError, match="inside each other"):
        compile_condition("a" + " IS NULL" * 1_000)
    deepest = compile_condition("(" * 64 + "a = 1" + ")" * 64)
    assert deepest.matches({"a": "1"})
    many = " AND ".join(["a = 1"] * 256)
    assert compile_condition(many).matches({"a": "1"})
    with pytest.raises(ExpressionError, match="more than 512 properties and values"):
        compile_condition(many + " AND a")
    texts = ",".join(["'x'"] * 4_000)
    assert len(texts) < MAX_EXPRESSION_CHARS
    assert compile_condition(f"a IN ({texts})").matches({"a": "x"})
