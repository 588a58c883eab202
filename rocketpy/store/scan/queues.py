"""Consume queues for scans: entries as arrays, and the records of batch queues.

Entry `n` lies at byte `n * 20` of the concatenated files; the first entry without a size is the
end. A queue that a RocketPy broker is writing has its newest entries in memory; `unflushed_tail`
rebuilds them from the log.

A record of a batch consume queue may hold several messages; a row is then a record, as in a scan by
log.

Source: BatchConsumeQueue (5.4.0).
"""

import bisect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from rocketpy.arrow.gather import Int64s
from rocketpy.errors import StoreFormatError
from rocketpy.store.consume_queue.batch_consume_queue import BATCH_ENTRY_BYTES
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE, ENTRY, ENTRY_BYTES
from rocketpy.store.scan.directory import StoreDirectory, size_of
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.request import QueueName, ScanRequest
from rocketpy.store.scan.unflushed_tail import ENTRIES, Entries

_ENTRIES: Final = np.dtype(
    {
        "names": ["phy_offset", "size_bytes", "store_ms", "base_offset"],
        "formats": [">i8", ">i4", ">i8", ">i8"],
        "offsets": [0, 8, 20, 28],
        "itemsize": BATCH_ENTRY_BYTES,
    }
)


def places(
    directory: StoreDirectory, name: QueueName, log: Log, wanted: ScanRequest
) -> Iterator[int]:
    """Yield the physical offsets of the selected records of a batch queue, ascending.

    A record is selected by the offset and the time of its first message.

    Raises:
        StoreFormatError: a file that is not a file of a batch queue.
    """
    start = wanted.starts.get(name, 0)
    end = wanted.ends.get(name, np.iinfo(np.int64).max)
    oldest = max(log.begin, directory.deleted_topics().get(name.topic, 0))
    for path in sorted(directory.batch_queue_directory(*name).iterdir()):
        if path.stat().st_size % BATCH_ENTRY_BYTES:
            raise StoreFormatError(f"{path} is not a file of a batch consume queue")
        entries = np.fromfile(path, _ENTRIES)
        found: Int64s = entries["phy_offset"].astype(np.int64)
        chosen = (entries["size_bytes"] > 0) & (found >= oldest)
        chosen &= (entries["base_offset"] >= start) & (entries["base_offset"] < end)
        if wanted.start_ms is not None:
            chosen &= entries["store_ms"] >= wanted.start_ms
        if wanted.end_ms is not None:
            chosen &= entries["store_ms"] < wanted.end_ms
        yield from (place for place in found[chosen].tolist() if not log.is_behind_end(place))


assert ENTRIES.itemsize == ENTRY_BYTES == ENTRY.size
_NAME_DIGITS: Final = 20
_NO_TAIL: Final = 1 << 62


