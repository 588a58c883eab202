"""What an audit reads of a store directory: files of the log and of the consume queues, mapped.

Nothing is written, copied or locked; a broker may run.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketpy.errors import StoreFormatError
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE, ENTRY_BYTES

Int64s = npt.NDArray[np.int64]

ENTRY: Final = np.dtype([("phy_offset", ">i8"), ("size_bytes", ">i4"), ("tags_code", ">i8")])
assert ENTRY.itemsize == ENTRY_BYTES
CHUNK_ENTRIES: Final = 50_000
_MAPPED_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that is named after the offset of its first byte.

    Attributes:
        path: of the file.
        base: that offset.
        size_bytes: of the file.
    """

    path: str
    base: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self.base + self.size_bytes


@dataclass(frozen=True, slots=True)
class QueueFolder:
    """The files of one consume queue, in order."""

    topic: str
    queue_id: int
    files: tuple[DataFile, ...]


def data_files(folder: Path) -> list[DataFile]:
    """Return the files of a directory that are named after an offset, in order."""
    if not folder.is_dir():
        return []
    found = [
        DataFile(str(path), int(path.name), path.stat().st_size)
        for path in folder.iterdir()
        if path.name.isdecimal() and len(path.name) == 20 and path.is_file()
    ]
    return sorted(found, key=lambda each: each.base)


def log_files(root: Path) -> list[DataFile]:
    """Return the files of a store's commit log.

    Raises:
        StoreFormatError: the directory is no store.
    """
    files = data_files(root / "commitlog")
    if not files:
        raise StoreFormatError(f"{root} is not a store directory: it has no commitlog with files")
    return files


def queue_folders(root: Path) -> list[QueueFolder]:
    """Return a store's consume queues, by topic and number."""
    found = []
    for topic in sorted((root / "consumequeue").glob("*")):
        for queue in topic.glob("*"):
            if queue.name.isdecimal():
                files = tuple(data_files(queue))
                found.append(QueueFolder(topic.name, int(queue.name), files))
    return sorted(found, key=lambda each: (each.topic, each.queue_id))


class Maps:
    """Files mapped for reading, the last few of them kept."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, npt.NDArray[np.uint8]] = OrderedDict()

    def bytes_of(self, file: DataFile) -> npt.NDArray[np.uint8]:
        """Return a file's bytes, uint8, shape (size in bytes,)."""
        found = self._open.pop(file.path, None)
        if found is None:
            found = np.memmap(file.path, np.uint8, "r", shape=(file.size_bytes,))
        self._open[file.path] = found
        while len(self._open) > _MAPPED_MAX:
            self._open.popitem(last=False)
        return found

    def entries_of(self, file: DataFile) -> npt.NDArray[Any]:
        """Return the entries of a queue's file, `ENTRY`, shape (entries,)."""
        whole = file.size_bytes // ENTRY_BYTES * ENTRY_BYTES
        return self.bytes_of(file)[:whole].view(ENTRY)


def entry_chunks(maps: Maps, queue: QueueFolder) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (queue offset of the first, entries) of a queue, up to its last written entry.

    An entry that was not written is all zero, or stands before the first message (blank).
    """
    last = _last_written(maps, queue)
    for file in queue.files:
        first = file.base // ENTRY_BYTES
        entries = maps.entries_of(file)
        count = min(len(entries), max(0, last + 1 - first))
        for start in range(0, count, CHUNK_ENTRIES):
            yield first + start, np.array(entries[start : min(count, start + CHUNK_ENTRIES)])


def end_of(maps: Maps, queue: QueueFolder) -> int:
    """Return the queue offset behind the last written entry."""
    return _last_written(maps, queue) + 1


def _last_written(maps: Maps, queue: QueueFolder) -> int:
    for file in reversed(queue.files):
        entries = maps.entries_of(file)
        written = np.flatnonzero((entries["size_bytes"] != 0) | (entries["phy_offset"] != 0))
        if len(written):
            return file.base // ENTRY_BYTES + int(written[-1])
    return -1


def is_blank(entries: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Tell which entries stand before the first message of a queue that begins late."""
    blank: npt.NDArray[np.bool_] = (entries["phy_offset"] == 0) & (
        entries["size_bytes"] == BLANK_SIZE
    )
    return blank


def phy_offsets_at(maps: Maps, queue: QueueFolder, offsets: Int64s) -> Int64s:
    """Return the physical offsets that a queue has at some queue offsets; -1 where it has none."""
    found = np.full(len(offsets), -1, np.int64)
    for file in queue.files:
        entries = maps.entries_of(file)
        places = offsets - file.base // ENTRY_BYTES
        inside = np.flatnonzero((places >= 0) & (places < len(entries)))
        there = entries[places[inside]]
        written = (there["size_bytes"] != 0) & ~is_blank(there)
        found[inside[written]] = there["phy_offset"][written]
    return found
