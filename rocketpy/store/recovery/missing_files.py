"""Files that were lost from outside, as far as a start can notice it before it reads the log.

- The log: its files must reach as far as the checkpoint says that the log was on disk. When the
  directory is gone as a whole, somebody wanted an empty store.
- A queue: it must be as long as the checkpoint says, all queues together
  (`recovery.recovery`), have no gap (`consume_queue.queue_files`), and begin where the log
  does: files that retention deleted had no message left in the log.
- An index file: between two of them, and before the first, lies no message that has keys. At the
  end of the index recovery sees by itself what is missing.

What the log still holds is made again from it. Without it the start is refused.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record_check import RecordCheck
from rocketpy.store.append.dispatch import has_index_entries, read_back
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import is_safe_topic
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE
from rocketpy.store.files.mapped_file_queue import file_name
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.index.index_file import IndexHeader

logger: logging.Logger = logging.getLogger(__name__)

_INDEX_GAP_BYTES: Final = 4 << 20


def check_log_is_there(
    directory: Path, file_bytes: int, files: StoreFiles, on_disk_to: int
) -> None:
    """Refuse a log that is shorter than it was; nothing is changed.

    Args:
        directory: of the log.
        file_bytes: length of its files.
        files: the file system.
        on_disk_to: physical offset up to which the checkpoint vouches for the log.

    Raises:
        StoreFormatError: files at the end are missing, or empty.
    """
    if on_disk_to <= 0 or not files.exists(directory):
        return
    names = [name for name in files.list_files(directory) if name.isdecimal()]
    ends = [int(name) + file_bytes for name in names if files.size_bytes(directory / name)]
    end = max(ends, default=on_disk_to - 1 - (on_disk_to - 1) % file_bytes)
    if end < on_disk_to:
        raise StoreFormatError(
            f"{directory / file_name(end)} is missing: the log was on disk up to {on_disk_to}, "
            f"and its files end at {end}. Bring it back; or, to go on without its messages, remove "
            f"{directory.parent / 'checkpoint'} (for an empty store: all of {directory})"
        )


def index_files_before_gap(
    headers: Sequence[IndexHeader],
    log: CommitLog,
    covers: Callable[[str, int], bool],
    *,
    max_bytes: int = _INDEX_GAP_BYTES,
) -> int:
    """Return how many index files there are before the first one that is missing.

    Args:
        headers: of those that are there, oldest first.
        log: as loaded.
        covers: whether a message (topic, physical offset) was deleted with its topic.
        max_bytes: log to read at most before each file; nearly always it is one record.
    """
    start, known_to = log.min_phy_offset, -1
    for number, header in enumerate(headers):
        stop = min(header.begin_phy_offset, start + max_bytes)
        for phy_offset, found in log.scan(start, stop):
            if phy_offset > known_to and _has_keys(found, phy_offset, covers):
                logger.error("an index file is missing: phy_offset=%d", phy_offset)
                return number
        known_to = max(known_to, header.end_phy_offset)
        start = max(start, known_to)
    return len(headers)


def _has_keys(found: RecordCheck, phy_offset: int, covers: Callable[[str, int], bool]) -> bool:
    """Whether a message is found by a key that every version puts into the index."""
    request = read_back(found, phy_offset, ())
    return (
        request is not None
        and has_index_entries(request.sys_flag)
        and bool(request.uniq_key or request.keys)
        and request.queue_id >= 0
        and is_safe_topic(request.topic)
        and not covers(request.topic, phy_offset)
    )


def queues_with_lost_begin(
    queues: Iterable[ConsumeQueue], log: CommitLog, covers: Callable[[str, int], bool]
) -> list[ConsumeQueue]:
    """Return the queues that lack entries at their begin of messages that the log holds.

    The log is read only where a queue's first entry lies behind the begin of the log, which
    retention leaves about once in as many deletions as a queue file has entries.

    Args:
        queues: as loaded.
        log: as loaded.
        covers: whether a message (topic, physical offset) was deleted with its topic.
    """
    low = log.min_phy_offset
    begins: dict[tuple[bytes, int], ConsumeQueue] = {}
    high = low
    for queue in queues:
        first = queue.entry(queue.min_offset) if queue.min_offset else None
        if first is not None and first[1] != BLANK_SIZE and first[0] > low:
            begins[queue.topic.encode(), queue.queue_id] = queue
            high = max(high, first[0])
    lost: dict[ConsumeQueue, None] = {}
    for phy_offset, found in log.scan(low, high) if begins else ():
        begun = begins.get((found.topic, found.queue_id))
        if begun is None or covers(begun.topic, phy_offset):
            continue
        if found.queue_offset < begun.min_offset:
            lost[begun] = None
    return list(lost)
