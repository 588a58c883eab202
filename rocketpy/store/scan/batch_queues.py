"""Where the records of batch consume queues lie, each of which may hold several messages.

A row is a record, as in a scan by log.

Source: BatchConsumeQueue (5.4.0).
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from rocketpy.arrow.gather import Int64s
from rocketpy.errors import StoreFormatError
from rocketpy.store.batch_consume_queue import BATCH_ENTRY_BYTES
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.wanted import QueueName, Wanted

_ENTRIES: Final = np.dtype(
    {
        "names": ["phy_offset", "size_bytes", "store_ms", "base_offset"],
        "formats": [">i8", ">i4", ">i8", ">i8"],
        "offsets": [0, 8, 20, 28],
        "itemsize": BATCH_ENTRY_BYTES,
    }
)


def places(directory: StoreDirectory, name: QueueName, log: Log, wanted: Wanted) -> Iterator[int]:
    """Yield the physical offsets of those records of a queue that are wanted, ascending.

    A record is wanted when its first message has an offset and a time that are.

    Raises:
        StoreFormatError: a file that is none of such a queue.
    """
    start = wanted.starts.get(name, 0)
    end = wanted.ends.get(name, np.iinfo(np.int64).max)
    oldest = max(log.begin, directory.deleted_topics().get(name.topic, 0))
    for path in sorted(directory.batch_queue_directory(*name).iterdir()):
        if path.stat().st_size % BATCH_ENTRY_BYTES:
            raise StoreFormatError(f"{path} is no file of a batch consume queue")
        entries = np.fromfile(path, _ENTRIES)
        found: Int64s = entries["phy_offset"].astype(np.int64)
        chosen = (entries["size_bytes"] > 0) & (found >= oldest)
        chosen &= (entries["base_offset"] >= start) & (entries["base_offset"] < end)
        if wanted.start_ms is not None:
            chosen &= entries["store_ms"] >= wanted.start_ms
        if wanted.end_ms is not None:
            chosen &= entries["store_ms"] < wanted.end_ms
        yield from (place for place in found[chosen].tolist() if not log.is_behind_end(place))