class Queue:
    """Snapshot of one consume queue.

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        begin: queue offset of the first message that is still in the log.
        end: queue offset after the last message that is in the log.
    """

    def __init__(self, topic: str, queue_id: int, directory: Path, log: Log) -> None:
        """Read the bounds of a queue.

        Raises:
            StoreFormatError: a file that is not a queue file.
        """
        self.topic = topic
        self.queue_id = queue_id
        self._directory = directory
        self._log = log
        self._tail_start, self._tail = _NO_TAIL, np.empty(0, ENTRIES)
        self._bases, self._per_file = _bases_of(directory)
        first = self._bases[0] if self._bases else 0
        end = self._written_end()
        self.begin: int = first + bisect.bisect_left(
            range(first, end), log.begin, key=self._phy_or_before
        )
        self.end: int = max(self.begin, self._end_in_log(self.begin, end))
        self._tail_start = self.end

    def add_tail(self, start: int, entries: Entries) -> None:
        """Append entries from queue offset `start` on, which must be the end of the files."""
        if not self._bases:
            self.begin = start
        self._tail_start, self._tail = start, entries
        self.end = start + len(entries)

    def tail_from(self, start: int, end: int) -> Entries:
        """Return the last entries of a range, which are in no file."""
        first = max(start, self._tail_start)
        return self._tail[first - self._tail_start : max(first, end) - self._tail_start]

    def phy_end(self) -> int:
        """Return the physical end of the last message in the files; 0 if there is none."""
        entry = self._entry(self._tail_start - 1) if self._tail_start > self.begin else None
        return 0 if entry is None or entry[1] == BLANK_SIZE else sum(entry)

    def entries(self, start: int, stop: int) -> Entries:
        """Return entries of one file from `start` to before `stop`; none if they were deleted.

        Returns:
            An array of `ENTRIES`.
        """
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : stop - self._tail_start]
        stop = min(stop, self._tail_start)
        base = start - start % self._per_file
        count = min(stop, base + self._per_file) - start
        path = self._directory / f"{base * ENTRY_BYTES:0{_NAME_DIGITS}d}"
        try:
            return np.fromfile(path, ENTRIES, max(0, count), offset=(start - base) * ENTRY_BYTES)
        except FileNotFoundError:  # expired meanwhile
            return np.empty(0, ENTRIES)

    def offset_by_time(self, time_ms: int) -> int:
        """Return the first queue offset stored at or after a time; `end` if there is none."""
        span = range(self.begin, self.end)
        return self.begin + bisect.bisect_left(span, time_ms, key=self._time_of)

    def _time_of(self, queue_offset: int) -> int:
        """Return the store time of a message, or of the next one if it is damaged."""
        for each in range(queue_offset, self.end):
            entry = self._entry(each)
            found = None if entry is None else self._log.store_time_ms(entry[0])
            if found is not None:
                return found
        return (1 << 63) - 1

    def _entry(self, queue_offset: int) -> tuple[int, int] | None:
        """Return physical offset and size of one entry; None if it was deleted."""
        found = self.entries(queue_offset, queue_offset + 1)
        return (int(found[0]["phy_offset"]), int(found[0]["size_bytes"])) if len(found) else None

    def _phy_or_before(self, queue_offset: int) -> int:
        entry = self._entry(queue_offset)
        return -1 if entry is None or entry[1] == BLANK_SIZE else entry[0]

    def _written_end(self) -> int:
        """Return the queue offset after the last written entry."""
        for base in reversed(self._bases):
            # Written entries precede unwritten ones, so bisection finds the end.
            span = range(base, base + self._per_file)
            count = bisect.bisect_left(span, 1, key=self._is_unwritten)
            if count:
                return base + count
        return self._bases[0] if self._bases else 0

    def _is_unwritten(self, queue_offset: int) -> bool:
        entry = self._entry(queue_offset)
        return entry is None or entry[1] <= 0

    def _end_in_log(self, begin: int, end: int) -> int:
        """Return the queue offset after the last entry whose message is in the log.

        A torn log, or one that was copied before its queues, ends before them.
        """
        last = self._entry(end - 1) if end > begin else None
        if last is None or not self._is_behind_end(end - 1):
            return end
        return begin + bisect.bisect_left(range(begin, end), 1, key=self._is_behind_end)

    def _is_behind_end(self, queue_offset: int) -> bool:
        entry = self._entry(queue_offset)
        if entry is None or entry[1] == BLANK_SIZE:
            return False
        return self._log.is_behind_end(entry[0])


def _bases_of(directory: Path) -> tuple[Sequence[int], int]:
    """Return the first queue offsets of the files after the last gap, and the file length.

    Raises:
        StoreFormatError: a name that is not an offset, or files of different lengths.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.is_file())
    except FileNotFoundError:
        return [], 1
    sizes = {path.name: size_of(path) for path in paths}
    for name in sizes:
        if len(name) != _NAME_DIGITS or not name.isdigit():
            raise StoreFormatError(f"{directory / name} is not named by an offset")
    names = [name for name, size in sizes.items() if size]
    if not names:
        return [], 1
    size = sizes[names[0]]
    for name in names:
        if sizes[name] != size or size % ENTRY_BYTES or int(name) % size:
            raise StoreFormatError(
                f"{directory / name} has {sizes[name]} bytes, but the first file of the queue "
                f"has {size}"
            )
    kept = [int(names[-1])]
    while len(kept) < len(names) and int(names[-1 - len(kept)]) == kept[-1] - size:
        kept.append(kept[-1] - size)
    return [base // ENTRY_BYTES for base in reversed(kept)], size // ENTRY_BYTES
