"""Memberships of connections in groups, bounded, and ordered by their last heartbeats.

Peers choose all names, so there is a bound for each connection and bounds for the total. When a
total is reached, the next connection is not refused; instead, the connections that use the most
memory are closed.
"""

import collections
from collections.abc import Mapping
from typing import Final

from rocketpy.remoting.connection.channel import Channel

MAX_GROUPS_PER_CHANNEL: Final = 1_000
MAX_MEMBERS: Final = 200_000
MAX_BYTES: Final = 128 * 1024 * 1024
"""Bound on the estimated memory of all memberships with their names and subscriptions."""
MEMBER_BYTES: Final = 600
"""Estimated memory of one membership without its texts."""


class Memberships:
    """Memberships of connections in groups. The caller locks.

    Args:
        max_per_channel: maximal number of groups of one connection.
        max_members: maximal number of memberships.
        max_bytes: maximal estimated memory.
    """

    def __init__(
        self,
        max_per_channel: int = MAX_GROUPS_PER_CHANNEL,
        max_members: int = MAX_MEMBERS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.max_per_channel = max_per_channel
        self.max_members = max_members
        self.max_bytes = max_bytes
        self.size_bytes: int = 0
        self._groups: dict[Channel, dict[str, int]] = {}
        self._channel_bytes: collections.Counter[Channel] = collections.Counter()
        self._seen: collections.OrderedDict[tuple[Channel, str], int] = collections.OrderedDict()

    @property
    def count(self) -> int:
        """Number of memberships."""
        return len(self._seen)

    def groups_of(self, channel: Channel) -> list[str]:
        """Return the groups of a connection."""
        return list(self._groups.get(channel, ()))

    def add(self, channel: Channel, group: str, size_bytes: int, now_ms: int) -> None:
        """Add a membership, or refresh it.

        Args:
            channel: the connection.
            group: the group.
            size_bytes: estimated memory.
            now_ms: monotonic time.
        """
        self._seen[channel, group] = now_ms
        self._seen.move_to_end((channel, group))
        self.resize(channel, group, size_bytes)

    def resize(self, channel: Channel, group: str, size_bytes: int) -> None:
        """Change the estimated memory of a membership."""
        groups = self._groups.setdefault(channel, {})
        grown = size_bytes - groups.get(group, 0)
        groups[group] = size_bytes
        self._channel_bytes[channel] += grown
        self.size_bytes += grown

    def remove(self, channel: Channel, group: str) -> None:
        """Remove a membership, if it exists."""
        if self._seen.pop((channel, group), None) is None:
            return
        self.resize(channel, group, 0)
        groups = self._groups[channel]
        del groups[group]
        if not groups:
            del self._groups[channel]
            del self._channel_bytes[channel]

    def unheard_since(self, older_than_ms: int) -> list[tuple[Channel, str]]:
        """Return the memberships without a heartbeat since a monotonic time."""
        unheard = []
        for membership, seen_ms in self._seen.items():
            if seen_ms >= older_than_ms:
                break
            unheard.append(membership)
        return unheard

    def room_for(self, channel: Channel, sizes: Mapping[str, int]) -> list[Channel] | None:
        """Find the connections to close so that a connection may join groups.

        Args:
            channel: the connection.
            sizes: groups that it joins (or is in), with their estimated memory.

        Returns:
            The connections to close, largest first; None when the request must be refused.
        """
        present = self._groups.get(channel, {})
        new_count = sum(group not in present for group in sizes)
        if len(present) + new_count > self.max_per_channel:
            return None
        grown = sum(max(0, size - present.get(group, 0)) for group, size in sizes.items())
        over_count = self.count + new_count - self.max_members
        over_bytes = self.size_bytes + grown - self.max_bytes
        if (over_count <= 0 or not new_count) and (over_bytes <= 0 or not grown):
            return []
        giving_way = []
        mine = self._channel_bytes[channel] + grown
        for other, size_bytes in self._channel_bytes.most_common():
            if size_bytes <= mine or other is channel:
                return None
            giving_way.append(other)
            over_count -= len(self._groups[other])
            over_bytes -= size_bytes
            if over_count <= 0 and over_bytes <= 0:
                return giving_way
        return None
