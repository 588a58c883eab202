"""Declaration of header and body classes: fields with their wire names.

They are slotted dataclasses. A server imports 150 of them and uses a dozen, and `dataclass` takes
0.2 to 2 ms per class to compile methods, so methods are generated on first use
(docs/decisions/0013-wire-classes-complete-themselves.md).
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar, get_origin

_C = TypeVar("_C")
_MADE_LATER: Final = (
    "__init__",
    "__repr__",
    "__eq__",
    "__match_args__",
    "__dataclass_fields__",
    "__dataclass_params__",
    "__replace__",
)
_OF_CLASS: Final = frozenset({"__dict__", "__weakref__"})


class Declared:
    """Base of `rocketpy.proto.headers.base.Header` and `rocketpy.proto.wire.json_body.Body`."""

    __slots__ = ()

    wire_names: ClassVar[Mapping[str, str]] = {}
    """Wire names that differ from the field's name in camel case."""

    @classmethod
    def wire_name(cls, name: str) -> str:
        """Return the wire name of a field."""
        return cls.wire_names.get(name) or camel_case(name)


def camel_case(name: str) -> str:
    """Convert a Python name to camel case."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def wire_dataclass(cls: type[_C], *, kw_only: bool = False) -> type[_C]:
    """Return the class of `dataclass(slots=True)`, with methods generated on first use."""
    hints: dict[str, Any] = inspect.get_annotations(cls)
    fields = [name for name, hint in hints.items() if get_origin(hint) is not ClassVar]
    # A field that a base class declares has its slot there.
    slots = [name for name in fields if not any(hasattr(base, name) for base in cls.__bases__)]
    own = {name: value for name, value in vars(cls).items() if name not in _OF_CLASS}
    body = {name: value for name, value in own.items() if name not in fields}
    body |= {name: _MadeLater(name, own, kw_only=kw_only) for name in _MADE_LATER}
    body |= {"__slots__": tuple(slots), "__hash__": None}
    meta: Any = type(cls)
    made: type[_C] = meta(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


class _MadeLater:
    """Placeholder of an attribute that `dataclass` generates, until its first use.

    Without a lock: threads that use a class for the first time simultaneously generate the same
    attributes twice, from separate classes.
    """

    def __init__(self, name: str, own: Mapping[str, Any], *, kw_only: bool) -> None:
        self._name, self._own, self._kw_only = name, own, kw_only

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - any attribute
        for cls in owner.__mro__:
            if vars(cls).get(self._name) is self:
                self._complete(cls)
        return getattr(owner if instance is None else instance, self._name)

    def _complete(self, cls: type) -> None:
        source: Any = type(cls.__name__, cls.__bases__, {**self._own})
        dataclass(kw_only=self._kw_only)(source)
        made = vars(source)
        for name in _MADE_LATER:
            if name in made:
                setattr(cls, name, made[name])
            elif name in vars(cls):  # `__replace__` came with Python 3.13
                delattr(cls, name)
