"""Dataclasses that cost an import little: their methods are made when they are first called.

`dataclasses.dataclass` writes each method as text and compiles it while its module is imported,
0.2 to 5 ms a class, whether it is ever called or not; a broker has 200 such classes. Here a class
has its fields and slots at once, and each method that `dataclass` makes from its first call on.
The first few objects are filled in without a method: many classes have no more in a process.
"""

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, Final, NoReturn, TypeVar, dataclass_transform

_C = TypeVar("_C")
_FEW: Final = 2
"""So many objects are filled in before `__init__` is made: that costs as much as 50 of them."""


@dataclass_transform(field_specifiers=(field,))
def lazy_dataclass(
    *, frozen: bool = False, kw_only: bool = False
) -> Callable[[type[_C]], type[_C]]:
    """Make what ``dataclass(slots=True)`` makes of a class.

    Args:
        frozen: its objects cannot change, and have a hash.
        kw_only: they are made with keyword arguments only.
    """
    names = (
        ("__init__", "__repr__", "__eq__", "__hash__")
        if frozen
        else ("__init__", "__repr__", "__eq__")
    )

    def make(cls: type[_C]) -> type[_C]:
        made: Any = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
        own = vars(cls)
        for name in names:
            if name not in own:
                setattr(made, name, _at_first_call(made, name, frozen=frozen))
        if "__init__" not in own:
            made.__init__ = _at_first_objects(made, made.__init__)
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_change, _refuse_change
            made.__getstate__, made.__setstate__ = _state, _set_state
        elif "__hash__" not in own and "__eq__" not in own:
            made.__hash__ = None  # equal ones may change
        done: type[_C] = made
        return done

    return make


def _at_first_call(cls: type, name: str, *, frozen: bool) -> Callable[..., object]:
    """Return what stands in for a method of a class until somebody calls it."""

    def first(self: object, *args: object, **named: object) -> object:
        method = _method(cls, name, frozen=frozen)
        setattr(cls, name, method)
        return method(self, *args, **named)

    return first


def _at_first_objects(cls: type, make: Callable[..., object]) -> Callable[..., None]:
    """Return what stands in for `__init__` until a class has a few objects, then makes it."""
    left = _FEW

    def first(self: object, *args: object, **named: object) -> None:
        nonlocal left
        left -= 1
        # Whoever calls it as it cannot be called is told so by the method itself.
        if left < 0 or not _filled_in(cls, self, args, named):
            make(self, *args, **named)

    return first


def _filled_in(
    cls: Any,  # noqa: ANN401 - a dataclass
    self: Any,  # noqa: ANN401
    args: tuple[object, ...],
    named: dict[str, object],
) -> bool:
    """Give a new object the fields that `__init__` would; False: it takes no such arguments."""
    by_place = [each.name for each in fields(cls) if each.init and not each.kw_only]
    given = dict(zip(by_place, args, strict=False))
    if len(args) > len(by_place) or not given.keys().isdisjoint(named):
        return False
    given |= named
    values: dict[str, object] = {}
    for each in fields(cls):
        if each.init and each.name in given:
            values[each.name] = given.pop(each.name)
        elif each.default_factory is not MISSING:
            values[each.name] = each.default_factory()
        elif each.default is not MISSING:
            values[each.name] = each.default
        elif each.init:
            return False
    if given:
        return False
    for name, value in values.items():
        object.__setattr__(self, name, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()
    return True


def _method(cls: Any, name: str, *, frozen: bool) -> Callable[..., object]:  # noqa: ANN401 - a dataclass
    """Have `dataclass` make one method, of a class with the same fields."""
    body: dict[str, Any] = {each.name: each for each in fields(cls)}
    body["__annotations__"] = {each.name: each.type for each in fields(cls)}
    # With a docstring, `dataclass` does not make one of the signature.
    body |= {"__qualname__": cls.__qualname__, "__module__": cls.__module__, "__doc__": cls.__doc__}
    if hasattr(cls, "__post_init__"):
        body["__post_init__"] = cls.__post_init__
    make = dataclass(
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in {"__eq__", "__hash__"},
        frozen=frozen,
        match_args=False,
        slots=name == "__init__",  # else it leaves out fields that it does not take
    )
    method: Callable[..., object] = getattr(make(type(cls.__name__, (), body)), name)
    return method


def _refuse_change(self: object, name: str, value: object = None) -> NoReturn:  # noqa: ARG001 - called by Python
    msg = f"cannot change field {name!r} of {type(self).__name__}"
    raise FrozenInstanceError(msg)


def _state(self: Any) -> list[Any]:  # noqa: ANN401 - a dataclass
    """Return what a pickle or copy keeps."""
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401 - a dataclass
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
