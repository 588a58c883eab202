"""What header and body classes share: fields declared once, a wire name for each.

They are slotted dataclasses, whose methods and wire forms are worked out when they are first used.
"""

from collections.abc import Mapping
from typing import ClassVar


class Declared:
    """Base of `rocketpy.proto.headers.base.Header` and `rocketpy.proto.wire.json_body.Body`."""

    __slots__ = ()

    wire_names: ClassVar[Mapping[str, str]] = {}
    """Wire names that are not the field's name in camel case."""

    @classmethod
    def wire_name(cls, name: str) -> str:
        """Return what a field is called on the wire."""
        return cls.wire_names.get(name) or camel_case(name)


def camel_case(name: str) -> str:
    """Return a Python name as Java writes it."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
