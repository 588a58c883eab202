"""The public names of RocketPy with their signatures, as text.

`python -m tests.tidy.public_api` (or `make public-api`) writes them to public_api.txt, so that a
change of what users stand on shows in a review.
"""

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, is_typeddict

SNAPSHOT = Path(__file__).with_name("public_api.txt")
MODULES = (
    "rocketpy",
    "rocketpy.sync",
    "rocketpy.admin",
    "rocketpy.testing",
    "rocketpy.testing.cluster",
    "rocketpy.testing.plugin",
    "rocketpy.testing.sim_cluster",
    "rocketpy.testing.sim_files",
    "rocketpy.testing.sim_loop",
    "rocketpy.testing.sim_network",
    "rocketpy.errors",
)


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`, or what the module defines itself."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
        and not isinstance(value, TypeVar)
    )


def short(found: object) -> str:
    """Return types without their modules, and objects without their addresses."""
    text = re.sub(r" object at 0x[0-9a-f]+", "", str(found))
    text = re.sub(r"<(?:function|class) '?([\w.<>]+)'?>", r"\1", text)
    # Equal literals share one spelling in a process: the first that was made.
    text = re.sub(r"Literal\[(.*?)\]", sorted_literal, text)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)


def sorted_literal(found: re.Match[str]) -> str:
    return f"Literal[{', '.join(sorted(found[1].split(', ')))}]"


def signature(function: Any, *, bound: bool = False) -> str:
    """Return the parameters and the result, types without their modules."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    if bound:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return short(found)


def method_line(name: str, value: Any) -> str:
    kind = "async " if inspect.iscoroutinefunction(value) else ""
    return f"    {kind}{name}{signature(value, bound=True)}"


def class_lines(found: type[Any]) -> Iterator[str]:
    """Yield members, methods and properties, those of bases of our own included."""
    if is_typeddict(found):
        yield from (f"    {name}: {short(kind)}" for name, kind in found.__annotations__.items())
        return
    if issubclass(found, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in found)
        return
    if issubclass(found, Exception) and hasattr(found, "retriable"):
        yield f"    retriable = {found.retriable!r}"
    fields = {*getattr(found, "__dataclass_fields__", ()), *getattr(found, "_fields", ())}
    ours = {
        name: value
        for base in reversed(found.__mro__)
        if base.__module__.startswith("rocketpy")
        for name, value in vars(base).items()
        if not name.startswith("_") and name not in fields
    }
    for name, value in sorted(ours.items()):
        if isinstance(value, property):
            yield f"    {name}: {signature(value.fget, bound=True).removeprefix('() -> ')}"
        elif isinstance(value, staticmethod | classmethod):
            yield method_line(name, value.__func__)
        elif inspect.isfunction(value):
            yield method_line(name, value)
        elif inspect.ismemberdescriptor(value):
            yield f"    {name}"


def describe(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        made = "" if issubclass(value, enum.Enum) else signature(value).removesuffix(" -> None")
        made = "" if is_typeddict(value) else made
        yield f"class {name}{made}{f' of {bases}' if bases else ''}"
        yield from class_lines(value)
    elif callable(value):
        yield f"def {name}{signature(value)}"
    elif inspect.ismodule(value):
        yield f"module {name}"
    else:
        yield f"{name}: {type(value).__name__}"


def public_api() -> str:
    lines = []
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        lines.append(f"# {module_name}")
        for name in public_names(module):
            lines += describe(name, getattr(module, name))
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    SNAPSHOT.write_text(public_api())
