"""Members of consumer groups that a broker expects after a change of its role.

Clients find another master one after another: Java's fetch routes every 30 s. If the first ones
were the only known members of their groups, they would take the queues of the others, which still
consume them: messages would be consumed twice, and ordered groups would lose their order. So a
replica keeps the members that it knew in its role before, until they connect or `EXPECTED_MS` has
passed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

EXPECTED_MS: Final = 30_000
"""Interval in which Java's and RocketPy's clients fetch routes."""


class ExpectedMembers:
    """Ids of members that have not connected yet, by group. The caller locks."""

    def __init__(self) -> None:
        self._ids: dict[str, dict[str, None]] = {}
        self._until_ms = 0

    def expect(self, members: Mapping[str, Iterable[str]], until_ms: int) -> None:
        """Expect members until a monotonic time, and no others."""
        self._ids = {group: dict.fromkeys(ids) for group, ids in members.items()}
        self._until_ms = until_ms

    def ids(self, group: str) -> list[str]:
        """Return the expected members of a group."""
        return list(self._ids.get(group, ()))

    def groups(self) -> list[str]:
        """Return the groups with expected members."""
        return list(self._ids)

    def remove(self, group: str, client_id: str) -> bool:
        """Stop to expect a member; return whether it was expected."""
        ids = self._ids.get(group, {})
        if client_id not in ids:
            return False
        del ids[client_id]
        if not ids:
            del self._ids[group]
        return True

    def expire(self, now_ms: int) -> list[str]:
        """Stop to expect members after the time; return the groups that lose members by that."""
        if now_ms < self._until_ms:
            return []
        groups, self._ids = list(self._ids), {}
        return groups
