"""Types of bodies: which can be read and written, checked where a serializer or handler is written.

msgspec reads and writes every type but pydantic's, which pydantic's own adapter takes.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import inspect as kinds

from rocketpy.client.messages.serializers import write_json

_FIELD_MARKS: Final = (
    "__dataclass_fields__",
    "__attrs_attrs__",
    "__struct_fields__",
    "_fields",
    "__required_keys__",
)
_QUALIFIERS: Final = ("Final", "NotRequired", "ReadOnly", "Required")
_PYDANTIC_MODULES: Final = ("annotated_types", "pydantic", "pydantic_core")
_KEY_KINDS: Final = (
    kinds.AnyType,
    kinds.BytesType,
    kinds.DateTimeType,
    kinds.DateType,
    kinds.EnumType,
    kinds.FloatType,
    kinds.IntType,
    kinds.StrType,
    kinds.TimeDeltaType,
    kinds.TimeType,
    kinds.UUIDType,
)
_MSGSPEC_PLACE: Final = re.compile(r"(?P<reason>.*) - at `\$(?P<path>[^`]*)`", re.DOTALL)
_TOO_DEEP: Final = "body is nested too deeply"


class Codec(Protocol):
    """Reader and writer of JSON bodies of one type.

    Attributes:
        swaps_arrays: whether a tuple may be read as a list: no member of a union is an array
            beside another one.
    """

    swaps_arrays: bool

    def write(self, value: Any) -> bytes:  # noqa: ANN401 - of the codec's type
        """Return a value as JSON; raises ValueError when JSON cannot hold it."""
        ...

    def read(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value of a body; raises ValueError when it is of another type."""
        ...

    def convert(self, value: Any) -> Any:  # noqa: ANN401
        """Return the value of decoded JSON or MessagePack; raises ValueError as `read`."""
        ...


def codec_of(kind: Any) -> Codec:  # noqa: ANN401 - an annotation
    """Return the codec of a type.

    Raises:
        TypeError: the type, or a part of it, cannot be read and written; names the part.
    """
    parts = list(_walk(kind, _name(kind), set()))
    if any(_is_pydantic(part) for _, part in parts):
        for where, part in parts:
            _check_union(where, part)
        return _PydanticCodec(kind)
    for where, part in parts:
        _check(where, part)
    return _MsgspecCodec(kind)


def has_pydantic_part(kind: Any) -> bool:  # noqa: ANN401 - an annotation
    """Return whether pydantic reads and writes the values of a type."""
    return any(_is_pydantic(part) for _, part in _walk(kind, _name(kind), set()))


def class_of(kind: Any) -> type | None:  # noqa: ANN401
    """Return the class whose instances are the values of a type, None for any other annotation.

    Only classes with fields count: of other types a literal such as `1` may stand for `1.0`.
    """
    found = get_origin(kind) or kind
    if is_typed_dict(found) or not isinstance(found, type) or issubclass(found, tuple):
        return None
    return found if _is_pydantic(found) or _has_fields(found) else None


def is_typed_dict(kind: Any) -> bool:  # noqa: ANN401 - an annotation
    """Return whether a type is a TypedDict, of `typing` or of `typing_extensions`."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")


# ---- the parts of a type


def _walk(
    kind: Any,  # noqa: ANN401
    where: str,
    seen: set[int],
    *,
    enters_pydantic: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a type with their names, inner parts first, then the type itself.

    Args:
        kind: a type.
        where: its name in errors.
        seen: ids of classes and aliases whose parts were yielded: a type may contain itself.
        enters_pydantic: also yield the fields of pydantic's classes, which pydantic checks.
    """
    if isinstance(kind, TypeVar):
        return
    if enters_pydantic or not _is_pydantic(kind):
        for name, part in _parts(kind, where, seen):
            yield from _walk(part, name, seen, enters_pydantic=enters_pydantic)
    yield where, kind


