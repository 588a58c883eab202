"""Arguments of operations, compared with the annotations of their parameters.

A value of another type must not be sent: a server would close the connection on which it comes, or
store it, as `consume="no"` that counts as true.
"""

import functools
import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, get_args, get_origin

from rocketpy.client.options.validation import described, fits

_MOST_CHARACTERS: Final = 200


class Arguments:
    """Parameters of one operation; a callable that checks what a caller gives for them.

    Parameters with choices (`Literal`) are left to the operation, whose error names them.

    Args:
        function: the operation; its first parameter is not the caller's.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    @functools.cached_property
    def _kinds(self) -> dict[str, Any]:
        """Annotations by name, in the order of the parameters."""
        _, *parameters = inspect.signature(self._function).parameters.values()
        return {each.name: each.annotation for each in parameters}

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments, with whole numbers of other libraries as int.

        Missing and unknown ones are left to the call.

        Raises:
            TypeError: one is not what its annotation says; names it.
        """
        by_place = [self._taken(*each) for each in zip(self._kinds, args, strict=False)]
        by_name = {name: self._taken(name, value) for name, value in kwargs.items()}
        return [*by_place, *args[len(by_place) :]], by_name

    def _taken(self, name: str, value: object) -> object:
        kind = self._kinds.get(name, object)
        if _has_choices(kind):
            return value
        value = _with_plain_numbers(kind, value)
        if not fits(kind, value):
            call = f"{self._function.__name__}()"
            text = f"{call}: {name}: {value!r}"[:_MOST_CHARACTERS]
            raise TypeError(f"{text} is not {described(kind)}")
        return value


def _has_choices(kind: object) -> bool:
    return any(get_origin(each) is Literal for each in (kind, *get_args(kind)))


def _with_plain_numbers(kind: Any, value: Any) -> Any:  # noqa: ANN401 - anything that is passed
    """Return a value with numbers such as numpy's as int, where its annotation has an int."""
    if get_origin(kind) is Mapping and isinstance(value, Mapping):
        of_key, of_value = get_args(kind)
        return {
            _with_plain_numbers(of_key, each): _with_plain_numbers(of_value, value[each])
            for each in value
        }
    is_number = hasattr(value, "__index__") and not isinstance(value, int | type)
    return operator.index(value) if is_number and int in {kind, *get_args(kind)} else value
