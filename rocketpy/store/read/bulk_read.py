"""Bulk reads: processes queue entries as columns instead of one by one.

In most reads the records of all entries are consecutive in one file. The checks of each entry then
apply to all of them at once, with one call per column.
"""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from itertools import compress
from operator import add, le, ne
from typing import Final, NamedTuple

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import columns_of

_new: Final = tuple.__new__


class BulkReadPlan(NamedTuple):
    """Plan of a read whose records the caller can take without further checks.

    Attributes:
        entries: complete entries of the queue.
        view: memory of the log file with the first record.
        base: physical offset of its first byte.
        end: physical offset of the end of its written part.
        first: physical offset of the first entry's record; earlier records need the general path.
        low: first offset of the queue.
        high: offset after the last of the queue.
        messages: most messages to take.
        size_bytes: most bytes of messages, but one is always taken.
        is_cut: whether a read without matches must continue after these entries.
        cut_at: queue offset of the first excluded entry whose message must be checked first; 0 if
            there is none.
        check_before: physical offset of the first message that needs no check; the caller must
            check earlier ones (`record_check.is_intact`). 0 if none needs a check.
        proven: leading entries whose messages are verified.
        queue: the queue, while some entries need a check.
        start: queue offset of the first entry.
        is_usual: no entry needs a check, so `MessageReader.end_plain` accepts any read that took
            records.
    """

    entries: memoryview
    view: memoryview
    base: int
    end: int
    first: int
    low: int
    high: int
    messages: int
    size_bytes: int
    is_cut: bool
    cut_at: int = 0
    check_before: int = 0
    proven: int = 0
    queue: ConsumeQueue | None = None
    start: int = 0
    is_usual: bool = False


class BulkRead(NamedTuple):
    """Records of the leading entries of a window.

    Attributes:
        places: physical offset of each record, ascending.
        records: views of the file, one for each record unless some were joined.
        size_bytes: size of all records.
    """

    places: Sequence[int]
    records: list[memoryview]
    size_bytes: int


class RecordRun(NamedTuple):
    """Consecutive records in memory that a filter must check.

    Attributes:
        view: memory of their file.
        base: physical offset of its first byte.
        offsets: physical offset of each record.
        sizes: size of each record, bytes.
    """

    view: memoryview
    base: int
    offsets: Sequence[int]
    sizes: Sequence[int]


def plain_run(
    window: memoryview,
    most_bytes: int,
    file: tuple[memoryview, int, int],
    *,
    may_join: bool = False,
) -> BulkRead | None:
    """Return the leading entries whose records lie in one file and fit a number of bytes.

    Args:
        window: complete entries, at least one.
        most_bytes: most bytes of all records; the first may be larger.
        file: memory, first physical offset and end of the written part of the file.
        may_join: adjacent records may be returned as one.

    Returns:
        At least one entry; None if records are out of order or overlap.
    """
    view, base, file_end = file
    places, sizes = columns_of(window)
    ends = tuple(map(add, places, sizes))
    if places[0] < base or min(sizes) <= 0:
        return None
    # Batches are usually adjacent: one comparison, because a check of each pair is expensive.
    is_joined = ends[:-1] == places[1:]
    if not is_joined and not all(map(le, ends, places[1:])):
        return None
    size_bytes = sum(sizes)
    if size_bytes > most_bytes or ends[-1] > file_end:
        totals = list(itertools.accumulate(sizes))
        fitting = max(1, bisect_right(totals, most_bytes))
        count = min(fitting, bisect_right(ends, file_end))
        if not count:
            return None
        places, ends, size_bytes = places[:count], ends[:count], totals[count - 1]
    if may_join and is_joined:
        records = [view[places[0] - base : ends[-1] - base]]
        return _new(BulkRead, (places, records, size_bytes))  # without the frame of a call
    starts: Sequence[int] = places
    if may_join and len(places) > 1 and ends[0] == places[1]:
        is_apart = list(map(ne, ends, places[1:]))
        starts = (places[0], *compress(places[1:], is_apart))
        ends = (*compress(ends, is_apart), ends[-1])
    records = [view[start - base : end - base] for start, end in zip(starts, ends, strict=True)]
    return _new(BulkRead, (places, records, size_bytes))