def _parts(kind: Any, where: str, seen: set[int]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        yield where, arguments[0]
        return
    if origin is not Literal:
        is_row = origin is tuple and ... not in arguments
        for at, argument in enumerate(arguments):
            if argument is not ...:
                yield f"{where}[{at}]" if is_row else where, argument
    owner = origin or kind
    if id(owner) in seen:
        return
    for renamed in ("__supertype__", "__value__"):  # of a NewType, of a type alias
        if hasattr(owner, renamed):
            seen.add(id(owner))
            yield where, getattr(owner, renamed)
            return
    if isinstance(owner, type) and _is_pydantic(owner):
        seen.add(id(owner))
        for name, found in _pydantic_fields(owner).items():
            hint = found.annotation
            yield f"{where}.{name}", Annotated[(hint, *found.metadata)] if found.metadata else hint
    elif isinstance(owner, type) and _has_fields(owner):
        seen.add(id(owner))
        for name, hint in _hints(owner, where).items():
            yield f"{where}.{name}", hint


def _hints(owner: Any, where: str) -> dict[str, Any]:  # noqa: ANN401 - a class with fields
    try:
        hints = get_type_hints(owner, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{where}: {error}; annotations in quotes need classes defined in their module"
        ) from error
    names = list(hints)
    if dataclasses.is_dataclass(owner):
        names = [each.name for each in dataclasses.fields(owner)]
    elif hasattr(owner, "__attrs_attrs__"):
        names = [each.name for each in owner.__attrs_attrs__]
    elif hasattr(owner, "__struct_fields__"):
        names = list(owner.__struct_fields__)
    found = {}
    for name in names:
        hint = hints.get(name, Any)
        while getattr(get_origin(hint), "_name", "") in _QUALIFIERS:
            hint = get_args(hint)[0]
        found[name] = hint
    return found


def _has_fields(kind: type) -> bool:
    return any(hasattr(kind, mark) for mark in _FIELD_MARKS)


def _is_pydantic(kind: Any) -> bool:  # noqa: ANN401
    if get_origin(kind) is Annotated:
        return any(
            type(each).__module__.partition(".")[0] in _PYDANTIC_MODULES
            for each in kind.__metadata__
        )
    owner = get_origin(kind) or kind
    return isinstance(owner, type) and hasattr(owner, "__pydantic_validator__")


def _pydantic_fields(owner: Any) -> dict[str, Any]:  # noqa: ANN401
    found: dict[str, Any] = (
        owner.model_fields if hasattr(owner, "model_fields") else owner.__pydantic_fields__
    )
    return found


def _name(kind: Any) -> str:  # noqa: ANN401
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)


# ---- what is refused


def _check(where: str, kind: Any) -> None:  # noqa: ANN401
    """Refuse a type that msgspec does not support; its parts were checked before.

    Raises:
        TypeError: names the part and the reason.
    """
    _check_init(where, get_origin(kind) or kind)
    try:
        msgspec.json.Decoder(kind)
        found = kinds.type_info(kind)
    except (TypeError, NameError, RuntimeError) as error:  # RuntimeError: nested too deeply
        reason = str(error)
        if isinstance(error, RecursionError):
            reason = "an alias that contains itself is not supported; use a dataclass, or Any"
        if "union" in reason:
            reason += (
                "; a reader could not tell them apart: use one class, or msgspec.Struct classes "
                "with tags, as in `class Paid(msgspec.Struct, tag=True)`"
            )
        raise TypeError(f"{where}: {reason}") from error
    if isinstance(found, kinds.DictType) and not _is_key(found.key_type):
        raise TypeError(
            f"{where}: keys of an object are of one type: str, int, float or one of "
            f"those that are written as text"
        )
    if isinstance(found, kinds.CustomType) and kind is not object:
        raise TypeError(
            f"{where}: {_name(kind)} has no form in JSON; use a dataclass, a pydantic model, or "
            f"a built-in type"
        )


def _check_init(where: str, kind: Any) -> None:  # noqa: ANN401
    """Refuse fields that msgspec does not write, or requires though a constructor computes them.

    Raises:
        TypeError: names the field.
    """
    for each in getattr(kind, "__attrs_attrs__", ()):
        if each.name.startswith("_"):
            raise TypeError(
                f"{where}.{each.name}: private fields of attrs classes are not written; rename "
                f"it, or use a dataclass"
            )
    for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if not each.init and each.default is each.default_factory is dataclasses.MISSING:
            raise TypeError(f"{where}.{each.name}: a field with init=False needs a default")


def _is_key(found: kinds.Type) -> bool:
    """Return whether msgspec reads the keys of objects as it wrote them."""
    if isinstance(found, kinds.LiteralType):
        return len({type(each) for each in found.values}) == 1
    return isinstance(found, _KEY_KINDS)


