"""Dataclasses that cost an import little: their methods are made when they are first called.

`dataclasses.dataclass` writes each method as text and compiles it while its module is imported,
0.2 to 5 ms a class, whether it is ever called or not; a broker has 200 such classes. Here a class
has its slots at once, each method that `dataclass` makes from its first call on, and its `Field`
objects once somebody looks at them: to find them takes 0.2 ms a class.
The first few objects are filled in without a method: many classes have no more in a process.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import (
    KW_ONLY,
    MISSING,
    Field,
    FrozenInstanceError,
    InitVar,
    dataclass,
    field,
    fields,
    replace,
)
from typing import (
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NoReturn,
    TypeVar,
    dataclass_transform,
    get_origin,
)

_C = TypeVar("_C")
_FIELDS: Final = "__dataclass_fields__"
_PARAMETERS: Final = "__dataclass_params__"
_NOT_TAKEN_OVER: Final = frozenset({"__dict__", "__weakref__"})
_asking: Final = threading.RLock()
FEW: Final = 5
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
        parts = _parts_of(cls, kw_only=kw_only)
        made: Any
        if parts is None:
            made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
            parts = [_part_of(each) for each in fields(made)]
        else:
            made = _with_slots(cls, parts, kw_only=kw_only)
        own = vars(cls)
        for name in names:
            if name not in own:
                setattr(made, name, _at_first_call(made, name, frozen=frozen))
        if "__init__" not in own:
            made.__init__ = _at_first_objects(parts, made.__init__)
        if frozen:
            made.__setattr__, made.__delattr__ = _refuse_change, _refuse_change
            made.__getstate__, made.__setstate__ = _state, _set_state
        elif "__hash__" not in own and "__eq__" not in own:
            made.__hash__ = None  # equal ones may change
        done: type[_C] = made
        return done

    return make


class _Part(NamedTuple):
    """What an object's first filling in needs of a field."""

    name: str
    default: Any
    default_factory: Any
    init: bool
    kw_only: bool


def _part_of(of: Any) -> _Part:  # noqa: ANN401 - a `Field`, whose types say less
    return _Part(of.name, of.default, of.default_factory, of.init, of.kw_only)


def _parts_of(cls: type, *, kw_only: bool) -> list[_Part] | None:
    """Return the fields of a class that is to be one; None when `dataclass` is to find them.

    That is where one of its bases has fields, and for what few classes have.
    """
    own = vars(cls)
    annotations: dict[str, object] | None = own.get("__annotations__")
    if annotations is None or any(hasattr(base, _FIELDS) for base in cls.__bases__):
        return None
    parts = []
    for name, hint in annotations.items():
        if isinstance(hint, str | InitVar) or hint is InitVar or hint is KW_ONLY:
            return None
        if hint is ClassVar or get_origin(hint) is ClassVar:
            continue
        value = own.get(name, MISSING)
        if isinstance(value, Field):
            is_by_name = kw_only if value.kw_only is MISSING else value.kw_only
            part = _Part(name, value.default, value.default_factory, value.init, is_by_name)
        else:
            part = _Part(name, value, MISSING, True, kw_only)
        parts.append(part)
    return parts


def _with_slots(cls: type, parts: Sequence[_Part], *, kw_only: bool) -> Any:  # noqa: ANN401
    """Return a class like one, with a slot for each field; its `Field` objects come when asked for.

    As with ``dataclass(slots=True)`` it is another class than the one that was given.
    """
    body = {name: value for name, value in vars(cls).items() if name not in _NOT_TAKEN_OVER}
    for part in parts:
        body.pop(part.name, None)
    body["__slots__"] = tuple(part.name for part in parts)
    body["__match_args__"] = tuple(part.name for part in parts if part.init and not part.kw_only)
    body[_FIELDS] = _WhenAskedFor(_FIELDS, cls, kw_only=kw_only)
    body[_PARAMETERS] = _WhenAskedFor(_PARAMETERS, cls, kw_only=kw_only)
    body["__replace__"] = _replaced
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


class _WhenAskedFor:
    """An attribute that `dataclass` gives a class, until it is looked at."""

    def __init__(self, name: str, like: type, *, kw_only: bool) -> None:
        self._name, self._like, self._kw_only = name, like, kw_only

    def __get__(self, _instance: object, owner: type) -> object:
        like = self._like
        with _asking:  # `dataclass` would find the fields of a class once only
            if _PARAMETERS not in vars(like):
                dataclass(init=False, repr=False, eq=False, kw_only=self._kw_only)(like)
            for name in (_FIELDS, _PARAMETERS):
                for base in owner.__mro__:  # a class derived from the one that has it may ask first
                    if isinstance(vars(base).get(name), _WhenAskedFor):
                        setattr(base, name, vars(like)[name])
                        break
        return vars(like)[self._name]


def _at_first_call(cls: type, name: str, *, frozen: bool) -> Callable[..., object]:
    """Return what stands in for a method of a class until somebody calls it."""

    def first(self: object, *args: object, **named: object) -> object:
        method = _method(cls, name, frozen=frozen)
        setattr(cls, name, method)
        return method(self, *args, **named)

    return first


def _at_first_objects(parts: Sequence[_Part], make: Callable[..., object]) -> Callable[..., None]:
    """Return what stands in for `__init__` until a class has a few objects, then makes it."""
    left = FEW

    def first(self: object, *args: object, **named: object) -> None:
        nonlocal left
        left -= 1
        # Whoever calls it as it cannot be called is told so by the method itself.
        if left < 0 or not _filled_in(parts, self, args, named):
            make(self, *args, **named)

    return first


def _filled_in(
    parts: Sequence[_Part],
    self: Any,  # noqa: ANN401 - a dataclass
    args: tuple[object, ...],
    named: dict[str, object],
) -> bool:
    """Give a new object the fields that `__init__` would; False: it takes no such arguments."""
    by_place = [each.name for each in parts if each.init and not each.kw_only]
    given = dict(zip(by_place, args, strict=False))
    if len(args) > len(by_place) or not given.keys().isdisjoint(named):
        return False
    given |= named
    values: dict[str, object] = {}
    for each in parts:
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


def _replaced(self: Any, /, **changes: object) -> object:  # noqa: ANN401 - a dataclass
    return replace(self, **changes)


def _state(self: Any) -> list[Any]:  # noqa: ANN401 - a dataclass
    """Return what a pickle or copy keeps."""
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401 - a dataclass
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
