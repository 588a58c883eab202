"""Record batches of a queue's messages: entries, then tags by hash, then the records."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from rocketpy.arrow import RecordDecoder
from rocketpy.arrow.gather import Int64s
from rocketpy.store.queue_entry import BLANK_SIZE
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.queues import Queue
from rocketpy.store.scan.wanted import QueueName, Wanted

_ENTRIES_AT_ONCE: Final = 100_000


def read(
    log: Log, queue: Queue, wanted: Wanted, decoder: RecordDecoder, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a queue from one queue offset to before another."""
    name = QueueName(queue.topic, queue.queue_id)
    wanted.lost(name, start, min(queue.begin, end))
    offset = max(start, queue.begin)
    while offset < end:
        entries = queue.entries(offset, min(end, offset + _ENTRIES_AT_ONCE))
        count = len(entries)
        if not count:
            wanted.lost(name, offset, end)
            return
        offset += count
        places = entries["phy_offset"].astype(np.int64)
        sizes = entries["size_bytes"].astype(np.int64)
        chosen = wanted.tags_mask(queue.topic, entries["tags_code"].astype(np.int64))
        if (sizes == BLANK_SIZE).any():
            whole = np.flatnonzero(sizes != BLANK_SIZE)
            chosen = whole if chosen is None else np.intersect1d(chosen, whole)
        if chosen is not None:
            places, sizes = places[chosen], sizes[chosen]
        yield from _records(log, wanted, decoder, places, sizes)


def read_places(
    log: Log, wanted: Wanted, decoder: RecordDecoder, phy_offsets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the records at physical offsets, which ascend."""
    places = np.array(phy_offsets, np.int64)
    return _records(log, wanted, decoder, places, np.zeros(len(places), np.int64))


def _records(
    log: Log, wanted: Wanted, decoder: RecordDecoder, places: Int64s, sizes: Int64s
) -> Iterator[pa.RecordBatch]:
    """Yield the records at places, in their order, in batches of one file each."""
    bases = np.array([file.base for file in log.files], np.int64)
    numbers = np.searchsorted(bases, places, side="right") - 1
    for start, end in _batches(numbers, sizes, wanted):
        mapped = log.open(max(int(numbers[start]), 0)) if len(bases) else None
        base = mapped.base if mapped is not None else 0
        data = mapped.data if mapped is not None else pa.py_buffer(b"")
        batch = decoder.decode(
            data, places[start:end] - base, broker_name=wanted.broker_name, base_offset=base
        )
        if mapped is not None:
            mapped.release_before(int(places[start]) - base)
        if batch.num_rows:
            yield batch


def _batches(numbers: Int64s, sizes: Int64s, wanted: Wanted) -> Iterator[tuple[int, int]]:
    """Yield where batches begin and end: one file, so many rows, about so many bytes."""
    count = len(numbers)
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, count)
    total = np.cumsum(sizes)
    start = 0
    while start < count:
        limit = int(total[start] - sizes[start]) + wanted.batch_bytes
        end = min(
            int(ends[np.searchsorted(ends, start, side="right")]),
            start + wanted.batch_rows,
            max(start + 1, int(np.searchsorted(total, limit, side="right"))),
        )
        yield start, end
        start = end