def _check_union(where: str, kind: Any) -> None:  # noqa: ANN401
    """Refuse a union whose members pydantic could not tell apart.

    pydantic takes the member with the most fields of the body. So a body is read as it was
    written when, of each two members, one requires a field that the other does not have.

    Raises:
        TypeError: names the members.
    """
    if get_origin(kind) not in {Union, UnionType}:
        return
    members = [each for each in get_args(kind) if class_of(each) is not None]
    for at, one in enumerate(members):
        for other in members[at + 1 :]:
            if not _differ(_fields(one), _fields(other)):
                raise TypeError(
                    f"{where}: a reader could not tell {_name(one)} from {_name(other)}; give "
                    f"each a field `type: Literal[...]` of another value, or use one class"
                )


_Fields = dict[str, tuple[bool, Any]]
"""Of each field of a class: whether it is required, and its annotation."""


def _fields(kind: Any) -> _Fields:  # noqa: ANN401
    owner = get_origin(kind) or kind
    if _is_pydantic(owner):
        return {
            each.alias or name: (each.is_required(), each.annotation)
            for name, each in _pydantic_fields(owner).items()
        }
    hints, missing = _hints(owner, _name(kind)), dataclasses.MISSING
    return {
        each.name: (each.default is each.default_factory is missing, hints[each.name])
        for each in (dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ())
    }


def _differ(one: _Fields, other: _Fields) -> bool:
    for name in one.keys() & other.keys():
        mine, others = one[name][1], other[name][1]
        origins: set[Any] = {get_origin(mine), get_origin(others)}
        if origins == {Literal} and not set(get_args(mine)) & set(get_args(others)):
            return True
    return any(
        required and name not in known
        for fields, known in ((one, other), (other, one))
        for name, (required, _) in fields.items()
    )


# ---- codecs


class _MsgspecCodec:
    """Codec of the types that msgspec supports."""

    swaps_arrays = True  # msgspec refuses a union of two arrays

    def __init__(self, kind: Any) -> None:  # noqa: ANN401
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind, dec_hook=_unchanged).decode

    def write(self, value: Any) -> bytes:  # noqa: ANN401
        """See `Codec`."""
        return write_json(value)

    def read(self, data: bytes) -> Any:  # noqa: ANN401
        """See `Codec`."""
        try:
            return self._decode(data)
        except msgspec.MsgspecError as error:
            raise ValueError(_located(str(error))) from error
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
        except TypeError as error:  # a list in a set without an annotation
            raise ValueError(f"body: {error}") from error

    def convert(self, value: Any) -> Any:  # noqa: ANN401
        """See `Codec`."""
        try:
            return msgspec.convert(value, self._kind, dec_hook=_unchanged)
        except msgspec.MsgspecError as error:
            raise ValueError(_located(str(error))) from error
        except RecursionError as error:
            raise ValueError(_TOO_DEEP) from error
        except TypeError as error:  # a list in a set without an annotation
            raise ValueError(f"body: {error}") from error


def _unchanged(_: type, value: Any) -> Any:  # noqa: ANN401
    """Return the value of an annotation `object`, the only custom type that `_check` accepts."""
    return value


def _located(text: str) -> str:
    """Return an error of msgspec with the place in the body first."""
    found = _MSGSPEC_PLACE.fullmatch(text)
    reason, path = (found["reason"], found["path"]) if found else (text, "")
    if not reason.startswith("JSON"):
        reason = f"{reason[:1].lower()}{reason[1:]}"
    return f"body{path}: {reason}"


class _PydanticCodec:
    """Codec of types with a pydantic model, or with a constraint of pydantic."""

    def __init__(self, kind: Any) -> None:  # noqa: ANN401
        try:
            from pydantic import TypeAdapter  # noqa: PLC0415 - an extra
            from pydantic.errors import PydanticUserError  # noqa: PLC0415
        except ImportError as error:
            raise TypeError(
                f"{_name(kind)} has constraints that pydantic checks: "
                f"pip install 'rocketpy-mq[pydantic]'"
            ) from error
        try:
            self._adapter: Any = TypeAdapter(kind)
        except (PydanticUserError, NameError) as error:
            raise TypeError(f"{_name(kind)}: {str(error).partition(chr(10))[0]}") from error
        parts = [each for _, each in _walk(kind, _name(kind), set(), enters_pydantic=True)]
        self.swaps_arrays = not any(_has_arrays(each) for each in parts)
        self._is_computed = any(_refuses_own_form(each) for each in parts)

    def write(self, value: Any) -> bytes:  # noqa: ANN401
        """See `Codec`; fields have the names that reading expects, their aliases."""
        data: bytes = self._adapter.dump_json(
            value, by_alias=True, round_trip=self._is_computed, warnings="error"
        )
        return data

    def read(self, data: bytes) -> Any:  # noqa: ANN401
        """See `Codec`."""
        return self._adapter.validate_json(data)

    def convert(self, value: Any) -> Any:  # noqa: ANN401
        """See `Codec`."""
        return self._adapter.validate_python(value)


