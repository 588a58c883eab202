"""A set that remembers the order of its members.

A built-in set is walked in an order that differs from process to process (addresses of objects,
the seed of text hashes). Whatever is done to its members one after the other then happens in
another order each time, and a simulation does not repeat.
"""

from collections.abc import Hashable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class OrderedSet(dict[T, None]):
    """Members in the order in which they were added."""

    __slots__ = ()

    def add(self, member: T) -> None:
        """Add a member; one that is there keeps its place."""
        self[member] = None

    def discard(self, member: T) -> None:
        """Remove a member; nothing happens when it is not there."""
        self.pop(member, None)
