"""Nodes of a compiled condition: kinds of expressions, and their evaluation.

Nodes are closures. Java checks by the class of an expression whether it is comparable or constant;
here `Node.kind` serves the same checks during compilation.

Source: ComparisonExpression, LogicExpression, UnaryExpression, ConstantExpression (5.4.0).
"""

import operator
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from rocketpy.sql92.java_values import (
    Long,
    Value,
    compare,
    compare_doubles,
    equal,
    to_boolean,
    to_double,
    to_integer,
    to_long,
)

Get = Callable[[str], str | None]
"""Returns a property, or None."""
Evaluate = Callable[[Get], Value]

RELATIONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Kind(Enum):
    """Kind of an expression, for checks of operators."""

    PROPERTY = auto()
    LITERAL = auto()
    BOOLEAN_LITERAL = auto()
    BOOLEAN = auto()
    OTHER = auto()


class Refused(Exception):  # noqa: N818 - the parser converts it to an error with the position
    """Expression that is invalid at its position, with the reason."""


class Node(NamedTuple):
    """Compiled expression.

    Attributes:
        kind: of the expression.
        evaluate: returns the value; raises MismatchError if the condition has no result.
        depth: height of its tree.
        value: of a literal; the name of a property.
    """

    kind: Kind
    evaluate: Evaluate
    depth: int = 1
    value: Value = None

    @property
    def is_literal(self) -> bool:
        """Whether it is a literal of the text."""
        return self.kind in {Kind.LITERAL, Kind.BOOLEAN_LITERAL}

    @property
    def is_number(self) -> bool:
        """Whether it is a number literal, with or without signs."""
        return self.kind in {Kind.LITERAL, Kind.OTHER} and isinstance(self.value, int | float)


def property_of(name: str) -> Node:
    """Return the node of a property; null when the message lacks it."""
    return Node(Kind.PROPERTY, lambda get: get(name), value=name)


def literal(value: Value) -> Node:
    """Return the node of a text, a number, TRUE, FALSE or NULL."""
    is_boolean = value is None or isinstance(value, bool)
    kind = Kind.BOOLEAN_LITERAL if is_boolean else Kind.LITERAL
    return Node(kind, lambda _get: value, value=value)


def as_boolean(node: Node) -> Node:
    """Return an operand of AND and OR; the text of a property is never true."""
    if node.kind in {Kind.BOOLEAN, Kind.BOOLEAN_LITERAL}:
        return node
    if node.kind is not Kind.PROPERTY:
        raise Refused("this is neither true nor false; compare it with something")
    name = str(node.value)
    return _boolean(lambda get: None if get(name) is None else False, node)


def all_of(nodes: list[Node]) -> Node:
    """Combine with AND: the first false operand decides, a null makes the result unknown."""
    return _decided_by(nodes, decisive=False)


def any_of(nodes: list[Node]) -> Node:
    """Combine with OR: the first true operand decides, a null makes the result unknown."""
    return _decided_by(nodes, decisive=True)


def _decided_by(nodes: list[Node], *, decisive: bool) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    parts = [as_boolean(node).evaluate for node in nodes]

    def evaluate(get: Get) -> Value:
        result: Value = not decisive
        for part in parts:
            value = part(get)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return _boolean(evaluate, *nodes)


def negated(node: Node) -> Node:
    """Apply NOT; null stays null."""
    inner = as_boolean(node).evaluate

    def evaluate(get: Get) -> Value:
        value = inner(get)
        return None if value is None else not value

    return _boolean(evaluate, node)


def minus(node: Node) -> Node:
    """Negate a number; null for everything else, including texts with numbers."""
    inner = node.evaluate

    def evaluate(get: Get) -> Value:
        return _minus(inner(get))

    if node.is_number:
        value = _minus(node.value)
        return Node(Kind.OTHER, lambda _get: value, node.depth + 1, value)
    return Node(Kind.OTHER, evaluate, node.depth + 1)


def _minus(value: Value) -> Value:
    if value is None or isinstance(value, str | bool):
        return None
    return Long(-value) if isinstance(value, Long) else -value


def equals(left: Node, right: Node) -> Node:
    """Compare with `=`."""
    for node in (left, right):
        if node.is_literal and node.value is None:
            raise Refused("NULL cannot be compared; use IS NULL")
    if left.kind is Kind.BOOLEAN_LITERAL and right.kind is Kind.LITERAL:
        raise Refused("TRUE and FALSE cannot be compared with this")
    if left.kind is Kind.PROPERTY and right.is_literal:
        return _boolean(_property_equals(str(left.value), right.value), left)
    return _boolean(_equality(left, right), left, right)


