"""Slices of a buffer as a string or binary array, copied by Arrow instead of a Python loop.

An array is laid over the whole buffer with the offsets start, end, start, end, ...: its even
elements are the wanted slices, and Arrow never reads the odd ones. One call of `take` then copies
the even elements side by side.

`pyarrow.compute` takes 30 ms to import, so it is imported on use: planners of queries, which are
new processes, never need it.
"""

# ruff: noqa: PLC0415 - see above

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]


def gather(data: pa.Buffer, starts: Int64s, ends: Int64s, kind: pa.DataType) -> pa.Array:
    """Return slices of a buffer as an array without nulls.

    Args:
        data: `pyarrow.Buffer` of at most 2 GiB.
        starts: int64, where each slice begins; in any order.
        ends: int64, where each slice ends; not before its start.
        kind: `pyarrow.binary()` or `pyarrow.string()`; strings are not validated.

    Returns:
        An array of `kind`, one element per slice; it shares no memory with `data`.
    """
    import pyarrow.compute as pc

    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    if count:
        # Arrow reserves memory by the average length of all elements, which it takes from the
        # first and the last offset. The last one belongs to no slice, so it is set to what the
        # slices need; it must not exceed the data.
        wanted = 2 * int((ends - starts).sum())
        offsets[-1] = min(int(offsets[0]) + wanted, data.size)
    else:
        offsets[-1] = 0
    pieces = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), data])
    return pc.take(pieces, pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)), boundscheck=False)


def repeated(raw: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """Return an array of one string, given as UTF-8, `count` times."""
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(
        kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(raw * count)]
    )
