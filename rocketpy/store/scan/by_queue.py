"""Record batches of a queue: reads entries, filters by tag hash, then reads records."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.missing_rows import lost_rows
from rocketpy.arrow.record_headers import Mask
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.queues import Queue
from rocketpy.store.scan.request import QueueName, ScanRequest
from rocketpy.store.scan.unflushed_tail import LOST_SIZE

if TYPE_CHECKING:
    from rocketpy.arrow import RecordDecoder

_ENTRIES_AT_ONCE: Final = 100_000


def read(
    log: Log, queue: Queue, wanted: ScanRequest, decoder: "RecordDecoder", start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """Yield the messages in a range of queue offsets."""
    name = QueueName(queue.topic, queue.queue_id)
    # Expired offsets are reported before the first message, in queue order.
    yield from _lost(wanted, name, start, min(queue.begin, end))
    offset = max(start, queue.begin)
    while offset < end:
        entries = queue.entries(offset, min(end, offset + _ENTRIES_AT_ONCE))
        count = len(entries)
        if not count:
            yield from _lost(wanted, name, offset, end)
            return
        numbers = np.arange(offset, offset + count)
        offset += count
        places = entries["phy_offset"].astype(np.int64)
        sizes = entries["size_bytes"].astype(np.int64)
        # Entries without a message and entries that point backwards are handled alike.
        is_lost = (sizes == LOST_SIZE) | _leads_back(places, sizes)
        lost = np.flatnonzero(is_lost)
        for some in np.split(lost, np.flatnonzero(np.diff(lost) > 1) + 1) if len(lost) else ():
            yield from _lost(wanted, name, int(numbers[some[0]]), int(numbers[some[-1]]) + 1)
        # Filtering by tag hash avoids reading records that cannot match.
        chosen = wanted.tags_mask(queue.topic, entries["tags_code"].astype(np.int64))
        is_whole = (sizes != BLANK_SIZE) & ~is_lost
        if not is_whole.all():
            whole = np.flatnonzero(is_whole)
            chosen = whole if chosen is None else np.intersect1d(chosen, whole)
        if chosen is not None:
            places, sizes, numbers = places[chosen], sizes[chosen], numbers[chosen]

        def gone(first: int, last: int, numbers: Int64s = numbers) -> Iterator[pa.RecordBatch]:
            return _lost(wanted, name, int(numbers[first]), int(numbers[last]) + 1)

        yield from _records(log, wanted, decoder, places, sizes, gone)


def _lost(wanted: ScanRequest, queue: QueueName, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Handle deleted messages as requested: raise, or yield a row that marks them."""
    wanted.lost(queue, start, end)
    if wanted.on_data_loss == "mark" and end > start:
        place = (queue.topic, wanted.broker_name, queue.queue_id, start, end)
        yield lost_rows([place], wanted.schema)


def _leads_back(places: Int64s, sizes: Int64s) -> Mask:
    """Return which entries point before the previous two: messages lie in queue order.

    A damaged entry points to a message with another queue offset.
    """
    found = np.zeros(len(places), np.bool_)
    there = np.flatnonzero((sizes != BLANK_SIZE) & (sizes != LOST_SIZE))
    at = places[there]
    # Two predecessors are compared, because one of them may be the damaged entry.
    found[there[2:]] = (at[2:] <= at[1:-1]) & (at[2:] <= at[:-2])
    return found


def read_places(
    log: Log, wanted: ScanRequest, decoder: "RecordDecoder", phy_offsets: Sequence[int]
) -> Iterator[pa.RecordBatch]:
    """Yield the records at ascending physical offsets."""
    places = np.array(phy_offsets, np.int64)

    def gone(first: int, last: int) -> Iterator[pa.RecordBatch]:
        wanted.lost_of_log(int(places[first]), int(places[last]) + 1)
        return iter(())

    return _records(log, wanted, decoder, places, np.zeros(len(places), np.int64), gone)


def _records(
    log: Log,
    wanted: ScanRequest,
    decoder: "RecordDecoder",
    places: Int64s,
    sizes: Int64s,
    gone: Callable[[int, int], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the records at physical offsets, in order, in batches of one file each.

    `gone` is called with the first and the last index of offsets whose file was deleted.
    """
    numbers = _file_numbers(log, places)
    for start, end in _batches(numbers, sizes, wanted):
        number = int(numbers[start])
        mapped = log.open(number) if number >= 0 else None
        if mapped is None:
            yield from gone(start, end - 1)
            continue
        yield from decoder.batches(
            mapped.data,
            places[start:end] - mapped.base,
            broker_name=wanted.broker_name,
            base_offset=mapped.base,
        )
        mapped.release_before(int(places[end - 1]) - mapped.base)


def _file_numbers(log: Log, places: Int64s) -> Int64s:
    """Return the file number of each offset: -1 if deleted, the last file for larger offsets.

    An offset after the last file is damaged, or was never written.
    """
    if not log.files:
        return np.full(len(places), -1)
    bases = np.array([file.base for file in log.files], np.int64)
    ends = np.array([file.base + file.size_bytes for file in log.files], np.int64)
    numbers: Int64s = np.searchsorted(bases, places, side="right") - 1
    is_gone = (numbers >= 0) & (numbers < len(bases) - 1) & (places >= ends[numbers])
    return np.where(is_gone, -1, numbers)


def _batches(numbers: Int64s, sizes: Int64s, wanted: ScanRequest) -> Iterator[tuple[int, int]]:
    """Yield the bounds of batches: one file, limited rows, about the limit of bytes."""
    count = len(numbers)
    # A batch never crosses a file, because it is decoded from one mapping.
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, count)
    total = np.cumsum(sizes)
    start = 0
    while start < count:
        limit = int(total[start] - sizes[start]) + wanted.batch_bytes
        end = min(
            int(ends[np.searchsorted(ends, start, side="right")]),
            start + wanted.batch_rows,
            # At least one row: a single record may be larger than the limit.
            max(start + 1, int(np.searchsorted(total, limit, side="right"))),
        )
        yield start, end
        start = end
