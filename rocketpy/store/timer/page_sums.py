"""Check sums of the timer wheel's pages, which tell of pages that are not as they were written.

A slot of zeros is an empty one, so nothing within the wheel shows that a disk lost it. One sum
stands for ten pages, so that all of them have room in the checkpoint, behind what Apache's has.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Final
from zlib import crc32

_GROUP_PAGES: Final = 10


class PageSums:
    """Sums of all pages of one file.

    Args:
        pages: how many pages there are; all are empty.
    """

    def __init__(self, pages: int) -> None:
        self._pages = array("L", bytes(array("L").itemsize * pages))
        groups = -(-pages // _GROUP_PAGES)
        self._groups = [self._group(number) for number in range(groups)]
        self._layout = struct.Struct(f">{groups}I")

    def note(self, number: int, page: bytes | None) -> None:
        """Note what a page holds on disk; None: nothing."""
        self._pages[number] = 0 if page is None else crc32(page)
        group = number // _GROUP_PAGES
        self._groups[group] = self._group(group)

    def _group(self, number: int) -> int:
        pages = self._pages[number * _GROUP_PAGES : (number + 1) * _GROUP_PAGES]
        return crc32(pages.tobytes()) if any(pages) else 0

    def encode(self) -> bytes:
        """The sums as the checkpoint has them, 4 bytes for ten pages."""
        return self._layout.pack(*self._groups)

    def differing(self, encoded: bytes) -> Iterator[int]:
        """Yield the pages that are, perhaps, not as they were when the sums were encoded.

        Args:
            encoded: from `encode`; of another length, it says nothing.
        """
        if len(encoded) != self._layout.size:
            return
        wanted = self._layout.unpack(encoded)
        for group, (has, wants) in enumerate(zip(self._groups, wanted, strict=True)):
            if has != wants:
                start = group * _GROUP_PAGES
                yield from range(start, min(start + _GROUP_PAGES, len(self._pages)))
