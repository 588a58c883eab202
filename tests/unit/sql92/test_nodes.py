"""Expressions: valid operands, and values for the properties of a message."""

from collections.abc import Callable

import pytest

from rocketpy.sql92.java_values import Long, MismatchError, Value
from rocketpy.sql92.nodes import (
    Kind,
    Node,
    Refused,
    all_of,
    any_of,
    as_boolean,
    between,
    equals,
    is_in,
    is_null,
    literal,
    minus,
    negated,
    not_between,
    property_of,
    relation,
    text_test,
)

A, B = property_of("a"), property_of("b")
TRUE, FALSE, NULL = literal(True), literal(False), literal(None)
MAYBE = equals(A, literal("x"))  # null when there is no a


def worth(node: Node, **properties: str) -> Value:
    return node.evaluate(properties.get)


def test_property_is_its_text_or_null() -> None:
    assert worth(A, a="5") == "5"
    assert worth(A, b="5") is None
    assert (A.kind, A.value, A.depth) == (Kind.PROPERTY, "a", 1)
    assert not A.is_literal
    assert not A.is_number


@pytest.mark.parametrize(
    ("value", "kind", "is_number"),
    [
        ("x", Kind.LITERAL, False),
        (5, Kind.LITERAL, True),
        (5.5, Kind.LITERAL, True),
        (Long(5), Kind.LITERAL, True),
        (True, Kind.BOOLEAN_LITERAL, False),
        (None, Kind.BOOLEAN_LITERAL, False),
    ],
)
def test_literal_is_worth_itself(value: Value, kind: Kind, is_number: bool) -> None:
    node = literal(value)
    assert (node.kind, node.is_literal, node.is_number) == (kind, True, is_number)
    assert worth(node) is value


def test_boolean_operand_accepts_booleans_and_properties() -> None:
    assert as_boolean(TRUE) is TRUE
    assert as_boolean(MAYBE) is MAYBE
    assert worth(as_boolean(A), a="true") is False, "as Apache: a text is no boolean"
    assert worth(as_boolean(A)) is None
    for node in (literal("x"), literal(5), minus(A)):
        with pytest.raises(Refused, match="neither true nor false"):
            as_boolean(node)


@pytest.mark.parametrize(
    ("nodes", "both", "either"),
    [
        ([TRUE, TRUE], True, True),
        ([TRUE, FALSE], False, True),
        ([FALSE, FALSE], False, False),
        ([TRUE, NULL], None, True),
        ([NULL, TRUE], None, True),
        ([FALSE, NULL], False, None),
        ([NULL, FALSE], False, None),
        ([NULL, NULL], None, None),
        ([TRUE, TRUE, FALSE], False, True),
    ],
)
def test_all_of_and_any_of_use_three_valued_logic(
    nodes: list[Node], both: Value, either: Value
) -> None:
    assert worth(all_of(nodes)) is both
    assert worth(any_of(nodes)) is either


def test_one_part_alone_is_left_as_it_is() -> None:
    assert all_of([A]) is A
    assert any_of([A]) is A


def test_part_that_decides_is_the_last_that_is_looked_at() -> None:
    fails = relation(B, ">", literal(5))
    assert worth(all_of([FALSE, fails]), b="no number") is False
    assert worth(any_of([TRUE, fails]), b="no number") is True
    for node in (all_of([TRUE, fails]), any_of([FALSE, fails])):
        with pytest.raises(MismatchError):
            worth(node, b="no number")


def test_not_turns_around_and_leaves_null() -> None:
    assert worth(negated(TRUE)) is False
    assert worth(negated(FALSE)) is True
    assert worth(negated(NULL)) is None
    assert worth(negated(MAYBE)) is None
    with pytest.raises(Refused):
        negated(literal("x"))


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (minus(literal(5)), -5),
        (minus(literal(-5.5)), 5.5),
        (minus(literal("5")), None),
        (minus(literal(True)), None),
        (minus(minus(literal(5))), 5),
    ],
)
def test_sign_changes_numbers_only(node: Node, expected: Value) -> None:
    assert worth(node) == expected
    assert not node.is_literal


def test_sign_of_a_text_is_null_and_of_a_long_a_long() -> None:
    assert worth(minus(A), a="5") is None
    assert isinstance(minus(literal(Long(5))).value, Long)
    assert minus(literal(5)).is_number
    assert not minus(A).is_number


