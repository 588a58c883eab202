"""Conversion of texts to values of configuration keys and back: numbers, texts, enums, lists.

Parsing is strict: a text that is not a value of the type within its bounds is a `ValueError`.
"""

import enum
import ipaddress
import math
import re
import socket
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_SCALARS = (bool, int, float, str, Path)


@dataclass(frozen=True, slots=True)
class OptionType:
    """Type of a key's value.

    Attributes:
        scalar: bool, int, float, str, Path or an Enum; of the items when a list.
        is_list: whether the value is a tuple of scalars.
        optional: whether an empty text means None.
        minimum: smallest allowed number, or None.
        maximum: largest allowed number, or None.
        choices: allowed values; empty for any.
        separator: between the items of a list.
    """

    scalar: type[Any]
    is_list: bool = False
    optional: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    separator: str = ";"

    @classmethod
    def from_hint(cls, hint: Any, metadata: Mapping[str, Any]) -> "OptionType":  # noqa: ANN401
        """Convert an annotation: a scalar, `tuple[scalar, ...]`, or either with `| None`."""
        optional = False
        choices = tuple(metadata.get("choices") or ())
        if typing.get_origin(hint) in {types.UnionType, typing.Union}:
            others = [each for each in typing.get_args(hint) if each is not types.NoneType]
            assert len(others) == 1, f"a configuration value cannot be {hint}"
            hint, optional = others[0], True
        is_list = typing.get_origin(hint) in {tuple, list}
        if is_list:
            hint = typing.get_args(hint)[0]
        if typing.get_origin(hint) is typing.Literal:
            choices, hint = typing.get_args(hint), str
        assert isinstance(hint, type), f"a configuration value cannot be {hint}"
        assert issubclass(hint, (*_SCALARS, enum.Enum)), f"a configuration value cannot be {hint}"
        return cls(
            scalar=hint,
            is_list=is_list,
            optional=optional,
            minimum=metadata.get("min"),
            maximum=metadata.get("max"),
            choices=choices,
            separator=metadata.get("separator", ";"),
        )


def parse_value(text: str, option_type: OptionType) -> Any:  # noqa: ANN401 - any field's value
    """Parse a text.

    Raises:
        ValueError: the text is not a value of that type, or out of bounds.
    """
    text = text.strip()
    if option_type.optional and text in {"", "null"}:
        return None
    if option_type.is_list:
        # A blank as separator matches any number of blanks.
        parts = text.split(option_type.separator if option_type.separator.strip() else None)
        items = [part.strip() for part in parts]
        return tuple(_scalar(item, option_type) for item in items if item)
    return _scalar(text, option_type)


def value_text(value: Any, option_type: OptionType) -> str:  # noqa: ANN401 - any field's value
    """Format a value as text that `parse_value` accepts."""
    if value is None:
        return ""
    if option_type.is_list:
        return option_type.separator.join(_scalar_text(item) for item in value)
    return _scalar_text(value)


def allowed(option_type: OptionType) -> str:
    """Describe in words the values that `parse_value` accepts."""
    scalar = option_type.scalar
    if option_type.choices:
        words = "one of " + ", ".join(map(str, option_type.choices))
    elif issubclass(scalar, bool):
        words = "true or false"
    elif issubclass(scalar, enum.Enum):
        words = "one of " + ", ".join(_enum_text(member) for member in scalar)
    elif issubclass(scalar, int | float):
        words = "a whole number" if issubclass(scalar, int) else "a number"
        if option_type.minimum is not None and option_type.maximum is not None:
            words += f" from {option_type.minimum} to {option_type.maximum}"
        elif option_type.minimum is not None:
            words += f", at least {option_type.minimum}"
        elif option_type.maximum is not None:
            words += f", at most {option_type.maximum}"
    else:
        words = "text"
    return f"a list of ({words})" if option_type.is_list else words


def _scalar(text: str, option_type: OptionType) -> Any:  # noqa: ANN401 - any field's value
    scalar = option_type.scalar
    if option_type.choices and text not in option_type.choices:
        raise ValueError(text)
    if issubclass(scalar, bool):
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.lower() == "true"
    if issubclass(scalar, enum.Enum):
        for member in scalar:
            if text in {member.name, member.value}:
                return member
        raise ValueError(text)
    if issubclass(scalar, int):
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        return _bounded(int(text), option_type)
    if issubclass(scalar, float):
        number = float(text)
        if not math.isfinite(number):
            raise ValueError(text)
        return _bounded(number, option_type)
    return scalar(text)


def _enum_text(member: enum.Enum) -> str:
    """Return the text of a member: its value if that is a text, else its name."""
    return member.value if isinstance(member.value, str) else member.name


def _bounded(number: float, option_type: OptionType) -> float:
    low = _LONG_MIN if option_type.minimum is None else option_type.minimum
    high = _LONG_MAX if option_type.maximum is None else option_type.maximum
    if not low <= number <= high:
        raise ValueError(number)
    return number


def _scalar_text(value: Any) -> str:  # noqa: ANN401 - any field's value
    if isinstance(value, bool):
        return "true" if value else "false"
    return _enum_text(value) if isinstance(value, enum.Enum) else str(value)


def is_wildcard(host: str) -> bool:
    """Return whether a host is `0.0.0.0` or `::`, in any notation: no other machine reaches it.

    Args:
        host: name or address.
    """
    text = host.strip().strip("[]")
    try:
        if ":" in text:
            return ipaddress.ip_address(text).is_unspecified
        return socket.inet_aton(text) == bytes(4)  # also "0" and "0.0"
    except (OSError, ValueError):  # a name
        return False
