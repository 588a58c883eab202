"""Base of JSON bodies: conversion of dataclasses to Java's JSON and back.

A body declares its fields once, each with Java's default::

    @body
    class BrokerData(Body):
        cluster: str = ""
        broker_addrs: dict[int, str] = field(default_factory=dict)

Parsing is tolerant: unknown keys are ignored; an absent or null key keeps the default. The output
is compact, with keys in alphabetical order and without None, as in Java. A key is the field's name
in camel case, unless `wire_names` has another one; `old_wire_names` has fallback keys. Parsers and
formatters of fields are determined on first use of the class.

Source: RemotingSerializable of 5.4.0.
"""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
)

from rocketpy.errors import BadBodyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.wire_fields import Declared, wire_dataclass

Convert = Callable[[Any], Any]

_INT_LIMIT: Final = 1 << 63


class _FieldSpec(NamedTuple):
    name: str
    key: str
    old_key: str | None
    read: Convert
    write: Convert | None


class Body(Declared):
    """Base of all JSON bodies; see the module docstring."""

    __slots__ = ()

    old_wire_names: ClassVar[Mapping[str, str]] = {}
    """Keys of older peers, used if the current key is missing."""

    _specs: ClassVar[tuple[_FieldSpec, ...] | None] = None

    @classmethod
    def specs(cls) -> tuple[_FieldSpec, ...]:
        """Return parser and formatter of each field by key; determined by the first call."""
        if cls._specs is None:
            specs = []
            for item in fields(cls):  # type: ignore[arg-type]  # `body` has made it a dataclass
                read, write = _codec(item.type)
                old_key = cls.old_wire_names.get(item.name)
                specs.append(_FieldSpec(item.name, cls.wire_name(item.name), old_key, read, write))
            cls._specs = tuple(sorted(specs, key=lambda spec: spec.key))
        return cls._specs

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a body.

        Raises:
            BadBodyError: not JSON, not an object, or a value of another type.
        """
        return cls.from_json(fastjson.loads(data))

    @classmethod
    def decode_request(cls, data: bytes) -> Self:
        """Decode a body as `decode` does, but reject texts that are slow to parse.

        For servers: see `rocketpy.proto.wire.fastjson.check_quick`.

        Raises:
            BadBodyError: as `decode`, or the body is long and not standard JSON.
        """
        fastjson.check_quick(data)
        return cls.decode(data)

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Convert a parsed JSON object; raise BadBodyError like `decode`."""
        if not isinstance(value, dict):
            msg = f"{cls.__name__} is a {type(value).__name__}, not an object"
            raise BadBodyError(msg)
        value = cls.normalise(value)
        values: dict[str, Any] = {}
        for name, key, old_key, read, _ in cls.specs():
            item = value.get(key)
            if item is None and old_key is not None:
                item = value.get(old_key)
            if item is None:
                continue
            try:
                values[name] = read(item)
            except (TypeError, ValueError, OverflowError) as error:
                msg = f"{cls.__name__}.{key}: {error}"
                raise BadBodyError(msg) from error
        return cls(**values)

    @classmethod
    def normalise(cls, document: dict[Any, Any]) -> dict[Any, Any]:
        """Convert alternative forms of a document into the declared one, before it is parsed."""
        return document

    def to_json(self) -> dict[str, Any]:
        """Return the value that `encode` passes to `fastjson.dumps`, without None."""
        document: dict[str, Any] = {}
        for name, key, _, _, write in self.specs():
            value = getattr(self, name)
            if value is not None:
                document[key] = value if write is None else write(value)
        return document

    def encode(self) -> bytes:
        """Return the body as compact JSON."""
        return fastjson.dumps(self.to_json())


_B = TypeVar("_B", bound=Body)


@dataclass_transform(field_specifiers=(field,))
def body(cls: type[_B]) -> type[_B]:
    """Create a body class: a slotted dataclass with its JSON form."""
    made = wire_dataclass(cls)
    made._specs = None  # noqa: SLF001 - not inherited ones
    return made


def _codec(hint: Any) -> tuple[Convert, Convert | None]:  # noqa: ANN401 - a type hint
    """Return parser and formatter for a type (None: unchanged)."""
    if hint in _SCALARS:
        return _SCALARS[hint], None
    if isinstance(hint, UnionType):
        (inner,) = (option for option in get_args(hint) if option is not NoneType)
        return _codec(inner)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is list:
        return _list_codec(arguments[0])
    if origin is set:
        read, _ = _codec(arguments[0])
        return (lambda value: {read(item) for item in _as_list(value)}), sorted
    if origin is dict:
        return _dict_codec(*arguments)
    if isinstance(hint, type) and issubclass(hint, Body):
        return hint.from_json, hint.to_json
    msg = f"no JSON form for a body field of type {hint}"
    raise TypeError(msg)


def _list_codec(item_hint: Any) -> tuple[Convert, Convert | None]:  # noqa: ANN401 - a type hint
    read, write = _codec(item_hint)

    def read_list(value: object) -> list[Any]:
        return [read(item) for item in _as_list(value) if item is not None]

    if write is None:
        return read_list, None
    write_item = write
    return read_list, lambda value: [write_item(item) for item in value]


def _dict_codec(key_hint: Any, value_hint: Any) -> tuple[Convert, Convert | None]:  # noqa: ANN401
    read_key, _ = _codec(key_hint)
    read, write = _codec(value_hint)
    if key_hint is MessageQueue:
        read_key = _read_queue_key

    def read_dict(value: object) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError("not an object")
        return {read_key(key): read(item) for key, item in value.items() if item is not None}

    if write is None:
        return read_dict, None
    write_item = write
    return read_dict, lambda value: {key: write_item(item) for key, item in value.items()}


def _as_list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not an array")
    return value


def _read_int(value: object) -> int:
    if isinstance(value, bool):
        raise TypeError("not a number")
    if (isinstance(value, str) and len(value) <= 20) or (
        isinstance(value, float) and value.is_integer()
    ):
        value = int(value)
    if not isinstance(value, int):
        raise TypeError("not a number")
    if not -_INT_LIMIT <= value < _INT_LIMIT:
        raise OverflowError("a number of more than 64 bits")
    return value


def _read_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError("not a number")
    return float(value)


def _read_str(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise TypeError("not a text")


def _read_bool(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int):
        return value != 0
    raise TypeError("not a boolean")


def _read_queue(value: object) -> MessageQueue:
    if isinstance(value, MessageQueue):
        return value
    queue = fastjson.to_message_queue(value)
    if queue is None:
        raise TypeError("not a message queue")
    return queue


def _read_queue_key(value: object) -> MessageQueue:
    """Parse a queue in key position; old peers write a text with its object."""
    return _read_queue(fastjson.loads(value.encode()) if isinstance(value, str) else value)


def _read_any(value: Any) -> Any:  # noqa: ANN401 - passed through
    return value


_SCALARS: Final[dict[Any, Convert]] = {
    int: _read_int,
    float: _read_float,
    str: _read_str,
    bool: _read_bool,
    object: _read_any,
    Any: _read_any,
    MessageQueue: _read_queue,
}