@pytest.mark.parametrize(
    ("left", "right", "properties", "expected"),
    [
        (A, literal("x"), {"a": "x"}, True),
        (A, literal("x"), {"a": "X"}, False),
        (A, literal("x"), {}, None),
        (A, literal(5), {"a": "5"}, True),
        (A, literal(5), {"a": "6"}, False),
        (A, literal(5), {}, None),
        (A, literal(5.0), {"a": "5"}, True),
        (A, literal(Long(1 << 40)), {"a": str(1 << 40)}, True),
        (A, TRUE, {"a": "TRUE"}, True),
        (A, TRUE, {"a": "yes"}, False),
        (A, FALSE, {"a": "yes"}, True),
        (A, FALSE, {}, None),
        (A, B, {"a": "x", "b": "x"}, True),
        (A, B, {"a": "x"}, False),
        (A, B, {"b": "x"}, None),
        (A, B, {}, True),
        (literal("x"), A, {"a": "x"}, True),
        (literal(5), literal(5), {}, True),
    ],
)
def test_equals_of_all_types(
    left: Node, right: Node, properties: dict[str, str], expected: Value
) -> None:
    assert worth(equals(left, right), **properties) is expected


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [
        (A, NULL, "IS NULL"),
        (NULL, A, "IS NULL"),
        (TRUE, literal("x"), "cannot be compared with this"),
        (FALSE, literal(5), "cannot be compared with this"),
    ],
)
def test_equals_of_incomparable_operands_raises(left: Node, right: Node, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        equals(left, right)


def test_text_that_is_no_number_has_no_answer() -> None:
    for number in (literal(5), literal(Long(5)), literal(5.5)):
        for node in (equals(A, number), relation(A, "<", number), relation(number, "<", A)):
            with pytest.raises(MismatchError):
                worth(node, a="five")
    with pytest.raises(MismatchError):
        worth(equals(A, literal(5)), a=str(1 << 40))  # beyond what Java's Integer holds


@pytest.mark.parametrize(
    ("sign", "answers"),
    [
        (">", (False, False, True)),
        (">=", (False, True, True)),
        ("<", (True, False, False)),
        ("<=", (True, True, False)),
    ],
)
@pytest.mark.parametrize("number", [5, Long(5), 5.0])
def test_property_is_less_equal_or_greater(
    sign: str, answers: tuple[bool, bool, bool], number: Value
) -> None:
    node = relation(A, sign, literal(number))
    assert tuple(worth(node, a=text) for text in "456") == answers
    assert worth(node) is None
    mirrored = {">": "<", ">=": "<=", "<": ">", "<=": ">="}[sign]
    other = relation(literal(number), mirrored, A)
    assert tuple(worth(other, a=text) for text in "456") == answers
    assert worth(other) is None


def test_two_properties_are_compared_as_doubles() -> None:
    node = relation(A, "<", B)
    assert worth(node, a="9", b="10") is True
    assert worth(node, a="1e3", b="10") is False
    assert worth(node, a="9") is None
    assert worth(node, b="9") is None
    with pytest.raises(MismatchError):
        worth(node, a="9", b="ten")


@pytest.mark.parametrize("node", [literal("x"), TRUE, NULL, MAYBE])
def test_only_numbers_and_properties_have_an_order(node: Node) -> None:
    for left, right in ((node, literal(5)), (literal(5), node)):
        with pytest.raises(Refused, match="only numbers"):
            relation(left, ">", right)


@pytest.mark.parametrize(
    ("text", "expected"), [("2", False), ("3", True), ("5", True), ("6", True), ("7", False)]
)
@pytest.mark.parametrize("make", [int, Long, float])
def test_between_takes_both_ends(text: str, expected: bool, make: Callable[[int], Value]) -> None:
    ends = literal(make(3)), literal(make(6))
    assert worth(between(A, *ends), a=text) is expected
    assert worth(not_between(A, *ends), a=text) is not expected
    assert worth(between(A, *ends)) is None
    assert worth(not_between(A, *ends)) is None


def test_empty_range_is_refused_where_it_can_be_seen() -> None:
    with pytest.raises(Refused, match="lower value first, not 6 and 3"):
        between(A, literal(6), literal(3))
    assert worth(between(A, literal(3), literal(3)), a="3") is True
    assert worth(not_between(A, literal(6), literal(3)), a="5") is True
    assert worth(between(A, B, literal(3)), a="2", b="9") is False, "the end of a property"


def test_value_is_one_of_some_texts_or_none_of_them() -> None:
    inside, outside = is_in(A, ["x", "y"], True), is_in(A, ["x", "y"], False)
    assert [worth(inside, a=text) for text in "xyz"] == [True, True, False]
    assert [worth(outside, a=text) for text in "xyz"] == [False, False, True]
    assert worth(inside) is None
    assert worth(outside) is None
    with pytest.raises(Refused, match="IN needs a property"):
        is_in(literal("x"), ["x"], True)


@pytest.mark.parametrize(
    ("keyword", "searched", "expected"),
    [
        ("CONTAINS", "west", True),
        ("CONTAINS", "east", False),
        ("STARTSWITH", "eu", True),
        ("STARTSWITH", "west", False),
        ("ENDSWITH", "west", True),
        ("ENDSWITH", "eu", False),
    ],
)
def test_parts_of_a_text(keyword: str, searched: str, expected: bool) -> None:
    assert worth(text_test(A, keyword, searched, True), a="eu-west") is expected
    assert worth(text_test(A, keyword, searched, False), a="eu-west") is not expected
    for wanted in (True, False):
        assert worth(text_test(A, keyword, searched, wanted)) is False, "no text at all"
        assert worth(text_test(A, keyword, "", wanted), a="eu") is False, "nothing is searched"
        assert worth(text_test(literal(5), keyword, "5", wanted)) is False


def test_null_is_no_value_at_all() -> None:
    assert worth(is_null(A)) is True
    assert worth(is_null(A), a="") is False
    assert worth(is_null(minus(A)), a="5") is True


def test_node_depth_counts_nested_operators() -> None:
    low = equals(A, literal(5))
    assert low.depth == 2
    assert negated(negated(low)).depth == 4
    assert all_of([low, negated(low)]).depth == 4
    assert minus(minus(literal(5))).depth == 3
    assert between(A, literal(Long(3)), literal(6)).depth == 3
