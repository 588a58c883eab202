"""Compiled conditions, and their evaluation on message properties.

Source: ExpressionMessageFilter.isMatchedByCommitLog, MessageEvaluationContext (5.4.0).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

from rocketpy.errors import ExpressionError
from rocketpy.sql92.java_values import MismatchError, Value

MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Longest condition; Apache has no limit."""

_NODE_BYTES: Final = 100
"""Estimated memory of the compiled form of one character."""
_MOST_ANSWERS: Final = 4_096
_MOST_VALUE_BYTES: Final = 64
_MOST_VALUES: Final = 8
_USUAL_OPERANDS: Final = 16

_numbers = itertools.count()
_answers: dict[tuple[int, tuple[bytes, ...]], bool] = {}
"""Cached results by condition and values, which repeat between messages; at most 3 MiB."""


class Condition:
    """Compiled filter condition; thread-safe.

    Attributes:
        expression: as written.
        names: the properties in it.
        stored_names: these names as stored in records, in the order that `match_values` expects.
        ignored_from: index of the first character that Apache ignores; None when the condition is
            the complete expression.
        weight: cost of an evaluation, in units of a common condition: at least 1.
    """

    __slots__ = (
        "_evaluate",
        "_keys",
        "_names",
        "_number",
        "expression",
        "ignored_from",
        "names",
        "stored_names",
        "weight",
    )

    def __init__(self, expression: str) -> None:
        if len(expression) > MAX_EXPRESSION_CHARS:
            reason = f"the expression has {len(expression)} characters, at most "
            raise ExpressionError(f"{reason}{MAX_EXPRESSION_CHARS}", MAX_EXPRESSION_CHARS)
        from rocketpy.sql92.parser import Parser  # noqa: PLC0415 - rarely needed, and slows the start

        parser = Parser(expression)
        node, ignored_from = parser.parse()
        self.ignored_from: int | None = ignored_from
        self.expression: str = expression
        self.names: frozenset[str] = frozenset(parser.names)
        self.weight: int = max(1, math.ceil(parser.operand_count / _USUAL_OPERANDS))
        self._evaluate = node.evaluate
        self._names = sorted(self.names)
        self.stored_names: tuple[bytes, ...] = tuple(name.encode() for name in self._names)
        keys = [b"\x02%b\x01" % name for name in self.stored_names]
        self._keys = [(key, len(key)) for key in keys]
        self._number = next(_numbers)

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return 1_000 + _NODE_BYTES * len(self.expression)

    def evaluate(self, properties: Mapping[str, str]) -> Value:
        """Evaluate the condition: True, False, or None for unknown.

        Raises:
            MismatchError: Java cannot compare two of the values.
        """
        return self._evaluate(properties.get)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether a message with these properties matches."""
        try:
            return self._evaluate(properties.get) is True
        except MismatchError:
            return False

    def matches_stored(self, properties: bytes) -> bool:
        """Return whether stored properties match; only those in the condition are parsed."""
        searched = b"\x02%b\x02" % properties
        found: list[bytes] = []
        for key, key_bytes in self._keys:
            at = searched.rfind(key)
            value = b""
            while at >= 0:  # the last one with a value counts
                start = at + key_bytes
                value = searched[start : searched.index(b"\x02", start)]
                if value:
                    break
                at = searched.rfind(key, 0, at)
            found.append(value)
        values = tuple(found)
        answer = _answers.get((self._number, values))
        return self._answer(values) if answer is None else answer

    def match_values(self, rows: Sequence[tuple[bytes, ...]]) -> list[bool]:
        """Match many messages by their values of `stored_names`; empty for a missing one."""
        keys = zip(itertools.repeat(self._number), rows, strict=False)
        answers = list(map(_answers.get, keys))
        if None not in answers:
            return cast("list[bool]", answers)
        return [
            self._answer(values) if answer is None else answer
            for values, answer in zip(rows, answers, strict=True)
        ]

    def _answer(self, values: tuple[bytes, ...]) -> bool:
        pairs = [(name, value) for name, value in zip(self._names, values, strict=True) if value]
        answer = self.matches({name: value.decode("utf-8", "replace") for name, value in pairs})
        if (
            sum(len(value) for _, value in pairs) <= _MOST_VALUE_BYTES
            and len(values) <= _MOST_VALUES
        ):
            if len(_answers) >= _MOST_ANSWERS:
                _answers.clear()
            _answers[self._number, values] = answer
        return answer


def compile_condition(expression: str) -> Condition:
    """Compile a condition that is the complete text.

    A broker accepts text after a condition and ignores it, so that a misspelt `AND` selects other
    messages than intended. Here it is an error.

    Raises:
        ExpressionError: the text is invalid, too long or too deep, or continues after the
            condition; the message names the position.
    """
    condition = Condition(expression)
    if condition.ignored_from is not None:
        rest = expression[condition.ignored_from :][:40]
        reason = f"the condition ends before {rest!r}: an operator is missing or misspelt"
        raise ExpressionError(reason, condition.ignored_from)
    return condition