def is_null(node: Node) -> Node:
    """Test for null."""
    inner = node.evaluate
    return _boolean(lambda get: inner(get) is None, node)


def _equality(left: Node, right: Node) -> Evaluate:
    one, other = left.evaluate, right.evaluate
    return lambda get: equal(one(get), other(get))


def _property_equals(name: str, value: Value) -> Evaluate:
    if isinstance(value, str):

        def equals_text(get: Get) -> Value:
            text = get(name)
            return None if text is None else text == value

        return equals_text
    if value is True or value is False:

        def equals_boolean(get: Get) -> Value:
            text = get(name)
            return None if text is None else to_boolean(text) is value

        return equals_boolean
    assert value is not None
    return _property_with_number(name, value, operator.eq)


def relation(left: Node, sign: str, right: Node) -> Node:
    """Compare with `<`, `<=`, `>` or `>=`."""
    for node in (left, right):
        if node.kind is Kind.BOOLEAN or (node.is_literal and not node.is_number):
            raise Refused(f"only numbers can be compared with {sign}")
    if left.kind is Kind.PROPERTY and right.is_number:
        assert isinstance(right.value, int | float)
        name, number = str(left.value), right.value
        return _boolean(_property_with_number(name, number, RELATIONS[sign]), left)
    if right.kind is Kind.PROPERTY and left.is_number:
        assert isinstance(left.value, int | float)
        name, number = str(right.value), left.value
        return _boolean(_property_with_number(name, number, RELATIONS[_MIRRORED[sign]]), right)
    return _boolean(_relation(left, RELATIONS[sign], right), left, right)


def _relation(left: Node, accepts: Callable[[float, float], bool], right: Node) -> Evaluate:
    one, other = left.evaluate, right.evaluate

    def evaluate(get: Get) -> Value:
        first = one(get)
        if first is None:
            return None
        second = other(get)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            return accepts(compare_doubles(to_double(first), to_double(second)), 0)
        return accepts(compare(first, second), 0)

    return evaluate


def _property_with_number(
    name: str, number: float, accepts: Callable[[float, float], bool]
) -> Evaluate:
    """Compare a property with a number, the most common condition by far."""
    if isinstance(number, int):
        to_number = to_long if isinstance(number, Long) else to_integer

        def with_whole(get: Get) -> Value:
            text = get(name)
            return None if text is None else accepts(to_number(text), number)

        return with_whole

    def with_double(get: Get) -> Value:
        text = get(name)
        return None if text is None else accepts(compare_doubles(to_double(text), number), 0)

    return with_double


def between(node: Node, low: Node, high: Node) -> Node:
    """Test whether a value is within two others, inclusive."""
    is_fixed = low.is_literal and high.is_literal and low.is_number and high.is_number
    if is_fixed and compare(high.value, low.value) < 0:
        raise Refused(f"BETWEEN needs the lower value first, not {low.value} and {high.value}")
    both = [relation(node, ">=", low), relation(node, "<=", high)]
    if node.kind is Kind.PROPERTY and type(low.value) is type(high.value) is int:
        return _boolean(_within(str(node.value), low.value, high.value), node)
    return all_of(both)


def _within(name: str, lowest: int, highest: int) -> Evaluate:
    """Evaluate BETWEEN of a property with one lookup."""

    def within(get: Get) -> Value:
        text = get(name)
        return None if text is None else lowest <= to_integer(text) <= highest

    return within


def not_between(node: Node, low: Node, high: Node) -> Node:
    """Test whether a value is outside of two others."""
    return any_of([relation(node, "<", low), relation(node, ">", high)])


def is_in(node: Node, texts: list[str], wanted: bool) -> Node:
    """Test whether a property is, or is not, one of some texts."""
    if node.kind is not Kind.PROPERTY:
        raise Refused("IN needs a property on its left")
    name, choices = str(node.value), frozenset(texts)

    def evaluate(get: Get) -> Value:
        text = get(name)
        return None if text is None else (text in choices) is wanted

    return _boolean(evaluate, node)


_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def text_test(node: Node, keyword: str, searched: str, wanted: bool) -> Node:
    """Test with CONTAINS, STARTSWITH or ENDSWITH; false, not null, for other values than texts."""
    inner, test = node.evaluate, _TEXT_TESTS[keyword]

    def evaluate(get: Get) -> Value:
        if not searched:
            return False
        value = inner(get)
        return isinstance(value, str) and test(value, searched) is wanted

    return _boolean(evaluate, node)


def _boolean(evaluate: Evaluate, *parts: Node) -> Node:
    return Node(Kind.BOOLEAN, evaluate, 1 + max(part.depth for part in parts))
