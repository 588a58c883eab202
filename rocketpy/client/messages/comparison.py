"""Comparison of a body with the value that its readers would get.

Equality of Python is not enough: `True == 1`, members of an enum equal their text, and classes
may define an equality of other fields than those that are written.
"""

import dataclasses
from collections import deque
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any, Final
from uuid import UUID

_BYTES: Final = (bytes, bytearray, memoryview)
_SETS: Final = (set, frozenset)
_SCALARS: Final = frozenset((str, int, float, bool, NoneType, bytes, bytearray, UUID, timedelta))
_BASES: Final = frozenset((str, int, float, date, datetime, time, timedelta, list, dict))
"""Types as which the values of their subclasses may be read."""


def difference(value: Any, read: Any, *, swaps_arrays: bool) -> str:  # noqa: ANN401
    """Return where and why a value differs from the one that was read, empty if it does not.

    Args:
        value: what was written.
        read: what was read.
        swaps_arrays: whether a tuple may be read as a list, and a set as a frozenset; not in
            types in which a reader chooses between them.

    Raises:
        ValueError: the values are nested too deeply, or cannot be compared.
    """
    try:
        found = _difference(value, read, swaps_arrays)
    except RecursionError as error:
        raise ValueError("body is nested too deeply") from error
    return f"body{found}" if found else ""


def _difference(value: Any, read: Any, swaps: bool) -> str:  # noqa: ANN401
    kind: Any = type(read)
    if type(value) is not kind and not _stands_for(value, kind, swaps):
        if read is None and isinstance(value, float):
            return ": NaN and infinities have no form in JSON"
        return f": a {type(value).__name__} would be read as a {kind.__name__}"
    if kind in _SCALARS:
        is_nan = value != value and read != read  # noqa: PLR0124
        return "" if value == read or is_nan else _changed(value, read)
    names = _field_names(kind)
    if names is None:
        return _other_difference(value, read, swaps)
    for name in names:
        one, other = getattr(value, name, None), getattr(read, name, None)
        # Most fields are scalars; a call of this function for each takes twice the time.
        if one is other or (type(one) is type(other) in _SCALARS and one == other):
            continue
        found = _difference(one, other, swaps)
        if found:
            return f".{name}{found}"
    extra = getattr(value, "__pydantic_extra__", None)
    return _entries(extra, read.__pydantic_extra__ or {}, swaps) if extra else ""


def _other_difference(value: Any, read: Any, swaps: bool) -> str:  # noqa: ANN401
    """Return the difference of two values that are neither scalars nor have fields."""
    if isinstance(read, list | tuple | deque):
        return _items(value, read, swaps)
    if isinstance(read, dict):
        return _entries(value, read, swaps)
    if isinstance(read, datetime | time):
        is_same = value.tzinfo is read.tzinfo and value == read
        is_same = is_same or _wall_clock(value) == _wall_clock(read)
    elif isinstance(read, Decimal):
        is_same = str(value) == str(read) if isinstance(value, Decimal) else _is_number(value, read)
    else:
        is_same = _equals(value, read, swaps)
    return "" if is_same else _changed(value, read)


def _entries(value: dict[Any, Any], read: dict[Any, Any], swaps: bool) -> str:
    for key, each in value.items():
        if key not in read:
            return f": the key {key!r} is not of its type, and would be changed or dropped"
        found = _difference(each, read[key], swaps)
        if found:
            return f"[{key!r}]{found}"
    return "" if len(value) == len(read) else ": keys would be added"


def _items(value: Any, read: Any, swaps: bool) -> str:  # noqa: ANN401
    if len(value) != len(read):
        return f": its {len(value)} items would be read as {len(read)}"
    for at, (one, other) in enumerate(zip(value, read, strict=True)):
        found = _difference(one, other, swaps)
        if found:
            return f"[{at}]{found}"
    return ""


def _stands_for(value: Any, kind: type, swaps: bool) -> bool:  # noqa: ANN401
    """Return whether a value of another type may be read as a `kind`, if both are equal."""
    if isinstance(value, bool) or (kind is date and isinstance(value, datetime)):
        return False
    if isinstance(value, int | float) and kind in {float, Decimal}:
        return True
    if kind in _BASES:
        return isinstance(value, kind) or (swaps and kind is list and type(value) is tuple)
    if kind in _BYTES:
        return isinstance(value, _BYTES)
    if kind in _SETS:
        return swaps and isinstance(value, _SETS)
    return swaps and issubclass(kind, tuple) and type(value) in {list, tuple}


def _is_number(value: float, read: Decimal) -> bool:
    """Return whether a number was read as a Decimal of its shortest text."""
    return bool(type(value)(read) == value)


def _wall_clock(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a datetime or time
    """Return what is written of a time; equality fails in the hour that clocks repeat."""
    return value.replace(tzinfo=None, fold=0), value.utcoffset(), value.tzinfo is None


def _equals(value: Any, read: Any, swaps: bool) -> bool:  # noqa: ANN401
    if value == read:
        return True
    kind: Any = type(value)
    is_plain = kind.__eq__ is object.__eq__ and hasattr(value, "__dict__")
    return is_plain and not _difference(vars(value), vars(read), swaps)


def _changed(value: Any, read: Any) -> str:  # noqa: ANN401
    """Return why a value was changed, without the value, which may be a secret."""
    if isinstance(value, int) and isinstance(read, float):
        return ": a float cannot hold this int; use a smaller one, or the type int"
    if isinstance(value, datetime | time):
        return ": its offset from UTC cannot be written in whole minutes; convert it to UTC"
    return f": this {type(value).__name__} would be read as another value"


@lru_cache(maxsize=512)
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a class, None if it has none."""
    if hasattr(kind, "model_fields"):
        return tuple(kind.model_fields)
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind))
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(each.name for each in kind.__attrs_attrs__)
    return tuple(kind.__struct_fields__) if hasattr(kind, "__struct_fields__") else None
