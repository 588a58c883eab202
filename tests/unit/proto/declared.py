"""Finds the header and body classes."""

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

Base = TypeVar("Base")


def declared(package: ModuleType, base: type[Base]) -> list[type[Base]]:
    """Return the classes of a package's modules that derive from a base, not the base itself."""
    classes: list[type[Base]] = []
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for found in vars(importlib.import_module(module.name)).values():
            is_own = isinstance(found, type) and found.__module__ == module.name
            if is_own and issubclass(found, base) and found is not base:
                classes.append(found)
    return classes
