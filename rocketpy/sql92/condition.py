"""A compiled condition, and what it says of a message's properties.

Source: ExpressionMessageFilter.isMatchedByCommitLog, MessageEvaluationContext (5.4.0).
"""

import itertools
from collections.abc import Mapping
from typing import Final

from rocketpy.errors import ExpressionError
from rocketpy.sql92.java_values import MismatchError, Value
from rocketpy.sql92.parser import Parser

MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Longest condition; Apache knows no limit."""

_NODE_BYTES: Final = 100
"""Estimated memory of what becomes of one character."""
_MOST_ANSWERS: Final = 4_096
_MOST_VALUE_BYTES: Final = 64
_MOST_VALUES: Final = 8

_numbers = itertools.count()
_answers: dict[tuple[int | bytes, ...], bool] = {}
"""Answers by condition and values, which repeat from message to message; 2 MiB at the most."""


class Condition:
    """A condition that messages are filtered by; safe from any thread.

    Attributes:
        expression: as written.
        names: the properties that it mentions.
        ignored_from: where the part begins that Apache ignores, a character from 0; None when the
            whole expression is the condition.
    """

    __slots__ = ("_evaluate", "_keys", "_names", "_number", "expression", "ignored_from", "names")

    def __init__(self, expression: str) -> None:
        if len(expression) > MAX_EXPRESSION_CHARS:
            reason = f"the expression has {len(expression)} characters, at most "
            raise ExpressionError(f"{reason}{MAX_EXPRESSION_CHARS}", MAX_EXPRESSION_CHARS)
        parser = Parser(expression)
        node, self.ignored_from = parser.parse()
        self.expression = expression
        self.names = frozenset(parser.names)
        self._evaluate = node.evaluate
        self._names = sorted(self.names)
        keys = [b"\x02%b\x01" % name.encode() for name in self._names]
        self._keys = [(key, len(key)) for key in keys]
        self._number = next(_numbers)

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
        found: list[int | bytes] = [self._number]
        for key, key_bytes in self._keys:
            at = searched.rfind(key)
            value = b""
            while at >= 0:  # the last one that has a value counts
                start = at + key_bytes
                value = searched[start : searched.index(b"\x02", start)]
                if value:
                    break
                at = searched.rfind(key, 0, at)
            found.append(value)
        values = tuple(found)
        answer = _answers.get(values)
        return self._answer(values) if answer is None else answer

    def _answer(self, values: tuple[int | bytes, ...]) -> bool:
        pairs = [
            (name, value)
            for name, value in zip(self._names, values[1:], strict=True)
            if isinstance(value, bytes) and value
        ]
        answer = self.matches({name: value.decode("utf-8", "replace") for name, value in pairs})
        if (
            sum(len(value) for _, value in pairs) <= _MOST_VALUE_BYTES
            and len(values) <= _MOST_VALUES
        ):
            if len(_answers) >= _MOST_ANSWERS:
                _answers.clear()
            _answers[values] = answer
        return answer


def compile_condition(expression: str) -> Condition:
    """Compile a condition.

    Raises:
        ExpressionError: it is no condition, too long or too deep; says where.
    """
    return Condition(expression)
