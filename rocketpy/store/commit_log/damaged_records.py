"""Damaged records of the commit log, which readers skip."""

import bisect
from collections.abc import Set as AbstractSet
from typing import Final

_MAX_REMEMBERED: Final = 10_000


class DamagedRecords:
    """Physical offsets of damaged records, up to a limit; safe to use from any thread.

    Attributes:
        places: the offsets.
    """

    __slots__ = ("_ascending", "_places", "places")

    def __init__(self) -> None:
        self._places: set[int] = set()
        self._ascending: list[int] = []
        self.places: AbstractSet[int] = self._places

    def add(self, phy_offset: int) -> bool:
        """Add a record; return False if it is known already or the limit is reached."""
        if phy_offset in self._places or len(self._places) >= _MAX_REMEMBERED:
            return False
        self._places.add(phy_offset)
        bisect.insort(self._ascending, phy_offset)
        return True

    def end_without(self, phy_offset: int, end: int) -> int:
        """Return the end of the range from one offset to another without a damaged record.

        At the limit there may be unknown ones: then it is the first offset.
        """
        ascending = self._ascending
        if not ascending:
            return end
        if len(ascending) >= _MAX_REMEMBERED:
            return phy_offset
        index = bisect.bisect_left(ascending, phy_offset)
        return min(end, ascending[index]) if index < len(ascending) else end