def unreadable_field(kind: Any) -> str:  # noqa: ANN401 - an annotation
    """Return a required field of a pydantic class that no reader could get, with the reason.

    Such a class can be read, but no value of it can be sent. Empty if there is none, or if a part
    of the type cannot be found: values are compared when they are sent.
    """
    try:
        parts = list(_walk(kind, _name(kind), set(), enters_pydantic=True))
    except TypeError:
        return ""
    for where, part in parts:
        owner = get_origin(part) or part
        if not (isinstance(owner, type) and _is_pydantic(owner)):
            continue
        for name, found in _pydantic_fields(owner).items():
            if found.is_required() and found.exclude:
                return f"{where}.{name}: an excluded field is not written, and has no default"
            if found.is_required() and not _reads_own_name(owner, name, found):
                return f"{where}.{name}: it is written under another name than it is read from"
    return ""


def unwritable_part(kind: Any, has_form: Callable[[type], bool]) -> str:  # noqa: ANN401
    """Return a part of a type whose values no serializer of a kind can write, with the reason.

    Empty if there is none, or if it depends on the value: one of an abstract class, of a protocol,
    or of a subclass with fields.

    Args:
        kind: an annotation.
        has_form: returns whether values of a class can be written.
    """
    try:
        parts = list(_walk(kind, _name(kind), set()))
    except TypeError:
        return ""
    for where, part in reversed(parts):  # the outermost first
        owner = get_origin(part) or part
        if not isinstance(owner, type) or owner in {object, UnionType} or _depends_on_value(owner):
            continue
        if not has_form(owner):
            return f"{where}: {_name(owner)} has no form there"
    return ""


def _depends_on_value(owner: type) -> bool:
    is_open = inspect.isabstract(owner) or getattr(owner, "_is_protocol", False)
    known: list[type] = [] if owner is type else owner.__subclasses__()
    return is_open or any(_is_pydantic(each) or _has_fields(each) for each in known)


def has_json_form(owner: type) -> bool:
    """Return whether values of a class can be written as JSON."""
    if issubclass(owner, str | int | float) or _is_pydantic(owner):
        return True
    try:
        return not isinstance(kinds.type_info(owner), kinds.CustomType)
    except (TypeError, NameError, RuntimeError):
        return True


def _reads_own_name(owner: Any, name: str, found: Any) -> bool:  # noqa: ANN401
    written = found.serialization_alias or name
    config = _pydantic_config(owner)
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    if config.get("alias_generator") or (by_name and written == name):
        return True  # the generator may choose either name; values are compared anyway
    alias = found.validation_alias
    if alias is None:
        return bool(written == name)
    choices = getattr(alias, "choices", [alias])
    return any(each == written or list(getattr(each, "path", ())) == [written] for each in choices)


def _pydantic_config(owner: Any) -> Mapping[str, Any]:  # noqa: ANN401
    config = getattr(owner, "model_config", None) or getattr(owner, "__pydantic_config__", None)
    return config if isinstance(config, dict) else {}


def _has_arrays(kind: Any) -> bool:  # noqa: ANN401
    """Return whether a type is a union with several members that are arrays in JSON."""
    if get_origin(kind) not in {Union, UnionType}:
        return False
    origins = [get_origin(each) or each for each in get_args(kind)]
    arrays = [each for each in origins if isinstance(each, type) and issubclass(each, Collection)]
    return sum(not issubclass(each, (str, bytes, bytearray, Mapping)) for each in arrays) > 1


def _refuses_own_form(kind: Any) -> bool:  # noqa: ANN401
    """Return whether pydantic refuses to read a type as it writes it by default.

    It reads a `Json` field from text and writes it as JSON, and writes computed fields also in
    classes that forbid fields which they do not have.
    """
    marks = kind.__metadata__ if get_origin(kind) is Annotated else (kind,)
    for each in marks:
        found = each if isinstance(each, type) else type(each)
        if found.__name__ == "Json" and found.__module__.startswith("pydantic."):
            return True
    owner = get_origin(kind) or kind
    decorators = getattr(owner, "__pydantic_decorators__", None)
    is_forbidding = _pydantic_config(owner).get("extra") == "forbid"
    return is_forbidding and bool(decorators and decorators.computed_fields)
