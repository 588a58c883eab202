"""What header and body classes share: fields declared once, a wire name for each.

They are slotted dataclasses. How two of them compare and how one prints is the same for all, so
it stands here once: to have `dataclass` write both for each class would double the time that an
import of the package takes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, ClassVar, TypeVar


class Declared:
    """Base of `rocketpy.proto.headers.base.Header` and `rocketpy.proto.json_body.Body`."""

    __slots__ = ()

    wire_names: ClassVar[Mapping[str, str]] = {}
    """Wire names that are not the field's name in camel case."""

    field_names: ClassVar[tuple[str, ...]] = ()

    _values: ClassVar[Callable[[Any], Any]]

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        values = self.__class__._values
        return bool(values(self) == values(other))

    __hash__ = None  # type: ignore[assignment] # equal ones may change

    def __repr__(self) -> str:
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.field_names])
        return f"{type(self).__name__}({shown})"

    @classmethod
    def wire_name(cls, name: str) -> str:
        """Return what a field is called on the wire."""
        return cls.wire_names.get(name) or camel_case(name)


_D = TypeVar("_D", bound=Declared)


def declare(cls: type[_D], *, kw_only: bool) -> type[_D]:
    """Make a slotted dataclass of a class with annotated fields."""
    made = dataclass(slots=True, kw_only=kw_only, eq=False, repr=False, match_args=False)(cls)
    made.field_names = tuple(item.name for item in fields(made))  # type: ignore[arg-type]
    made._values = staticmethod(attrgetter(*made.field_names))  # noqa: SLF001 - its own class
    return made


def camel_case(name: str) -> str:
    """Return a Python name as Java writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
