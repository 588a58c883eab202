"""A compiled condition, and what it says of a message's properties.

Source: ExpressionMessageFilter.isMatchedByCommitLog, MessageEvaluationContext (5.4.0).
"""

from collections.abc import Mapping
from typing import Final

from rocketpy.errors import ExpressionError
from rocketpy.sql92.java_values import MismatchError, Value
from rocketpy.sql92.parser import Parser

MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Longest condition; Apache knows no limit."""

_NODE_BYTES: Final = 100
"""Estimated memory of what becomes of one character."""


class Condition:
    """A condition that messages are filtered by; safe from any thread.

    Attributes:
        expression: as written.
        names: the properties that it mentions.
        ignored_from: where the part begins that Apache ignores, a character from 0; None when the
            whole expression is the condition.
    """

    __slots__ = ("_evaluate", "_keys", "expression", "ignored_from", "names")

    def __init__(self, expression: str) -> None:
        if len(expression) > MAX_EXPRESSION_CHARS:
            reason = f"the expression has {len(expression)} characters, at most "
            raise ExpressionError(f"{reason}{MAX_EXPRESSION_CHARS}", MAX_EXPRESSION_CHARS)
        parser = Parser(expression)
        node, self.ignored_from = parser.parse()
        self.expression = expression
        self.names = frozenset(parser.names)
        self._evaluate = node.evaluate
        keys = [(name, b"\x02%b\x01" % name.encode()) for name in sorted(self.names)]
        self._keys = [(name, key, len(key)) for name, key in keys]

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return 1_000 + _NODE_BYTES * len(self.expression)

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Compute it: True, False, or None for neither.

        Raises:
            MismatchError: Java cannot compare two of the values.
        """
        return self._evaluate(properties.get)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is taken."""
        try:
            return self._evaluate(properties.get) is True
        except MismatchError:
            return False

    def matches_stored(self, properties: bytes) -> bool:
        """The same, by the properties as a record stores them: only those it mentions are read."""
        searched = b"\x02%b\x02" % properties
        found: dict[str, str] = {}
        for name, key, key_bytes in self._keys:
            at = searched.rfind(key)
            while at >= 0:  # the last one that has a value counts
                start = at + key_bytes
                value = searched[start : searched.index(b"\x02", start)]
                if value:
                    found[name] = value.decode("utf-8", "replace")
                    break
                at = searched.rfind(key, 0, at)
        try:
            return self._evaluate(found.get) is True
        except MismatchError:
            return False


def compile_condition(expression: str) -> Condition:
    """Compile a condition.

    Raises:
        ExpressionError: it is no condition, too long or too deep; says where.
    """
    return Condition(expression)
