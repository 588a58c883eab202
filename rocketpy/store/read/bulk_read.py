"""Entries of a queue taken together, in steps over whole columns.

Most reads meet nothing but entries whose records lie one behind the other in one file. What a loop
asks of each entry is then asked of all at once, and every step is a call over a column.
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
    """Where a read begins whose records can be taken by whoever asks, with no look at any of them.

    Attributes:
        entries: of the queue, whole ones.
        view: the log file that the first record is in.
        base: physical offset of its first byte.
        end: physical offset where what is written of it ends.
        first: physical offset of the first entry's record; none before it is plain.
        low: first offset of the queue.
        high: offset after the last of the queue.
        messages: to be taken at most.
        size_bytes: of them at most, but one is always taken.
        is_cut: whether a read that finds nothing in these entries looks at more of them.
        cut_at: queue offset of the first entry that is not among them because its message has to
            be checked first; 0 without such.
        check_before: physical offset of the first message that needs no check: who takes an
            earlier one checks it (`record_check.is_intact`). 0 when none does.
        proven: leading entries whose messages were checked before.
        queue: whose entries these are, while some have to be checked.
        start: queue offset of the first entry.
        is_usual: nothing in it has to be checked: `MessageReader.end_plain` then says of a read
            that took records what it always says.
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
    """Leading entries of a window.

    Attributes:
        places: physical offset of each record, ascending.
        records: the records, views of the file, one each unless some were joined.
        size_bytes: of all of them.
    """

    places: Sequence[int]
    records: list[memoryview]
    size_bytes: int


class RecordRun(NamedTuple):
    """Records one behind the other in memory, all of them to be looked at.

    Attributes:
        view: of the file that they are in.
        base: physical offset of its first byte.
        offsets: physical offset of each record.
        sizes: of each, bytes.
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
        window: whole entries, at least one.
        most_bytes: that the records may have together; the first may have more.
        file: its memory, the physical offset where it begins, and where what is written ends.
        may_join: records with nothing between them may come as one.

    Returns:
        At least one entry; None when the entries are not as they usually are: in the order of
        their records, which do not overlap.
    """
    view, base, file_end = file
    places, sizes = columns_of(window)
    ends = tuple(map(add, places, sizes))
    if places[0] < base or min(sizes) <= 0:
        return None
    # As mostly in a batch: compared at once, where a look at each pair costs as much as the rest.
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
