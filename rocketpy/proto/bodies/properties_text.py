"""Configuration as text: one ``key=value`` a line, as Java's Properties reads and writes it.

Bodies of 25, 26, 318 and 319, and the configuration files themselves.

Source: MixAll.properties2String and java.util.Properties.
"""

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["decode_properties_text", "encode_properties_text"]

_KEY: Final = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    plain = _ESCAPE.sub(replace, text).rstrip("\\")
    # Escaped surrogate pairs become one character; half a pair becomes U+FFFD.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _logical_lines(text: str) -> list[str]:
    """Join lines that end in an odd number of backslashes; drop comments and blanks."""
    lines: list[str] = []
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    if pending:
        lines.append(pending)
    return lines


def decode_properties_text(data: bytes | str) -> dict[str, str]:
    """Read properties; bytes that are not UTF-8 become U+FFFD. Never raises.

    The last of repeated keys wins, blanks around key and separator go, escapes and
    continued lines are understood. A value keeps its trailing blanks, as in Java.
    """
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # every part of the pattern may be empty
        properties[_unescape(match[1])] = _unescape(match[2])
    return properties


def encode_properties_text(properties: Mapping[str, str]) -> bytes:
    """Return sorted ``key=value`` lines, as Apache answers configuration requests.

    Like Apache it escapes nothing: values with line breaks do not survive.
    """
    return "".join(f"{key}={properties[key]}\n" for key in sorted(properties)).encode()
