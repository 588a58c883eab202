"""Set that keeps the insertion order of its members.

The iteration order of a built-in set differs between processes (addresses of objects, seed of
text hashes). Operations on its members would then run in another order each time, and a simulation
would not be reproducible.
"""

from collections.abc import Hashable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class OrderedSet(dict[T, None]):
    """Set with members in insertion order."""

    __slots__ = ()

    def add(self, member: T) -> None:
        """Add a member; an existing one keeps its position."""
        self[member] = None

    def discard(self, member: T) -> None:
        """Remove a member, if present."""
        self.pop(member, None)
