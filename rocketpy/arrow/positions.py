"""Where records begin in a buffer in which they lie back to back."""

from typing import Final

import numpy as np

from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.heads import LAYOUT, Bytes
from rocketpy.proto.record import MAGIC_AT, MAGIC_V1, ReadBuffer, RecordKind, iter_records

_MAGIC: Final = np.frombuffer(MAGIC_V1.to_bytes(4, "big", signed=True), np.uint8)
_SIZE: Final = np.dtype(">i4")


def record_positions(data: ReadBuffer) -> Int64s:
    """Return where each record begins, from the first byte on.

    The bytes of the magic are searched for, and what is found is believed when the sizes lead from
    each to the next and to the end; otherwise the sizes are followed one by one.

    Args:
        data: anything with the buffer protocol: the body of a pull response, or a piece of a log,
            which may end with a blank or with zeros.

    Returns:
        int64, shape (records,), ascending.

    Raises:
        CorruptRecordError: a magic or a size that no record has; its `phy_offset` is the position.
    """
    view = memoryview(data)
    found = _by_magic(np.frombuffer(view, np.uint8))
    if found is not None:
        return found
    walked = iter_records(view, 0, len(view))
    return np.array([at for at, _, kind in walked if kind is RecordKind.MESSAGE], np.int64)


def _by_magic(raw: Bytes) -> Int64s | None:
    """Return the positions when every byte belongs to a record of version 1; else None."""
    last = len(raw) - LAYOUT.itemsize
    if last < 0:
        return None
    found = np.flatnonzero(raw[MAGIC_AT : MAGIC_AT + last + 1] == _MAGIC[0])
    for number in (1, 2, 3):
        found = found[raw[found + MAGIC_AT + number] == _MAGIC[number]]
    sizes = np.lib.stride_tricks.sliding_window_view(raw, 4)[found].view(_SIZE)[:, 0]
    ends = found + sizes
    whole = len(found) and found[0] == 0 and ends[-1] == len(raw)
    return found if whole and bool((ends[:-1] == found[1:]).all()) else None
