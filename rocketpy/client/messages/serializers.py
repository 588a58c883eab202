"""Serializers of bodies: plain bytes, text, JSON, MessagePack, or the user's.

Example:
    >>> json.dumps({"amount": 9})
    b'{"amount":9}'
"""

import dataclasses
from json import JSONEncoder
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgpack as _msgpack  # type: ignore[import-untyped]
import msgspec

from rocketpy.client.messages.comparison import difference
from rocketpy.errors import IllegalMessageError

if TYPE_CHECKING:  # type checkers know the module, which needs not be installed
    from typing_extensions import TypeVar

    B_co = TypeVar("B_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    B_co = TypeVar("B_co", covariant=True)


class Serializer(Protocol[B_co]):
    """Anything with these two methods can serialize bodies.

    Its argument is the type of the bodies that it reads: `Serializer[Order]`.
    """

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401 - any value the serializer knows
        """Return the body bytes of `value`; raises IllegalMessageError when it cannot."""
        ...

    def loads(self, data: bytes) -> B_co:
        """Return the value that `data` stands for."""
        ...


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # bytes of a file name, or half of a pair of UTF-16
        raise IllegalMessageError(f"the body is not text that UTF-8 can encode: {error}") from error


class PlainSerializer:
    """Bytes as they are, text as UTF-8, nothing else."""

    __slots__ = ()

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return `value` as bytes.

        Raises:
            IllegalMessageError: it is neither bytes nor text, or text that UTF-8 cannot encode.
        """
        if type(value) is bytes:
            return value
        if isinstance(value, str):
            return _utf8(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        msg = f"a body of type {type(value).__name__} needs a serializer, for example rocketpy.json"
        raise IllegalMessageError(msg)

    def loads(self, data: bytes) -> bytes:
        """Return `data` itself."""
        return data


class TextSerializer:
    """Text as UTF-8."""

    __slots__ = ()

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return a text as bytes; raises IllegalMessageError when it is none."""
        if not isinstance(value, str):
            raise IllegalMessageError(f"the body is a {type(value).__name__}, not a text")
        return _utf8(value)

    def loads(self, data: bytes) -> str:
        """Return the text; raises ValueError when the bytes are no UTF-8."""
        return data.decode()


class JsonSerializer:
    """JSON of everything that `TypedSerializer` reads, and of its parts."""

    __slots__ = ()

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return `value` as JSON.

        Raises:
            IllegalMessageError: JSON cannot hold it, or the class of a pydantic value would read
                another one; names the field.
        """
        try:
            return encode_json(value)
        except ValueError as error:
            msg = f"the body cannot be written as JSON: {error}"
            raise IllegalMessageError(msg) from error

    def loads(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the JSON value; raises ValueError when it is none."""
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"the body is not JSON: {error}") from error


def encode_json(value: Any) -> bytes:  # noqa: ANN401
    """Return a value as JSON; raises ValueError when JSON cannot hold it."""
    data = write_json(value)
    # NaN and the infinities are written as null, and would be read as None.
    if b"null" in data:
        try:
            _refuse_nan(msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_form))
        except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise ValueError(str(error)) from error
    return data


def write_json(value: Any) -> bytes:  # noqa: ANN401
    """Return a value as JSON, NaN and infinities as null; raises ValueError as `encode_json`."""
    try:
        if hasattr(type(value), _PYDANTIC_MARK):  # msgspec would write a dataclass without aliases
            value = _pydantic_form(value)
        return _encode(value)
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def _plain_form(value: Any) -> Any:  # noqa: ANN401
    """Return the form of a value that msgspec does not know: a pydantic model, a subclass."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if hasattr(type(value), _PYDANTIC_MARK):
        return _pydantic_form(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def _pydantic_form(value: Any) -> Any:  # noqa: ANN401
    """Return decoded JSON from which the class of a pydantic value reads an equal one.

    Raises:
        TypeError: it would read another value, or none; names the field.
        ValueError: pydantic cannot write the value.
    """
    kind: Any = type(value)
    reasons: list[str] = []
    # pydantic cannot read its default form of `Json` fields, and of some computed ones.
    for is_round_trip in (False, True):
        data = kind.__pydantic_serializer__.to_json(
            value, by_alias=True, round_trip=is_round_trip, warnings="error"
        )
        try:
            read = kind.__pydantic_validator__.validate_json(data)
        except ValueError as error:
            reasons.append(_first_of(error))
            continue
        changed = difference(value, read, swaps_arrays=True)
        if not changed:
            return msgspec.json.decode(data)
        reasons.append(changed)
    _refuse_secrets(value)
    raise TypeError(
        f"a reader of {kind.__name__} would not get it: {reasons[0]}; to leave that out, send "
        f"what model_dump(mode='json') returns"
    )


def _first_of(error: Any) -> str:  # noqa: ANN401 - a ValidationError of pydantic
    """Return place and text of the first error, without the value, which may be a secret."""
    first = error.errors(include_input=False, include_url=False)[0]
    return f"body{''.join(f'.{part}' for part in first['loc'])}: {first['msg']}"


def _refuse_secrets(value: Any) -> None:  # noqa: ANN401
    """Refuse secrets of pydantic, of which a reader would get asterisks; raises TypeError."""
    if hasattr(value, "get_secret_value"):
        kind = type(value).__name__
        raise TypeError(f"a {kind} is written as asterisks; send what get_secret_value() returns")
    if hasattr(type(value), _PYDANTIC_MARK):
        value = vars(value)
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return
    for each in value:
        _refuse_secrets(each)


_PYDANTIC_MARK: Final = "__pydantic_validator__"
"""Attribute of pydantic's models and dataclasses."""
_encode: Final = msgspec.json.Encoder(enc_hook=_plain_form).encode
_refuse_nan: Final = JSONEncoder(allow_nan=False).encode


class JsonOrTextSerializer(JsonSerializer):
    """Text and bytes as they are, everything else as JSON; read as JSON, or as text that is none.

    The default of `rocketpy.App`: a text that one handler sends is the text that
    another one gets, and that programs get which know nothing of JSON.
    """

    __slots__ = ()

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return `value` as bytes; raises IllegalMessageError when JSON cannot hold it."""
        if type(value) is str:  # members of an enum are a matter of JSON
            return _utf8(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return super().dumps(value)

    def loads(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the JSON value, else the text; raises ValueError when it is neither."""
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError:
            return data.decode()


class MsgpackSerializer:
    """MessagePack; dataclasses are written as maps."""

    __slots__ = ()

    def dumps(self, value: Any) -> bytes:  # noqa: ANN401
        """Return `value` as MessagePack; raises IllegalMessageError when it cannot hold it."""
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        try:
            packed: bytes = _msgpack.packb(value)
        except (TypeError, ValueError, OverflowError) as error:
            msg = f"the body cannot be written as MessagePack: {error}"
            raise IllegalMessageError(msg) from error
        return packed

    def loads(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value; raises ValueError when the bytes are no MessagePack."""
        return _msgpack.unpackb(data)


plain: PlainSerializer = PlainSerializer()
PLAIN: Final[Any] = plain
"""Default of options. Its type is Any: a serializer that is given decides the type of bodies."""
text: TextSerializer = TextSerializer()
json: JsonSerializer = JsonSerializer()
json_or_text: JsonOrTextSerializer = JsonOrTextSerializer()
msgpack: MsgpackSerializer = MsgpackSerializer()
