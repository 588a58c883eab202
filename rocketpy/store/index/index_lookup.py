"""Look-up of a key in the index files, with bounded work and without a lock.

Written entries never change: slots only point to newer ones, and a reader follows no entry that
its snapshot does not count. A look-up can therefore run concurrently with appends and with
retention: a file that is deleted meanwhile stays readable.

A chain leads from the newest entry to older ones, and store times descend along it. A look-up of
an old time range would have to walk over everything newer; for a key that many messages share
(a tag) that is millions of steps. After some steps the look-up switches methods: entries lie in
the order of their time, so it finds the range by bisection and searches it for the key's hash.

Times descend within a file only: across files they follow the clock, which may have been set back
between two runs of the store. In files written by Apache they may be out of order even within a
file; so a chain is followed some steps beyond the range, which covers nearly every chain.

Source: IndexFile.selectPhyOffset (5.4.0), which walks the chain, and IndexService.queryOffset,
which ignores older files once one starts before the range.
"""

import struct
from collections.abc import Callable
from typing import Final

from rocketpy.store.index.index_file import IndexFile

# Entries of chains a look-up follows: about 10 ms.
_STEPS: Final = 20_000
# Bytes of entries a look-up searches: about 5 ms.
_SEARCHED_BYTES: Final = 4 << 20
_JUMP_AFTER: Final = 256
# Entries older than the range that are followed; slots hold four on average.
_PAST_RANGE: Final = 64
_SECOND_MS: Final = 1_000
_CHUNK_ENTRIES: Final = 8_192
_HASH: Final = struct.Struct(">i")
# Reading a record to compare its keys costs as much as this many entries of a chain.
_RECORD_STEPS: Final = 16


class IndexLookup:
    """Look-up of one key over as many files as necessary.

    Attributes:
        phy_offsets: physical offsets found, newest first.
        is_complete: False if the work limit ended the look-up within the time range.
    """

    def __init__(
        self,
        key_hash: int,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        *,
        max_steps: int = _STEPS,
        max_searched_bytes: int = _SEARCHED_BYTES,
        accept: Callable[[int], bool] | None = None,
    ) -> None:
        """Prepare a look-up.

        Args:
            key_hash: hash of topic and key.
            max_count: most offsets to return.
            begin_ms: earliest store time.
            end_ms: latest store time.
            max_steps: most entries of chains to follow.
            max_searched_bytes: most bytes of entries to search.
            accept: returns whether the record at a physical offset has the key, because other keys
                have the same hash; others are skipped and do not count. None accepts all.
        """
        self.phy_offsets: list[int] = []
        self.is_complete: bool = True
        self._key_hash = key_hash
        self._max_count = max_count
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._accept = accept
        self._steps_left = max_steps
        self._bytes_left = max_searched_bytes

    @property
    def is_done(self) -> bool:
        """Whether further files cannot add results."""
        return len(self.phy_offsets) >= self._max_count or not self.is_complete

    def look_into(self, file: IndexFile) -> None:
        """Add the results of one file; call it with the files from newest to oldest.

        An offset equal to the last one found is not added again: after a crash the last message
        can be indexed twice.
        """
        found = self.phy_offsets
        above = file.count
        number = file.newest(self._key_hash)
        too_new = too_old = 0
        while 0 < number < above and len(found) < self._max_count:
            if self._steps_left <= 0:
                self.is_complete = False
                return
            self._steps_left -= 1
            entry_hash, phy_offset, seconds, previous = file.entry(number)
            stored_ms = file.begin_timestamp_ms + seconds * _SECOND_MS  # or up to a second later
            if seconds < 0 or too_old == _PAST_RANGE:
                return
            above = number
            number = previous
            if stored_ms + _SECOND_MS <= self._begin_ms:
                too_old += 1
            elif stored_ms > self._end_ms:
                too_new += 1
                if too_new == _JUMP_AFTER:
                    above, number = self._jump(file, above, previous)
            elif (
                entry_hash == self._key_hash
                and (not found or found[-1] != phy_offset)
                and self._is_accepted(phy_offset)
            ):
                found.append(phy_offset)

    def _is_accepted(self, phy_offset: int) -> bool:
        if self._accept is None:
            return True
        self._steps_left -= _RECORD_STEPS
        return self._accept(phy_offset)

    def _jump(self, file: IndexFile, above: int, previous: int) -> tuple[int, int]:
        """Return the entry at which to resume a chain that is still newer than the range."""
        low = file.first_at(self._begin_ms - _SECOND_MS + 1, 1, above)
        high = file.first_at(self._end_ms + 1, low, above)
        pattern = _HASH.pack(self._key_hash)
        while high > low and self._bytes_left > 0:
            start = max(low, high - _CHUNK_ENTRIES)
            data = file.entries_bytes(start, high)
            self._bytes_left -= len(data)
            number = _last_with(data, pattern, len(data) // (high - start))
            if number >= 0:
                return start + number + 1, start + number
            high = start
        if high <= low:
            return 0, 0
        return above, previous  # search budget exhausted: walk the chain again


def _last_with(data: bytes, pattern: bytes, entry_bytes: int) -> int:
    """Return the number of the last entry that starts with a pattern, -1 if there is none."""
    at = data.rfind(pattern)
    while at > 0 and at % entry_bytes:
        at = data.rfind(pattern, 0, at + len(pattern) - 1)
    return at // entry_bytes if at >= 0 else -1
