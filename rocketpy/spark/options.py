"""Declaration of the formats' options: one field each, for parsing, checks and documentation.

An options class is a frozen dataclass with fields `option(...)`. Spark passes options as texts;
`parse_options` makes one typed value of them. Names are case-insensitive, as Spark's are. An
unknown name is an error that suggests the nearest one.

Example:
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Options:
    ...     batch_size: int = option("batchSize", whole(1), 1024, about="rows of a batch")
    >>> parse_options({"BATCHSIZE": "7"}, Options)
    Options(batch_size=7)
"""

import difflib
import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final, TypeVar

from rocketpy.errors import ConfigError

T = TypeVar("T")

OF_SPARK: Final = frozenset({"checkpointlocation", "path", "queryname", "outputmode"})
"""Options that Spark adds to those of a query; ignored unless declared."""

_BYTE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_UNITS_MS: Final = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_OPTION: Final = "option"
_QUERIES: Final = (
    ("streams (readStream)", "rocketpy.spark.read_options", "StreamOptions"),
    ("batch reads of topics", "rocketpy.spark.read_options", "BatchOptions"),
    ("writes", "rocketpy.spark.sink.options", "SinkOptions"),
    ("reads of store directories", "rocketpy.spark.store_source.options", "StoreOptions"),
)
"""Queries and where their options are declared; imported for error messages only."""


@dataclass(frozen=True, slots=True)
class Option:
    """Declaration of an option.

    Attributes:
        name: as documented; case-insensitive.
        parse: text to value; its ValueError is the rest of a sentence about the text.
        about: description for the docs.
        aliases: other names.
        is_secret: hidden in errors and reprs.
        shown: the default in the docs, where the value itself is not clear.
        field: the attribute of its class.
        default: value when the option is not given.
        is_required: the option must be given.
    """

    name: str
    parse: Callable[[str], Any]
    about: str
    aliases: tuple[str, ...] = ()
    is_secret: bool = False
    shown: str = ""
    field: str = ""
    default: Any = None
    is_required: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Name and aliases."""
        return self.name, *self.aliases


def option(
    name: str,
    parse: Callable[[str], Any],
    default: Any = MISSING,  # noqa: ANN401 - of any field's type
    *,
    about: str,
    aliases: tuple[str, ...] = (),
    is_secret: bool = False,
    shown: str = "",
) -> Any:  # noqa: ANN401 - a field of any type
    """Declare an option as a field of a frozen dataclass; see `Option` for the arguments."""
    declared = Option(name, parse, about, aliases, is_secret, shown)
    return field(default=default, repr=not is_secret, metadata={_OPTION: declared})


def options_of(kind: type[Any]) -> list[Option]:
    """Return the options that a class declares, in their order."""
    return [
        replace(
            each.metadata[_OPTION],
            field=each.name,
            default=None if each.default is MISSING else each.default,
            is_required=each.default is MISSING,
        )
        for each in fields(kind)
    ]


def parse_options(options: Mapping[str, str], kind: type[T]) -> T:
    """Parse texts into one typed value.

    Args:
        options: names to texts, from Spark.
        kind: the options class.

    Raises:
        ConfigError: a name that `kind` does not declare (with the nearest one), an invalid text,
            an option given by two of its names, or a missing one.
    """
    known = {name.lower(): each for each in options_of(kind) for name in each.names}
    values: dict[str, Any] = {}
    for name, text in options.items():
        declared = known.get(name.lower())
        if declared is None:
            if name.lower() in OF_SPARK:
                continue
            raise ConfigError(_unknown(name, kind), key=name)
        if declared.field in values:
            raise ConfigError(f"is given twice, also as {name}", key=declared.name)
        values[declared.field] = _parsed(declared, text)
    for each in options_of(kind):
        if each.is_required and each.field not in values:
            raise ConfigError("is required", key=each.name)
    return kind(**values)


def parse_known(options: Mapping[str, str], kind: type[T]) -> T:
    """Parse the options that `kind` declares, and ignore the others."""
    known = {name.lower() for each in options_of(kind) for name in each.names}
    return parse_options({k: v for k, v in options.items() if k.lower() in known}, kind)


def _parsed(declared: Option, text: str) -> Any:  # noqa: ANN401 - of the field's type
    try:
        return declared.parse(text)
    except ValueError as error:
        shown = "its value" if declared.is_secret else repr(text)
        raise ConfigError(f"{shown} {error}", key=declared.name) from None


def _unknown(name: str, kind: type[Any]) -> str:
    known = {each.lower(): each for one in options_of(kind) for each in one.names}
    others = ", ".join(_queries_with(name))
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.85 if others else 0.6)
    where = f" of this query, it is for {others}" if others else ""
    return f"no such option{where}" + (f"; did you mean {known[close[0]]}?" if close else "")


def _queries_with(name: str) -> list[str]:
    """Return the queries that accept an option of this name."""
    found = []
    for words, module, kind in _QUERIES:
        declared = options_of(getattr(importlib.import_module(module), kind))
        if any(name.lower() == known.lower() for each in declared for known in each.names):
            found.append(words)
    return found


# ---- parsers: text to value, or a ValueError that ends the sentence "option: 'text' ..."


def text(value: str) -> str:
    """Return a text unchanged; raise for an empty one."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def whole(minimum: int, maximum: int = (1 << 63) - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers within bounds."""

    def parse(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", value.strip()):
            raise ValueError("is not a whole number")
        number = int(value)
        if number < minimum:
            raise ValueError(f"is less than {minimum}")
        if number > maximum:
            raise ValueError(f"is more than {maximum}")
        return number

    return parse


def boolean(value: str) -> bool:
    """Parse `true` or `false`, case-insensitive."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    if found is None:
        raise ValueError("is neither true nor false")
    return found


def choice(*allowed: str) -> Callable[[str], str]:
    """Return a case-insensitive parser of one of some words."""

    def parse(value: str) -> str:
        for each in allowed:
            if each.lower() == value.strip().lower():
                return each
        raise ValueError(f"is not one of {', '.join(allowed)}")

    return parse


def words(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    """Return a parser of comma-separated words; any word is allowed when none is named."""

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(each for part in value.split(",") if (each := part.strip())))
        for each in found:
            if allowed and each not in allowed:
                close = difflib.get_close_matches(each, allowed, n=1, cutoff=0.6)
                more = f"; did you mean {close[0]}?" if close else f" ({', '.join(allowed)})"
                raise ValueError(f"names {each!r}, which does not exist{more}")
        return found

    return parse


def size_bytes(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a parser of sizes: bytes, or with a unit as in `8m` (k, m, g: powers of 1024)."""

    def parse(value: str) -> int:
        found = re.fullmatch(r"([0-9]{1,18})\s*([kmg]?)(?:i?b)?", value.strip().lower())
        if found is None:
            raise ValueError("is not a size (bytes, or as 64k, 8m, 1g)")
        return whole(minimum, maximum)(str(int(found[1]) * _BYTE_UNITS[found[2]]))

    return parse


def duration_ms(value: str) -> int:
    """Parse a duration: ms, or with a unit as in `30s`, `15m`, `1h`."""
    found = re.fullmatch(r"([0-9]{1,15})\s*([a-z]*)", value.strip().lower())
    if found is None or found[2] not in _TIME_UNITS_MS:
        raise ValueError("is not a time (ms, or as 30s, 15m, 1h)")
    return int(found[1]) * _TIME_UNITS_MS[found[2]]


def pattern(value: str) -> str:
    """Check a regular expression."""
    try:
        re.compile(text(value))
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    return value.strip()
