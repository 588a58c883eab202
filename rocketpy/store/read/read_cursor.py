"""Where a consumer's reads of a queue go on, for as long as what the first found still holds.

A consumer reads a queue from front to back, a few messages at a time. What `MessageReader` asks for
each read (the queue, the file of the log, whether messages have to be checked, whether what follows
is in memory) is the same for thousands of them. Whoever takes the records himself may keep it and
compare; `MessageReader.begin_plain` says what such a comparison stands for.

Nothing here holds memory of a file: a deleted one must go although somebody once read it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.files.mapped_file_queue import MappedFileQueue
from rocketpy.store.read.entry_cache import CachedEntries
from rocketpy.store.store_offsets import StoreOffsets


class ReadCursor(NamedTuple):
    """What held when a read was begun that had nothing to check.

    It holds for a read that begins at a message from ``usual_from`` to before ``expected_to``,
    while the queue is not deleted, the log has the same file at the same place, no other record was
    found damaged, and the message is one of the recent ones.

    Attributes:
        queue: that is read.
        file_index: place of the log file among all.
        file_base: physical offset where it begins.
        usual_from: physical offset; no message from there on has to be checked.
        intact_to: physical offset of the next record that is damaged; far away without one.
        damaged_count: of records known to be damaged.
        expected_to: physical offset; `LogPrefetcher` was told of reads that begin before it.
    """

    queue: ConsumeQueue
    file_index: int
    file_base: int
    usual_from: int
    intact_to: int
    damaged_count: int
    expected_to: int


class ReadSources(NamedTuple):
    """What reads look at, the same ones for as long as the store is open.

    Attributes:
        log_files: of the commit log.
        offsets: how far the log goes.
        damaged: physical offsets of records that are known to be damaged.
        kept_reads: entries that were read from queue files, by `ConsumeQueue.life`.
        scan_count: entries that one read looks at, at most.
        recent_bytes: how far before its end the log is read from memory.
    """

    log_files: MappedFileQueue
    offsets: StoreOffsets
    damaged: AbstractSet[int]
    kept_reads: Mapping[object, tuple[CachedEntries, ...]]
    scan_count: int
    recent_bytes: int
