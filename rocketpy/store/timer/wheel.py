"""Timer wheel: maps each tick to the units of the timer log that are due then.

A fixed number of slots, twice the seconds of seven days; the tick determines the slot::

    0               8            16           24         28
    | tick: i64     | first: i64 | last: i64  | num: i32 | 0: i32 |

32 bytes, big-endian; the tick is in units of the precision, the positions are those of the first
and the last unit. A slot is valid only for the tick that is stored in it.

The file has its full length from the start and is mostly a hole: unwritten pages take no space and
no memory. Pages in use are cached and written by a flush that follows the log's, so the file is
never ahead of the log. Past pages are dropped from the cache.

Source: TimerWheel, Slot (5.4.0).

Checksums of the pages (`PageSums`) detect lost writes: a slot of zeros is an empty one, so the
wheel itself cannot show them. One sum covers ten pages, so that all sums fit into the checkpoint,
after the part that Apache reads.
"""

import logging
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from rocketpy.store.config import TIMER_WHEEL_SLOTS
from rocketpy.store.files.store_files import PlainFile, StoreFiles

_GROUP_PAGES: Final = 10


class PageSums:
    """Checksums of all pages of the wheel.

    Args:
        pages: number of pages, initially empty.
    """

    def __init__(self, pages: int) -> None:
        self._pages = array("L", bytes(array("L").itemsize * pages))
        groups = -(-pages // _GROUP_PAGES)
        self._groups = [self._group(number) for number in range(groups)]
        self._layout = struct.Struct(f">{groups}I")

    def note(self, number: int, page: bytes | None) -> None:
        """Record the content of a page on disk; None if it is empty."""
        self._pages[number] = 0 if page is None else crc32(page)
        group = number // _GROUP_PAGES
        self._groups[group] = self._group(group)

    def _group(self, number: int) -> int:
        pages = self._pages[number * _GROUP_PAGES : (number + 1) * _GROUP_PAGES]
        return crc32(pages.tobytes()) if any(pages) else 0

    def encode(self) -> bytes:
        """Return the encoding for the checkpoint, 4 bytes for ten pages."""
        return self._layout.pack(*self._groups)

    def differing(self, encoded: bytes) -> Iterator[int]:
        """Yield pages that may have changed since the sums were encoded.

        Args:
            encoded: result of `encode`; ignored if it has another length.
        """
        if len(encoded) != self._layout.size:
            return
        wanted = self._layout.unpack(encoded)
        for group, (has, wants) in enumerate(zip(self._groups, wanted, strict=True)):
            if has != wants:
                start = group * _GROUP_PAGES
                yield from range(start, min(start + _GROUP_PAGES, len(self._pages)))


logger: logging.Logger = logging.getLogger(__name__)

SLOTS: Final = TIMER_WHEEL_SLOTS
SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = 32
WHEEL_BYTES: Final = SLOTS * SLOT_BYTES
_PAGE_BYTES: Final = 4096
_PAGE_SLOTS: Final = _PAGE_BYTES // SLOT_BYTES
_PAGES: Final = WHEEL_BYTES // _PAGE_BYTES
assert _PAGES * _PAGE_BYTES == WHEEL_BYTES
_EMPTY_PAGE: Final = bytes(_PAGE_BYTES)
# Pages of one read at the start: 1 MiB, of which holes are skipped.
_READ_PAGES: Final = 256


class Slot(NamedTuple):
    """Slot of the wheel with its units.

    Attributes:
        tick: time in units of the precision.
        first: position of the first unit.
        last: position of the last unit.
        num: pending units without recalled ones.
    """

    tick: int
    first: int
    last: int
    num: int


class TimerWheel:
    """Slots of the timer wheel; the owner serialises all calls except `PendingPages.run`.

    Args:
        path: the file.
        precision_ms: time of one slot.
        files: the file system.

    Attributes:
        damaged_pages: pages with invalid slots or wrong checksums.
        sums: checksums of the pages in the file.
    """

    def __init__(self, path: Path, precision_ms: int, files: StoreFiles) -> None:
        self.precision_ms = precision_ms
        self._path = path
        self._files = files
        self._file: PlainFile | None = None
        self._pages: dict[int, bytearray] = {}
        self._dirty: set[int] = set()
        self._in_flush: set[int] = set()
        self.damaged_pages: set[int] = set()
        self.sums: PageSums = PageSums(_PAGES)

    def load(self) -> bool:
        """Open the file; return whether it exists. The first flush creates a new one.

        A file of another length is damaged and moved away; it is rebuilt from the log.
        """
        if not self._files.exists(self._path):
            return False
        size_bytes = self._files.size_bytes(self._path)
        # A crash during the creation leaves an empty file.
        if size_bytes == 0:
            self._files.remove(self._path)
            return False
        if size_bytes != WHEEL_BYTES:
            aside = self._path.with_name(self._path.name + ".damaged")
            logger.error(
                "timer wheel rebuilt, wrong length: bytes=%d expected=%d kept_as=%s",
                size_bytes,
                WHEEL_BYTES,
                aside,
            )
            # Renamed, not removed, so that its cause can be examined.
            self._files.rename(self._path, aside)
            return False
        self._file = self._files.open_file(self._path)
        for start, block in self._blocks():
            if not block and not self._pages:
                continue
            for number in range(start, start + len(block) // _PAGE_BYTES):
                at = (number - start) * _PAGE_BYTES
                page = block[at : at + _PAGE_BYTES]
                if page != _EMPTY_PAGE:
                    self.sums.note(number, page)
        return True

    def check(self, sums: bytes) -> None:
        """Mark the pages that do not match the checksums as damaged."""
        self.damaged_pages.update(self.sums.differing(sums))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._pages.clear()
        self._dirty.clear()

    # -- slots -----------------------------------------------------------------------------

    def tick(self, time_ms: int) -> int:
        """Return the tick of a time."""
        return time_ms // self.precision_ms

    def get(self, tick: int) -> Slot | None:
        """Return the slot of a tick; None if nothing is due then."""
        page = self._page(tick % SLOTS // _PAGE_SLOTS)
        if page is None:
            return None
        stored, first, last, num, _ = SLOT.unpack_from(page, tick % _PAGE_SLOTS * SLOT_BYTES)
        # Another tick: the slot is left from an earlier round of the wheel.
        return Slot(tick, first, last, num) if stored == tick and last >= 0 else None

    def first_from(self, tick: int, last_tick: int) -> tuple[int, Slot | None]:
        """Return the first tick with a slot, and the slot; `last_tick` if there is none.

        Args:
            tick: first tick to check.
            last_tick: last tick to check.
        """
        while tick < last_tick:
            # An empty page is skipped whole: after a long stop most of the wheel is empty.
            if self._page(tick % SLOTS // _PAGE_SLOTS) is None:
                tick = min(last_tick, (tick // _PAGE_SLOTS + 1) * _PAGE_SLOTS)
                continue
            slot = self.get(tick)
            if slot is not None:
                return tick, slot
            tick += 1
        return tick, self.get(tick)

    def put(self, slot: Slot) -> None:
        """Set the slot of a tick."""
        self._write(slot.tick, slot.tick, slot.first, slot.last, slot.num)

    def clear(self, tick: int) -> None:
        """Empty the slot of a tick: all its units are delivered."""
        if self.get(tick) is not None:
            self._write(tick, 0, 0, 0, 0)

    def _write(self, tick: int, stored: int, first: int, last: int, num: int) -> None:
        number = tick % SLOTS // _PAGE_SLOTS
        page = self._page(number)
        if page is None:
            page = self._pages[number] = bytearray(_PAGE_BYTES)
        SLOT.pack_into(page, tick % _PAGE_SLOTS * SLOT_BYTES, stored, first, last, num, 0)
        self._dirty.add(number)

    def _page(self, number: int) -> bytearray | None:
        """Return a page; None if it is empty."""
        page = self._pages.get(number)
        if page is None and self._file is not None:
            data = self._file.read(number * _PAGE_BYTES, _PAGE_BYTES)
            if data != _EMPTY_PAGE:
                page = self._pages[number] = bytearray(data)
        return page

    def forget_before(self, tick: int) -> None:
        """Drop the page before a tick's page from the cache; it is read again on demand."""
        number = (tick % SLOTS // _PAGE_SLOTS - 1) % _PAGES
        # A page whose write is pending exists only here.
        if number not in self._dirty and number not in self._in_flush:
            self._pages.pop(number, None)

    def slots(self) -> Iterator[Slot]:
        """Yield every slot that is set, in the file and in the cache, without caching pages.

        A slot with the tick of another slot, or that ends before it starts, is skipped and its page
        marked as damaged.
        """
        for start, block in self._blocks():
            if not block and not self._pages:
                continue
            for number in range(start, min(start + _READ_PAGES, _PAGES)):
                at = (number - start) * _PAGE_BYTES
                page = self._pages.get(number) or block[at : at + _PAGE_BYTES]
                if page and page != _EMPTY_PAGE:
                    for index, (tick, first, last, num, _) in enumerate(SLOT.iter_unpack(page)):
                        is_in_place = tick % SLOTS == number * _PAGE_SLOTS + index
                        if tick > 0 and last >= 0 and is_in_place and first <= last:
                            yield Slot(tick, first, last, num)
                        elif (tick > 0 and not is_in_place) or tick < -1 or first > last:
                            self.damaged_pages.add(number)

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield page number and bytes of each part of the file; empty bytes for a hole."""
        for start in range(0, _PAGES, _READ_PAGES):
            block, at = b"", start * _PAGE_BYTES
            size_bytes = _READ_PAGES * _PAGE_BYTES
            if self._file is not None and self._file.has_data(at, at + size_bytes):
                block = self._file.read(at, size_bytes)
            yield start, block

    def page_of(self, tick: int) -> int:
        """Return the page of a tick's slot."""
        return tick % SLOTS // _PAGE_SLOTS

    def erase(self, number: int) -> None:
        """Empty a page."""
        self._pages[number] = bytearray(_PAGE_BYTES)
        self._dirty.add(number)

    # -- the file --------------------------------------------------------------------------

    def pending_pages(self) -> "PendingPages":
        """Return a flush of the changed pages, for another thread to run."""
        self._in_flush, self._dirty = self._dirty, set()
        # Copies: slots change while another thread writes the pages.
        return PendingPages(self, [(each, bytes(self._pages[each])) for each in self._in_flush])

    def opened(self) -> PlainFile:
        """Return the file; create it if it does not exist.

        Raises:
            DiskFullError: no space for the file.
        """
        if self._file is None:
            self._file = self._files.create_file(self._path, WHEEL_BYTES)
            self._files.sync_directories()
        return self._file

    def sync(self) -> None:
        """Flush the file and its name, also bytes of an earlier process.

        Raises:
            OSError: the disk failed.
        """
        if self._file is not None:
            self._file.flush()
            self._files.touch_directory(self._path.parent)

    def flushed(self, *, ok: bool) -> None:
        """Record the result of a flush of `pending_pages`; failed pages are written again."""
        if not ok:
            self._dirty |= self._in_flush
        self._in_flush = set()


class PendingPages:
    """Flush of changed pages that can run while pages change again."""

    def __init__(self, wheel: TimerWheel, pages: list[tuple[int, bytes]]) -> None:
        self._wheel = wheel
        self._pages = pages

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to flush."""
        return not self._pages

    def run(self) -> None:
        """Write and flush.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        if self._pages:
            file = self._wheel.opened()
            for number, page in self._pages:
                file.write(number * _PAGE_BYTES, page)
            file.flush()
            # After the flush: the sums describe pages that are on disk.
            for number, page in self._pages:
                self._wheel.sums.note(number, None if page == _EMPTY_PAGE else page)
