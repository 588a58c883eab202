"""Log reader: parts of the log for slaves, and samples that prove two logs equal.

Records hold their physical offset and store time, so two logs that differ somewhere differ from
there to their end: a sample of the end finds every such difference, and samples of the whole range
show where it begins.

Source: DefaultHAConnection.WriteSocketService (5.4.0), which compares nothing.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.commit_log.prefetch import RECENT_BYTES
from rocketpy.store.files.mapped_file import MappedFile
from rocketpy.store.store_offsets import StoreOffsets

# More than the largest record by default. A message that was sent again is stored with the same
# body; only the head of its record differs.
END_SAMPLE_BYTES: Final = 5 << 20
"""Size of the sample that ends at the end of the log."""
_PIECE_BYTES: Final = 1 << 20
# Usually one for each slave that catches up.
_MOST_PIECES: Final = 4


class LogSample(NamedTuple):
    """Checksum of a part of a log.

    Attributes:
        offset: physical offset of the first byte.
        length: number of bytes.
        crc: CRC-32 of them, unsigned.
    """

    offset: int
    length: int
    crc: int


class LogReader:
    """Reader of the appended part of a log; safe from any thread."""

    def __init__(self, log: CommitLog, offsets: StoreOffsets) -> None:
        """Read the log of one store.

        Args:
            log: the commit log.
            offsets: offsets of the store, for the end of the log.
        """
        self._log = log
        self._offsets = offsets
        self._lock = threading.Lock()
        self._pieces: OrderedDict[int, memoryview] = OrderedDict()

    def part(self, phy_offset: int, max_bytes: int) -> memoryview | None:
        """Return bytes of the log from an offset on, never across the end of a file.

        Recent bytes are a view of the file's memory. Older ones are read by a system call in
        pieces, which lets other threads run, and does not fill the page cache with bytes that
        consumers do not read; it may wait for the disk.

        Args:
            phy_offset: offset of the first byte.
            max_bytes: most bytes; fewer at the end of a file and of the log.

        Returns:
            None if the offset is the end of the log or later, or before its oldest byte.

        Raises:
            OSError: the disk cannot read it.
            ResourceShortError: no descriptor.
        """
        appended = self._offsets.appended
        mapped = self._log.queue.find(phy_offset)
        if mapped is None or phy_offset >= appended:
            return None
        end = min(phy_offset + max_bytes, mapped.end_offset, appended)
        if phy_offset < appended - RECENT_BYTES:
            return self._old_part(mapped, phy_offset, end)
        position = phy_offset - mapped.base_offset
        return mapped.view[position : position + end - phy_offset]

    def _old_part(self, mapped: MappedFile, phy_offset: int, end: int) -> memoryview | None:
        """Return bytes up to `end` at most; reads a whole piece of the file."""
        start = phy_offset - (phy_offset - mapped.base_offset) % _PIECE_BYTES
        piece = self._pieces.get(start)
        if piece is None or start + len(piece) <= phy_offset:
            limit = mapped.base_offset + mapped.write_position
            piece = self._log.read_once(start, min(_PIECE_BYTES, limit - start))
            if piece is None:
                return None
            with self._lock:
                self._pieces[start] = piece
                while len(self._pieces) > _MOST_PIECES:
                    self._pieces.popitem(last=False)
        return piece[phy_offset - start : end - start]

    def samples(
        self, count: int, sample_bytes: int, start: int = 0, last_bytes: int = 0
    ) -> list[LogSample]:
        """Return samples spread over the log from an offset on; the last one ends at its end.

        Args:
            count: most samples.
            sample_bytes: size of a sample; the last one has up to `END_SAMPLE_BYTES`.
            start: physical offset, such as that of the oldest byte of another log.
            last_bytes: size of the last sample if it is larger.
        """
        end = self._offsets.appended
        low = min(end, max(start, self._log.min_phy_offset))
        last = max(low, end - max(END_SAMPLE_BYTES, last_bytes))
        starts = {low + (end - low) * each // max(1, count - 1) for each in range(count - 1)}
        found = [self._sample(each, min(sample_bytes, end - each)) for each in sorted(starts)]
        if end > last:
            found.append(self._sample(last, end - last))
        return [each for each in found if each is not None and each.length]

    def first_difference(self, samples: Iterable[LogSample | tuple[int, int, int]]) -> int | None:
        """Return the offset of the first sample that differs from this log; None if all agree.

        The first is the one that ends first, because a long one shows the location least exactly.

        Args:
            samples: samples of another log; those outside this log are ignored.
        """
        for offset, length, crc in sorted(samples, key=lambda each: each[0] + each[1]):
            found = self._sample(offset, length)
            if found is not None and found.crc != crc:
                return offset
        return None

    def _sample(self, offset: int, length: int) -> LogSample | None:
        """Return the checksum of a range; None if it is not in the log completely."""
        if length < 0 or not self._log.min_phy_offset <= offset <= self._offsets.appended - length:
            return None
        crc, position, end = 0, offset, offset + length
        while position < end:
            file_end = self._log.next_file_offset(position)
            part = self._log.record_from_disk(position, min(end, file_end) - position)
            if not part:  # retention deleted it meanwhile
                return None
            crc = crc32(part, crc)
            position += len(part)
        return LogSample(offset, length, crc)
