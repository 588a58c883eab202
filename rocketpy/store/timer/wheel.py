"""The timer wheel: for each moment, where the timer log has the units that are due then.

A fixed number of slots, twice as many as seven days have seconds; the moment decides the slot::

    0               8            16           24         28
    | moment: i64   | first: i64 | last: i64  | num: i32 | 0: i32 |

32 bytes, big-endian; the moment is in units of the precision, the positions are those of the
first and the last unit. A slot counts only for the moment that stands in it.

The file is as long as all slots from the start, and nearly all of it is a hole: pages that were
never written take no space and no memory. Pages in use are kept in memory and written by a flush,
after the log's: what the file says is never ahead of the log. Pages of the past are dropped.

Source: TimerWheel, Slot (5.4.0).

Check sums of the timer wheel's pages, which tell of pages that are not as they were written.

A slot of zeros is an empty one, so nothing within the wheel shows that a disk lost it. One sum
stands for ten pages, so that all of them have room in the checkpoint, behind what Apache's has.
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
_READ_PAGES: Final = 256


class Slot(NamedTuple):
    """One moment with units.

    Attributes:
        tick: the moment, in units of the precision.
        first: position of the first unit.
        last: position of the last unit.
        num: units that wait, recalls taken off.
    """

    tick: int
    first: int
    last: int
    num: int


class TimerWheel:
    """The slots of one wheel; the owner serialises callers, but `PendingPages.run`.

    Args:
        path: the file.
        precision_ms: time of one slot.
        files: the file system.

    Attributes:
        damaged_pages: where `slots` found something that no broker writes, or the file is not
            as it was written.
        sums: of the pages in the file.
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
        """Open the file; return whether there is one. A new one is made by the first flush.

        A file of another length is damaged and kept aside: the log says what was in it.
        """
        if not self._files.exists(self._path):
            return False
        size_bytes = self._files.size_bytes(self._path)
        if size_bytes == 0:
            self._files.remove(self._path)
            return False
        if size_bytes != WHEEL_BYTES:
            aside = self._path.with_name(self._path.name + ".damaged")
            logger.error(
                "the timer wheel has %d bytes and not %d: it is kept as %s and made again",
                size_bytes,
                WHEEL_BYTES,
                aside,
            )
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
        """Note as damaged the pages that are not as they were when the sums were written."""
        self.damaged_pages.update(self.sums.differing(sums))

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._pages.clear()
        self._dirty.clear()

    # -- slots -----------------------------------------------------------------------------

    def tick(self, time_ms: int) -> int:
        """The moment that a time belongs to."""
        return time_ms // self.precision_ms

    def get(self, tick: int) -> Slot | None:
        """Return the slot of a moment; None when nothing is due then."""
        page = self._page(tick % SLOTS // _PAGE_SLOTS)
        if page is None:
            return None
        stored, first, last, num, _ = SLOT.unpack_from(page, tick % _PAGE_SLOTS * SLOT_BYTES)
        return Slot(tick, first, last, num) if stored == tick and last >= 0 else None

    def first_from(self, tick: int, last_tick: int) -> tuple[int, Slot | None]:
        """Return the first moment that has a slot, and the slot; the last one when none has.

        Args:
            tick: where to begin.
            last_tick: where to end.
        """
        while tick < last_tick:
            if self._page(tick % SLOTS // _PAGE_SLOTS) is None:
                tick = min(last_tick, (tick // _PAGE_SLOTS + 1) * _PAGE_SLOTS)
                continue
            slot = self.get(tick)
            if slot is not None:
                return tick, slot
            tick += 1
        return tick, self.get(tick)

    def put(self, slot: Slot) -> None:
        """Set the slot of a moment."""
        self._write(slot.tick, slot.tick, slot.first, slot.last, slot.num)

    def clear(self, tick: int) -> None:
        """Empty the slot of a moment: everything in it is delivered."""
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
        """Return a page; None when it holds nothing and never did since it was looked at."""
        page = self._pages.get(number)
        if page is None and self._file is not None:
            data = self._file.read(number * _PAGE_BYTES, _PAGE_BYTES)
            if data != _EMPTY_PAGE:
                page = self._pages[number] = bytearray(data)
        return page

    def forget_before(self, tick: int) -> None:
        """Drop the page before that of a moment from memory; it is read again when needed."""
        number = (tick % SLOTS // _PAGE_SLOTS - 1) % _PAGES
        if number not in self._dirty and number not in self._in_flush:
            self._pages.pop(number, None)

    def slots(self) -> Iterator[Slot]:
        """Yield every slot that is set, in the file and in memory; keeps none of them.

        One whose moment does not belong to its place, or that ends before it begins, is left out,
        and its page is noted as damaged.
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
        """Yield the first page of each part of the file, and the part; empty where all is hole."""
        for start in range(0, _PAGES, _READ_PAGES):
            block, at = b"", start * _PAGE_BYTES
            size_bytes = _READ_PAGES * _PAGE_BYTES
            if self._file is not None and self._file.has_data(at, at + size_bytes):
                block = self._file.read(at, size_bytes)
            yield start, block

    def page_of(self, tick: int) -> int:
        """The page that a moment's slot lies in."""
        return tick % SLOTS // _PAGE_SLOTS

    def erase(self, number: int) -> None:
        """Empty a page."""
        self._pages[number] = bytearray(_PAGE_BYTES)
        self._dirty.add(number)

    # -- the file --------------------------------------------------------------------------

    def pending_pages(self) -> "PendingPages":
        """Return what brings the changed pages to disk, for another thread to run."""
        self._in_flush, self._dirty = self._dirty, set()
        return PendingPages(self, [(each, bytes(self._pages[each])) for each in self._in_flush])

    def opened(self) -> PlainFile:
        """Return the file, made when there is none yet.

        Raises:
            DiskFullError: no space for it.
        """
        if self._file is None:
            self._file = self._files.create_file(self._path, WHEEL_BYTES)
            self._files.sync_directories()
        return self._file

    def sync(self) -> None:
        """Bring the file to disk as it is, whoever wrote it, and its name.

        Raises:
            OSError: the disk failed.
        """
        if self._file is not None:
            self._file.flush()
            self._files.touch_directory(self._path.parent)

    def flushed(self, *, ok: bool) -> None:
        """The pages of `pending_pages` are on disk, or have to be written again."""
        if not ok:
            self._dirty |= self._in_flush
        self._in_flush = set()


class PendingPages:
    """Brings pages to disk, beside those who change them again."""

    def __init__(self, wheel: TimerWheel, pages: list[tuple[int, bytes]]) -> None:
        self._wheel = wheel
        self._pages = pages

    @property
    def is_empty(self) -> bool:
        """Whether no page changed."""
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
            for number, page in self._pages:
                self._wheel.sums.note(number, None if page == _EMPTY_PAGE else page)
