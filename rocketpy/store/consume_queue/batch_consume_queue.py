"""Bounds of the batch consume queues of an Apache store, which RocketPy leaves unchanged.

One entry describes a record that holds several messages::

    0          8      12          20           28            36       38          42     46
    | phy      | size | tags code | store time | base offset | count  | compacted | zero |

RocketPy does not serve these queues. It reads their bounds so that no message is written over
them, and changes neither entries nor files.

Source: BatchConsumeQueue (5.4.0).
"""

import struct
from pathlib import Path
from typing import Final

from rocketpy.store.files.mapped_file import PAGE_BYTES
from rocketpy.store.files.mapped_file_queue import MappedFileQueue
from rocketpy.store.files.store_files import StoreFiles

BATCH_ENTRY_BYTES: Final = 46
_ENTRY: Final = struct.Struct(">qiqqqhii")
assert _ENTRY.size == BATCH_ENTRY_BYTES


class BatchConsumeQueue:
    """Bounds of one batch queue.

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        min_offset: offset of the first message.
        max_offset: offset after the last message.
        max_phy_end: physical end of the last record.
    """

    __slots__ = ("_queue", "max_offset", "max_phy_end", "min_offset", "queue_id", "topic")

    def __init__(
        self, topic: str, queue_id: int, directory: Path, file_bytes: int, files: StoreFiles
    ) -> None:
        assert file_bytes % BATCH_ENTRY_BYTES == 0
        self.topic: str = topic
        self.queue_id: int = queue_id
        self._queue = MappedFileQueue(directory, file_bytes, files, step_bytes=PAGE_BYTES)
        self.min_offset: int = 0
        self.max_offset: int = 0
        self.max_phy_end: int = 0

    def load(self, log_end: int) -> None:
        """Read the entries of records that end within the log, then close the files.

        Raises:
            StoreFormatError: a file that does not belong there.
        """
        self._queue.load()
        first = True
        for mapped in self._queue.files:
            for phy, size, _, _, base, count, _, _ in _ENTRY.iter_unpack(mapped.view):
                if phy < 0 or size <= 0 or base < 0 or count <= 0 or phy + size > log_end:
                    break
                if first:
                    self.min_offset, first = base, False
                self.max_offset = base + count
                self.max_phy_end = phy + size
        self._queue.close()
