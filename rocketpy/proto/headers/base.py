"""What all header classes share: fields to and from the ext fields of a command.

A header class declares its fields once::

    @header
    class GetMinOffsetRequestHeader(Header):
        topic: str
        queue_id: Int32

A field without a default is required. Its wire name is its own in camel case,
unless ``wire_names`` says otherwise. How each field is read and written is worked
out when the class is made, not per call.

Source: CommandCustomHeader, RemotingCommand.decodeCommandCustomHeader of 5.4.0.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from rocketpy.errors import HeaderFieldError

Int32 = Annotated[int, "i32"]
"""A Java int."""
Int64 = Annotated[int, "i64"]
"""A Java long."""

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
    """Read a Java int; raises HeaderFieldError naming the field ``name``."""
    if len(text) <= 9 and text.isdecimal():
        return int(text)
    return _parse_int(name, text, 32)


def parse_int64(name: str, text: str) -> int:
    """Read a Java long; raises HeaderFieldError naming the field ``name``."""
    if len(text) <= 18 and text.isdecimal():
        return int(text)
    return _parse_int(name, text, 64)


def parse_bool(name: str, text: str) -> bool:  # noqa: ARG001 - called like the others
    """Read a Java boolean: ``true`` in any case is true, everything else is false."""
    return text.lower() == "true"


def _parse_str(name: str, text: str) -> str:  # noqa: ARG001 - called like the others
    return text


_PARSERS: Final[dict[str, Callable[[str, str], Any]]] = {
    "i32": parse_int32,
    "i64": parse_int64,
}


class _FieldSpec(NamedTuple):
    name: str
    wire_name: str
    parse: Callable[[str, str], Any]
    is_text: bool
    is_required: bool
    default: Any


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _parser(hint: object) -> Callable[[str, str], Any]:
    """Return how values of a field with this type hint are read."""
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


class Header:
    """Base of all header classes; see the module's text."""

    __slots__ = ()

    wire_names: ClassVar[Mapping[str, str]] = {}
    """Wire names that are not the field's name in camel case."""

    specs: ClassVar[tuple[_FieldSpec, ...]] = ()

    @classmethod
    def from_ext(cls, ext_fields: Mapping[str, str]) -> Self:
        """Read the header; fields it does not know are ignored.

        A number or boolean that is the empty text counts as absent.

        Raises:
            HeaderFieldError: a required field is absent, or a value does not fit its type.
        """
        values: dict[str, Any] = {}
        for name, wire_name, parse, is_text, is_required, default in cls.specs:
            text = ext_fields.get(wire_name)
            if text or (is_text and text is not None):
                values[name] = text if is_text else parse(wire_name, text)
            elif is_required:
                raise HeaderFieldError(wire_name, "is required")
            else:
                values[name] = default
        return cls(**values)

    def to_ext(self) -> dict[str, str]:
        """Return the header as ext fields; None is left out."""
        ext_fields: dict[str, str] = {}
        for name, wire_name, *_ in self.specs:
            value = getattr(self, name)
            if value is None:
                continue
            if value.__class__ is str:
                ext_fields[wire_name] = value
            elif value is True:
                ext_fields[wire_name] = "true"
            elif value is False:
                ext_fields[wire_name] = "false"
            else:
                ext_fields[wire_name] = str(value)
        return ext_fields


_H = TypeVar("_H", bound=Header)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def header(cls: type[_H]) -> type[_H]:
    """Make a header class: a slotted dataclass with its wire forms worked out.

    Type checkers treat it as frozen. At run time it is not, because Python's frozen classes
    take several times as long to make, and one is made for most requests.
    """
    made = dataclass(slots=True, kw_only=True)(cls)
    hints = get_type_hints(made, include_extras=True)
    specs = []
    for item in fields(made):  # type: ignore[arg-type]  # it is a dataclass since two lines ago
        parse = _parser(hints[item.name])
        is_required = item.default is MISSING
        assert is_required or item.default is not None or NoneType in get_args(hints[item.name])
        specs.append(
            _FieldSpec(
                item.name,
                made.wire_names.get(item.name, _camel_case(item.name)),
                parse,
                parse is _parse_str,
                is_required,
                None if is_required else item.default,
            )
        )
    made.specs = tuple(specs)
    return made
