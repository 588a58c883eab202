"""Keyword arguments that are the fields of a configuration class: declared once, typed everywhere.

Type checkers, `help()` and editors see the fields as the arguments.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from difflib import get_close_matches
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")
S = TypeVar("S")

_OTHERWISE: Final = {
    "invisible": "invisible_time",
    "local_retry": "local_retry_pause",
    "poll": "pop_wait",
    "suspend": "pull_wait",
    "suspend_queue": "ordered_retry_pause",
}
"""Options of which more than the unit has changed, old and new."""


def function_options(config: Callable[P, C]) -> Callable[[Callable[[C], R]], Callable[P, R]]:
    """Have a function take the fields of `config` and be called with one.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(kw_only=True)
        ... class Size:
        ...     width: int = 2
        >>> @function_options(Size)
        ... def double(size: Size) -> int:
        ...     return 2 * size.width
        >>> double(width=21)
        42
    """

    def decorate(function: Callable[[C], R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            _check(function.__name__, config, args, kwargs)
            return function(config(*args, **kwargs))

        _show(call, function, config, [])
        return call

    return decorate


def method_options(
    config: Callable[P, C],
) -> Callable[[Callable[[S, C], R]], Callable[Concatenate[S, P], R]]:
    """Have a method take the fields of `config` and be called with one."""

    def decorate(method: Callable[[S, C], R]) -> Callable[Concatenate[S, P], R]:
        @functools.wraps(method)
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            _check(method.__name__, config, args, kwargs)
            return method(self, config(*args, **kwargs))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        _show(call, method, config, [own])
        return call

    return decorate


def _check(
    name: str, config: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise TypeError in the words of the function that was called."""
    signature = inspect.signature(config)
    for given in kwargs:
        if given not in signature.parameters:
            hint = _renamed(given, signature.parameters)
            if not hint and (near := get_close_matches(given, signature.parameters, n=1)):
                hint = f"; did you mean {near[0]}?"
            raise TypeError(f"{name}() has no option {given!r}{hint}")
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{name}(): {error}") from None


def _renamed(given: str, names: Collection[str]) -> str:
    """Say what an option is called that had its unit in its name."""
    bare = given.removesuffix("_ms").removesuffix("_s")
    name = _OTHERWISE.get(bare, bare)
    if bare == given or name not in names:
        return ""
    return f": it is {name}, in seconds or as a timedelta"


def _show(
    call: Any,  # noqa: ANN401 - a function, which takes attributes
    function: Callable[..., Any],
    config: Callable[..., Any],
    first: list[inspect.Parameter],
) -> None:
    """Let the fields be seen as the parameters."""
    fields = inspect.signature(config).parameters.values()
    returned = inspect.signature(function).return_annotation
    call.__signature__ = inspect.Signature([*first, *fields], return_annotation=returned)
