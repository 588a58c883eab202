"""Recursive-descent parser of conditions, with a maximum depth of `MAX_DEPTH`.

    or         = and { OR and }
    and        = equality { AND equality }
    equality   = comparison { "=" comparison | "<>" comparison | IS [NOT] NULL }
    comparison = unary { ( ">" | ">=" | "<" | "<=" ) unary
                       | [NOT] BETWEEN unary AND unary | [NOT] IN "(" text { "," text } ")"
                       | [NOT] ( CONTAINS | STARTSWITH | ENDSWITH ) text }
    unary      = ( "+" | "-" | NOT ) unary | value | property | "(" or ")"

Apache's parser stops after a complete condition and never reads the rest. This one stops there as
well, and returns the position, so that the caller can decide.

Source: the grammar part of SelectorParser.jj (5.4.0).
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec

from rocketpy.errors import ExpressionError
from rocketpy.sql92 import nodes
from rocketpy.sql92.java_values import MAX_INTEGER, MAX_LONG, Long
from rocketpy.sql92.lexer import DECIMAL, END, INTEGER, NAME, STRING, Lexer, Token
from rocketpy.sql92.nodes import RELATIONS, Node

MAX_DEPTH: Final = 64
"""Limit of nested expressions. Apache's limit is the stack of its thread."""

MAX_OPERANDS: Final = 512
"""Limit of properties and values, which determine the cost; texts of IN do not count."""

_TEXT_TESTS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_MAX_DIGITS: Final = 19

P = ParamSpec("P")


class Parser:
    """Parser of one condition.

    Attributes:
        names: the properties in it.
        operand_count: properties and values in it so far.
    """

    def __init__(self, expression: str) -> None:
        self.names: set[str] = set()
        self._lexer = Lexer(expression)
        self._token = self._lexer.next()
        self._depth = 0
        self.operand_count: int = 0

    def parse(self) -> tuple[Node, int | None]:
        """Read the condition.

        Returns:
            The condition, and the position of the text that Apache ignores; None without any.

        Raises:
            ExpressionError: the text is invalid.
        """
        begin = self._token
        node = self._made(begin, nodes.as_boolean, self._or())
        rest = self._token
        return node, None if rest.kind == END else rest.position

    def _or(self) -> Node:
        begin = self._token
        parts = [self._and()]
        while self._take("OR") is not None:
            parts.append(self._and())
        return self._made(begin, nodes.any_of, parts)

    def _and(self) -> Node:
        begin = self._token
        parts = [self._equality()]
        while self._take("AND") is not None:
            parts.append(self._equality())
        return self._made(begin, nodes.all_of, parts)

    def _equality(self) -> Node:
        left = self._comparison()
        while True:
            at = self._token
            is_negative = False
            if self._take("=") is not None:
                left = self._made(at, nodes.equals, left, self._comparison())
            elif self._take("<>") is not None:
                is_negative = True
                left = self._made(at, nodes.equals, left, self._comparison())
            elif self._take("IS") is not None:
                is_negative = self._take("NOT") is not None
                self._expect("NULL")
                left = self._made(at, nodes.is_null, left)
            else:
                return left
            if is_negative:
                left = self._made(at, nodes.negated, left)

    def _comparison(self) -> Node:
        left = self._unary()
        while True:
            at = self._token
            if at.kind in RELATIONS:
                self._advance()
                left = self._made(at, nodes.relation, left, at.kind, self._unary())
                continue
            wanted = self._take("NOT") is None
            found = self._word_test(at, left, wanted=wanted)
            if found is None:
                if not wanted:
                    raise self._unexpected("BETWEEN, IN, CONTAINS, STARTSWITH or ENDSWITH")
                return left
            left = found

    def _word_test(self, at: Token, left: Node, *, wanted: bool) -> Node | None:
        word = self._token.kind
        if word in _TEXT_TESTS:
            self._advance()
            return self._made(at, nodes.text_test, left, word, self._text(), wanted)
        if self._take("BETWEEN") is not None:
            low = self._unary()
            self._expect("AND")
            make = nodes.between if wanted else nodes.not_between
            return self._made(at, make, left, low, self._unary())
        if self._take("IN") is not None:
            self._expect("(")
            texts = [self._text()]
            while self._take(",") is not None:
                texts.append(self._text())
            self._expect(")")
            return self._made(at, nodes.is_in, left, texts, wanted)
        return None

    def _unary(self) -> Node:
        at = self._token
        if self._take("+") is not None:
            with self._deeper(at):
                return self._unary()
        if self._take("-") is not None:
            with self._deeper(at):
                inner = self._unary()
            return self._made(at, nodes.minus, inner)
        if self._take("NOT") is not None:
            with self._deeper(at):
                inner = self._unary()
            return self._made(at, nodes.negated, inner)
        return self._primary()

    def _primary(self) -> Node:
        token = self._token
        kind = token.kind
        self.operand_count += kind != "("
        if self.operand_count > MAX_OPERANDS:
            reason = f"more than {MAX_OPERANDS} properties and values"
            raise ExpressionError(reason, token.position)
        if kind == NAME:
            self._advance()
            self.names.add(token.text)
            return nodes.property_of(token.text)
        if kind == STRING:
            return nodes.literal(self._text())
        if kind in {INTEGER, DECIMAL}:
            self._advance()
            return nodes.literal(_whole(token) if kind == INTEGER else _decimal(token))
        if kind in _CONSTANTS:
            self._advance()
            return nodes.literal(_CONSTANTS[kind])
        if self._take("(") is not None:
            with self._deeper(token):
                inner = self._or()
            self._expect(")")
            return inner
        raise self._unexpected("a property, a value or (")

    def _text(self) -> str:
        return self._expect(STRING).text[1:-1].replace("''", "'")

    # ---- tokens

    def _advance(self) -> None:
        self._token = self._lexer.next()

    def _take(self, kind: str) -> Token | None:
        token = self._token
        if token.kind != kind:
            return None
        self._token = self._lexer.next()
        return token

    def _expect(self, kind: str) -> Token:
        token = self._take(kind)
        if token is None:
            raise self._unexpected("a text in quotes" if kind == STRING else kind)
        return token

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._token
        found = "the end" if token.kind == END else repr(token.text[:40])
        return ExpressionError(f"found {found}, expected {wanted}", token.position)

    @contextmanager
    def _deeper(self, at: Token) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(at)
        yield
        self._depth -= 1

    @staticmethod
    def _made(at: Token, make: Callable[P, Node], *args: P.args, **kwargs: P.kwargs) -> Node:
        try:
            node = make(*args, **kwargs)
        except nodes.Refused as refused:
            raise ExpressionError(str(refused), at.position) from None
        if node.depth > 2 * MAX_DEPTH:
            raise _too_deep(at)
        return node


def _too_deep(at: Token) -> ExpressionError:
    return ExpressionError(f"more than {MAX_DEPTH} expressions inside each other", at.position)


def _whole(token: Token) -> int:
    digits = token.text.rstrip("lL")
    number = int(digits) if len(digits) <= _MAX_DIGITS else MAX_LONG + 1
    if number > MAX_LONG:
        raise ExpressionError(f"a whole number is at most {MAX_LONG}", token.position)
    return number if number <= MAX_INTEGER else Long(number)


def _decimal(token: Token) -> float:
    number = float(token.text)
    if math.isinf(number) or number == 0:
        # 0.0 as well: Apache compares with the smallest number above zero.
        raise ExpressionError("a decimal number must not be zero or infinite", token.position)
    return number
