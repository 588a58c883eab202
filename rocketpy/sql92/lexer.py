"""Splits text into tokens on demand: text after a complete condition is never read.

Source: the token part of SelectorParser.jj (5.4.0).
"""

import re
from typing import Final, NamedTuple

from rocketpy.errors import ExpressionError

KEYWORDS: Final = frozenset(
    {
        "NOT",
        "AND",
        "OR",
        "BETWEEN",
        "IN",
        "TRUE",
        "FALSE",
        "NULL",
        "IS",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    }
)

NAME: Final = "name"
STRING: Final = "string"
INTEGER: Final = "integer"
DECIMAL: Final = "decimal"
END: Final = "end"

# A comment ends with its line; without a line end it is two minus signs.
_BLANK: Final = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*(?s:.*?)\*/)+")
_TOKEN: Final = re.compile(
    r"""
      (?P<decimal> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                 | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<integer> 0 | [1-9][0-9]*[lL]? )
    | (?P<string>  '[^']*(?:''[^']*)*' )
    | (?P<name>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign>    <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)
_SHOWN_CHARS: Final = 20


class Token(NamedTuple):
    """Token of an expression.

    Attributes:
        kind: a keyword in capitals, a sign, or `name`, `string`, `integer`, `decimal`, `end`.
        text: as written.
        position: of its first character in the expression, from 0.
    """

    kind: str
    text: str
    position: int


class Lexer:
    """Splits an expression into tokens."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._position = 0

    def next(self) -> Token:
        """Return the next token, of kind `end` when there is none.

        Raises:
            ExpressionError: the text at the position is not a token.
        """
        expression = self._expression
        blank = _BLANK.match(expression, self._position)
        at = blank.end() if blank is not None else self._position
        if at == len(expression):
            self._position = at
            return Token(END, "", at)
        found = _TOKEN.match(expression, at)
        if found is None:
            shown = expression[at : at + _SHOWN_CHARS]
            reason = "a text without its closing quote" if shown[0] == "'" else "no such sign"
            raise ExpressionError(f"{reason}: {shown!r}", at)
        self._position = found.end()
        text, kind = found[0], str(found.lastgroup)
        if kind == "sign":
            kind = text
        elif kind == NAME and text.upper() in KEYWORDS:
            kind = text.upper()
        return Token(kind, text, at)
