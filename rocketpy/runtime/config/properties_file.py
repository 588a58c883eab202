r"""Java `.properties` text: Apache's `broker.conf` and the bodies of remote configuration.

Lines end with `\n`, `\r` or `\r\n`. `#` or `!` begins a comment line. The key ends at
the first `=`, `:` or blank that is not escaped. `\t \n \r \f \uXXXX` are escapes; a
backslash at the end of a line continues it, and before any other character it stands for that
character.

Source: java.util.Properties.load
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rocketpy.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """Pair `key=value` with its line number (from 1)."""

    key: str
    value: str
    line: int


def parse_properties(text: str, *, source: str = "") -> list[Property]:
    """Parse every property in order; duplicate keys are kept (the last one counts).

    Args:
        text: the complete file.
        source: its name, for the error.

    Raises:
        ConfigError: a broken unicode escape.
    """
    found = []
    for line, logical in _logical_lines(text):
        key_end, value_start = _split(logical)
        try:
            key = _unescape(logical[:key_end])
            value = _unescape(logical[value_start:])
        except ValueError:
            reason = "\\u must be followed by four hexadecimal digits"
            raise ConfigError(reason, source=source, line=line, key=logical[:key_end]) from None
        # Java keeps blanks at the end of a value, which are always unintended.
        found.append(Property(key, value.strip(), line))
    return found


def read_properties(data: bytes, *, source: str = "") -> dict[str, str]:
    """Parse a file or body into a table; the last of duplicate keys counts.

    Args:
        data: UTF-8 text.
        source: its name, for the error.

    Raises:
        ConfigError: not UTF-8, or a broken unicode escape.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError("the text is not utf-8", source=source) from error
    return {each.key: each.value for each in parse_properties(text, source=source)}


def format_properties(values: Mapping[str, str]) -> str:
    """Format `key=value` lines sorted by key, escaped for Java and for this parser."""
    lines = []
    for key in sorted(values):
        value = values[key].replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{key}={value}\n")
    return "".join(lines)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Drop comments and join continued lines; yield each with its first line number."""
    lines: list[tuple[int, str]] = []
    pending: str | None = None
    first_line = 0
    for number, natural in enumerate(_LINE_END.split(text.removeprefix("\ufeff")), start=1):
        stripped = natural.lstrip(_BLANKS)
        if pending is None:
            if not stripped or stripped[0] in "#!":
                continue
            first_line, pending = number, stripped
        else:
            pending += stripped
        if _ends_in_backslash(stripped):
            pending = pending[:-1]
            continue
        lines.append((first_line, pending))
        pending = None
    if pending:
        lines.append((first_line, pending))
    return lines


def _ends_in_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(logical: str) -> tuple[int, int]:
    """Return the end of the key and the start of the value."""
    position, size = 0, len(logical)
    while position < size and logical[position] not in "=: \t\f":
        position += 2 if logical[position] == "\\" else 1
    key_end = min(position, size)
    position = key_end
    while position < size and logical[position] in _BLANKS:
        position += 1
    if position < size and logical[position] in "=:":
        position += 1
        while position < size and logical[position] in _BLANKS:
            position += 1
    return key_end, position


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (at := text.find("\\", position)) >= 0 and at + 1 < len(text):
        parts.append(text[position:at])
        escaped = text[at + 1]
        position = at + 2
        if escaped == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not digits.isalnum():
                raise ValueError(digits)
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escaped, escaped))
    parts.append(text[position:])
    # An escaped surrogate pair is one character; half a pair becomes U+FFFD.
    plain = "".join(parts)
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
