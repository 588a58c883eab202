"""Bodies that are values of one class: JSON outside, a dataclass or a pydantic model inside.

Example:
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     id: str
    ...     amount: int = 1
    >>> TypedSerializer(Order).loads(b'{"id": "o1"}')
    Order(id='o1', amount=1)
"""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import orjson

from rocketpy.client.messages.serializers import json
from rocketpy.errors import IllegalMessageError

T = TypeVar("T")

_FROM_TEXT: Final[dict[type, Any]] = {
    date: date.fromisoformat,
    datetime: datetime.fromisoformat,
    time: time.fromisoformat,
    Decimal: Decimal,
    UUID: UUID,
}
_MAX_DEPTH: Final = 100


class TypedSerializer(Generic[T]):
    """JSON of values of one class, checked when they are read.

    Takes a dataclass (fields may be dataclasses, pydantic models, enums, times, UUIDs, decimals,
    and lists, mappings and unions of them; fields it does not know are ignored), a pydantic model,
    or any other annotation of such values, as `list[Order]`.

    Args:
        kind: the class or annotation.
    """

    __slots__ = ("kind",)

    def __init__(self, kind: type[T]) -> None:
        self.kind: Any = kind

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401 - checked here
        """Return `value` as JSON.

        Raises:
            IllegalMessageError: JSON cannot hold it, or it is of another class.
        """
        if isinstance(self.kind, type) and not isinstance(value, self.kind):
            reason = f"the body is a {type(value).__name__}, not a {self.kind.__name__}"
            raise IllegalMessageError(reason)
        if hasattr(value, "model_dump_json"):
            text: str = value.model_dump_json()
            return text.encode()
        return json.dumps(value)

    def loads(self, data: bytes) -> T:
        """Return the value.

        Raises:
            ValueError: the bytes are no JSON, or not that of such a value; says where.
        """
        if hasattr(self.kind, "model_validate_json"):
            model: T = self.kind.model_validate_json(data)
            return model
        value: T = convert(self.kind, orjson.loads(data), "the body", _MAX_DEPTH)
        return value


def convert(kind: Any, value: Any, where: str, depth: int) -> Any:  # noqa: ANN401 - an annotation
    """Return the value of an annotation that a JSON value stands for.

    Args:
        kind: the annotation.
        value: what JSON has.
        where: names the place in errors.
        depth: how much deeper it may go.

    Raises:
        ValueError: it is none.
    """
    if depth < 0:
        raise ValueError(f"{where} is nested too deeply")
    if kind is Any or kind is object:
        return value
    origin, items = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        return _first_shape(items, value, where, depth)
    if origin in {list, Sequence, tuple, set, frozenset}:
        _check(isinstance(value, list), value, where, "a list")
        made = [
            convert(items[0], each, f"{where}[{at}]", depth - 1) for at, each in enumerate(value)
        ]
        return made if origin is Sequence else origin(made)
    if origin in {dict, Mapping}:
        _check(isinstance(value, dict), value, where, "an object")
        return {key: convert(items[1], each, f"{where}[{key!r}]", depth - 1)
                for key, each in value.items()}  # fmt: skip
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, where, depth)
    if hasattr(kind, "model_validate"):
        return _model(kind, value, where)
    return _plain(kind, value, where)


def _first_shape(kinds: tuple[Any, ...], value: Any, where: str, depth: int) -> Any:  # noqa: ANN401
    reasons = []
    for kind in kinds:
        try:
            return convert(kind, value, where, depth - 1)
        except ValueError as error:
            reasons.append(str(error))
    raise ValueError(" and ".join(reasons))


def _dataclass(kind: Any, value: Any, where: str, depth: int) -> Any:  # noqa: ANN401
    _check(isinstance(value, dict), value, where, f"a {kind.__name__}")
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        if field.name in value:
            place = f"{where}.{field.name}"
            given[field.name] = convert(hints[field.name], value[field.name], place, depth - 1)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{where}.{field.name} is missing")
    return kind(**given)


def _model(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _plain(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401
    if kind is None or kind is NoneType:
        _check(value is None, value, where, "null")
        return None
    if kind is float and type(value) is int:
        return float(value)
    if kind in _FROM_TEXT:
        _check(isinstance(value, str), value, where, "a text")
        try:
            return _FROM_TEXT[kind](value)
        except (ValueError, ArithmeticError) as error:
            raise ValueError(f"{where}: {value!r} is no {kind.__name__}") from error
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    if not isinstance(kind, type):
        raise TypeError(f"{where}: {kind!r} cannot be made of JSON")
    # True is an int to isinstance.
    _check(type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)),
           value, where, f"a {kind.__name__}")  # fmt: skip
    return value


def _check(fits: bool, value: Any, where: str, wanted: str) -> None:  # noqa: ANN401
    if not fits:
        raise ValueError(f"{where}: {str(value)[:40]!r} is not {wanted}")
