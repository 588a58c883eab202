"""Cached preconditions of a consumer's sequential reads of a queue.

A consumer reads a queue from front to back, a few messages at a time. The preconditions that
`MessageReader` checks for each read (queue, log file, whether messages must be checked, whether
they are in memory) are the same for thousands of reads. A caller of the fast path may cache them in
a cursor and compare; `MessageReader.begin_plain` describes the meaning of the comparison.

A cursor holds no memory of a file, so that a deleted file can be freed.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.files.mapped_file_queue import MappedFileQueue
from rocketpy.store.read.entry_cache import CachedEntries
from rocketpy.store.store_offsets import StoreOffsets


class ReadCursor(NamedTuple):
    """Preconditions of a read that needed no checks.

    They are valid for a read that starts at a message from `usual_from` to before
    `expected_to`, while the queue is not deleted, the log has the same file at the same index, no
    further record was found damaged, and the message is recent.

    Attributes:
        queue: the queue.
        file_index: index of the log file.
        file_base: first physical offset of the file.
        usual_from: physical offset from which messages need no check.
        intact_to: physical offset of the next damaged record; very large without one.
        damaged_count: number of damaged records.
        expected_to: physical offset up to which `LogPrefetcher` was notified of reads.
    """

    queue: ConsumeQueue
    file_index: int
    file_base: int
    usual_from: int
    intact_to: int
    damaged_count: int
    expected_to: int


class ReadSources(NamedTuple):
    """Objects that fast-path reads compare with a cursor; constant while the store is open.

    Attributes:
        log_files: files of the commit log.
        offsets: offsets of the store.
        damaged: physical offsets of damaged records.
        kept_reads: cached entries of queue files, by `ConsumeQueue.life`.
        scan_count: most entries that one read checks.
        recent_bytes: bytes before the end of the log that are read from memory.
    """

    log_files: MappedFileQueue
    offsets: StoreOffsets
    damaged: AbstractSet[int]
    kept_reads: Mapping[object, tuple[CachedEntries, ...]]
    scan_count: int
    recent_bytes: int
