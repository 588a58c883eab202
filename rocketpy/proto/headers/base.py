"""Base of header classes: conversion of fields to the ext fields of a command and back.

A header class declares its fields once::

    @header
    class GetMinOffsetRequestHeader(Header):
        topic: str
        queue_id: Int32

A field without a default is required. Its wire name is its name in camel case, unless `wire_names`
has another one. Parsers and formatters of fields are determined once, not for each call.

Source: CommandCustomHeader, RemotingCommand.decodeCommandCustomHeader of 5.4.0.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
)

from rocketpy.errors import HeaderFieldError
from rocketpy.proto.wire.wire_fields import Declared, camel_case, wire_dataclass

Int32 = Annotated[int, "i32"]
"""Java int."""
Int64 = Annotated[int, "i64"]
"""Java long."""

_MAX_DIGITS: Final = 20


def _parse_int(name: str, text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in {"-", "+"} else text
    if not digits.isdecimal():
        raise HeaderFieldError(name, "is not a decimal integer")
    value = int(text) if len(text) <= _MAX_DIGITS else 1 << bits
    limit = 1 << (bits - 1)
    if -limit <= value < limit:
        return value
    raise HeaderFieldError(name, f"does not fit in {bits} bits")


def parse_int32(name: str, text: str) -> int:
    """Parse a Java int; raise HeaderFieldError with the field `name`."""
    return _parse_int(name, text, 32)


def parse_int64(name: str, text: str) -> int:
    """Parse a Java long; raise HeaderFieldError with the field `name`."""
    return _parse_int(name, text, 64)


def parse_bool(name: str, text: str) -> bool:  # noqa: ARG001 - same signature as the others
    """Parse a Java boolean: `true` in any case is true, everything else is false."""
    return text.lower() == "true"


def _parse_str(name: str, text: str) -> str:  # noqa: ARG001 - same signature as the others
    return text


_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "i32": parse_int32,
    "i64": parse_int64,
}


SAFE_INT_DIGITS: Final = 9
SAFE_LONG_DIGITS: Final = 18
"""Numbers with this many digits and without a sign always fit a Java int, or a long."""
_SAFE_DIGITS: Final[dict[Callable[[str, str], Any], int]] = {
    parse_int32: SAFE_INT_DIGITS,
    parse_int64: SAFE_LONG_DIGITS,
}


class HeaderField(NamedTuple):
    """Parser and formatter of a field."""

    name: str
    wire_name: str
    parse: Callable[[str, str], Any]
    is_required: bool
    default: Any


def _parser(hint: object) -> Callable[[str, str], Any]:
    """Return the parser for a type hint."""
    for option in (hint, *get_args(hint)):
        for mark in getattr(option, "__metadata__", ()):
            if mark in _PARSERS:
                return _PARSERS[mark]
        if option is bool:
            return parse_bool
        if option is str:
            return _parse_str
    msg = f"no wire form for a header field of type {hint}"
    raise TypeError(msg)


class Header(Declared):
    """Base of all header classes; see the module docstring."""

    __slots__ = ()

    _read: ClassVar[Callable[[Mapping[str, str]], Any] | None] = None
    _write: ClassVar[Callable[[Any], dict[str, str]] | None] = None

    @classmethod
    def from_ext(cls, ext_fields: Mapping[str, str]) -> Self:
        """Parse the header; unknown fields are ignored.

        A number or boolean that is the empty text counts as absent.

        Raises:
            HeaderFieldError: a required field is absent, or a value has another type.
        """
        read = cls._read
        if read is None:
            read = cls._read = staticmethod(_make_reader(cls))
        header: Self = read(ext_fields)
        return header

    def to_ext(self) -> dict[str, str]:
        """Return the header as ext fields, without those that are None."""
        cls = self.__class__
        write = cls._write
        if write is None:
            write = cls._write = staticmethod(_make_writer(cls))
        return write(self)


# Nearly every request has a header to parse. Code that is generated from the fields, as `dataclass`
# does, takes a third of the time of a loop over them; it is generated on first use.

_READ_TEXT: Final = (
    "text = get({wire_name!r})\nheader.{name} = {otherwise} if text is None else text"
)
_READ_OTHER: Final = """\
text = get({wire_name!r})
header.{name} = parse_{name}({shown!r}, text) if text else {otherwise}"""
_READ_NUMBER: Final = """\
text = get({wire_name!r})
if text and len(text) <= {digits} and text.isdecimal():
    header.{name} = int(text)
else:
    header.{name} = parse_{name}({shown!r}, text) if text else {otherwise}"""
_WRITE: Final = """\
value = header.{name}
if value is not None:
    ext_fields[{wire_name!r}] = {text}"""


def _make_reader(cls: type[Header]) -> Callable[[Mapping[str, str]], Any]:
    """Generate the parser of a header class."""
    names: dict[str, Any] = {"make": object.__new__, "cls": cls, "require": _require}
    lines = ["get, header = ext_fields.get, make(cls)"]
    for name, wire_name, parse, is_required, default in header_fields(cls):
        names[f"parse_{name}"], names[f"default_{name}"] = parse, default
        # One-letter wire names would be unclear in errors.
        shown = wire_name if len(wire_name) > 1 else f"{wire_name} ({camel_case(name)})"
        otherwise = f"require({shown!r})" if is_required else f"default_{name}"
        digits = _SAFE_DIGITS.get(parse)
        template = _READ_OTHER if digits is None else _READ_NUMBER
        template = _READ_TEXT if parse is _parse_str else template
        lines.append(
            template.format(
                name=name, wire_name=wire_name, shown=shown, otherwise=otherwise, digits=digits
            )
        )
    return _make_function("read(ext_fields)", [*lines, "return header"], names)


def _make_writer(cls: type[Header]) -> Callable[[Any], dict[str, str]]:
    """Generate the formatter of a header class."""
    lines = ["ext_fields = {}"]
    for name, wire_name, parse, *_ in header_fields(cls):
        text = "'true' if value else 'false'" if parse is parse_bool else "str(value)"
        text = "value" if parse is _parse_str else text
        lines.append(_WRITE.format(name=name, wire_name=wire_name, text=text))
    return _make_function("write(header)", [*lines, "return ext_fields"], {})


def _make_function(signature: str, lines: list[str], names: dict[str, Any]) -> Callable[[Any], Any]:
    source = f"def {signature}:\n" + textwrap.indent("\n".join(lines), "    ")
    exec(source, names)  # noqa: S102 - generated from field names of RocketPy's classes
    function: Callable[[Any], Any] = names[signature.partition("(")[0]]
    return function


def _require(shown: str) -> NoReturn:
    raise HeaderFieldError(shown, "is required")


_H = TypeVar("_H", bound=Header)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def header(cls: type[_H]) -> type[_H]:
    """Create a header class: a slotted dataclass with its wire form.

    Type checkers treat it as frozen. At run time it is not, because Python's frozen classes
    take several times as long to create, and most requests create one.
    """
    made = wire_dataclass(cls, kw_only=True)
    made._read = made._write = None  # noqa: SLF001 - not inherited ones
    return made


def header_fields(cls: type[Header]) -> list[HeaderField]:
    """Return the fields of a header class, in the order of their declaration."""
    found = []
    for item in fields(cls):  # type: ignore[arg-type]  # `header` has made it a dataclass
        is_required = item.default is MISSING
        assert is_required or item.default is not None or NoneType in get_args(item.type)
        default = None if is_required else item.default
        wire_name = cls.wire_name(item.name)
        found.append(HeaderField(item.name, wire_name, _parser(item.type), is_required, default))
    return found
