"""Bodies that are values of one type: JSON outside, a dataclass or a pydantic model inside.

Example:
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Order:
    ...     id: str
    ...     amount: int = 1
    >>> TypedSerializer(Order).loads(b'{"id": "o1"}')
    Order(id='o1', amount=1)
"""

from typing import Any, Final, Generic, overload

from rocketpy.client.messages.body_types import class_of, codec_of
from rocketpy.client.messages.comparison import difference
from rocketpy.client.messages.serializers import (
    PLAIN,
    B_co,
    Serializer,
    json,
    json_or_text,
    text,
)
from rocketpy.errors import IllegalMessageError


class TypedSerializer(Generic[B_co]):
    """JSON of values of one type, checked when they are written and when they are read.

    Takes dataclasses, TypedDict, NamedTuple, `msgspec.Struct`, attrs classes, pydantic models and
    dataclasses, enums, Literal, NewType, type aliases, dates and times, Decimal, UUID, bytes,
    tuples, sets, lists, mappings and unions, in each other and as fields. Unknown fields of a body
    are ignored. A union may have one class with fields, or several that differ by a tag.

    Args:
        kind: the class or annotation.

    Raises:
        TypeError: a type that has no form in JSON, or a union whose members a reader could not
            tell apart; names the field.
    """

    __slots__ = ("_class", "_codec", "kind")

    @overload
    def __init__(self, kind: type[B_co]) -> None: ...
    @overload
    def __init__(self, kind: object) -> None: ...
    def __init__(self, kind: Any) -> None:
        self.kind: Any = kind
        self._class = class_of(kind)
        self._codec = codec_of(kind)

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401 - checked here
        """Return `value` as JSON.

        Raises:
            IllegalMessageError: it is of another type, or a reader would refuse it, or get
                another value; says where.
        """
        if self._class is not None and not isinstance(value, self._class):
            reason = f"the body is a {type(value).__name__}, not a {self._class.__name__}"
            raise IllegalMessageError(reason)
        try:
            data = self._codec.write(value)
            # Classes do not check their fields; without this the consumers would find out.
            read = self._codec.read(data)
            changed = difference(value, read, swaps_arrays=self._codec.swaps_arrays)
        except ValueError as error:
            raise IllegalMessageError(f"the body cannot be sent: {error}") from error
        if changed:
            raise IllegalMessageError(f"the body cannot be sent: {changed}")
        return data

    def loads(self, data: bytes) -> B_co:
        """Return the value.

        Raises:
            ValueError: the bytes are no JSON, or not that of such a value; says where.
        """
        value: B_co = self._codec.read(data)
        return value

    def convert(self, value: Any) -> B_co:  # noqa: ANN401
        """Return the value that decoded JSON or MessagePack stands for.

        Raises:
            ValueError: it is of another type; says where.
        """
        converted: B_co = self._codec.convert(value)
        return converted


class ConvertingSerializer:
    """Serializer whose values become those of an annotation.

    Attributes:
        serializer: reads and writes the bodies.

    Args:
        serializer: MessagePack, or the user's.
        kind: type of the values.
    """

    def __init__(self, serializer: Serializer, kind: Any) -> None:  # noqa: ANN401 - an annotation
        self.serializer = serializer
        self._class = class_of(kind)
        self._typed: TypedSerializer[Any] = TypedSerializer(kind)

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return the bytes of a value, as the serializer writes it."""
        return self.serializer.dumps(value)

    def loads(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value; raises ValueError when it is of another type."""
        value = self.serializer.loads(data)
        if self._class is not None and isinstance(value, self._class):
            return value
        return self._typed.convert(value)


def typed_reader(serializer: Serializer, kind: Any) -> Serializer[Any]:  # noqa: ANN401
    """Return the reader of bodies of one type, where others are read by a program's serializer.

    JSON is the form of a type for programs that send text, bytes or JSON. What another serializer
    reads is converted.

    Args:
        serializer: of the program.
        kind: class or annotation.

    Raises:
        TypeError: values of the type cannot be read; names the field.
    """
    if serializer in _TEXTS and (kind is bytes or kind is str):
        return PLAIN if kind is bytes else text
    if serializer in _JSONS or isinstance(serializer, TypedSerializer):
        return TypedSerializer(kind)
    return ConvertingSerializer(serializer, kind)


_TEXTS: Final[tuple[Serializer, ...]] = (PLAIN, text, json_or_text)
_JSONS: Final[tuple[Serializer, ...]] = (*_TEXTS, json)
