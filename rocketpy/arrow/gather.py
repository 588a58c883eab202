"""Pieces of a buffer as a string or binary array, copied by Arrow instead of a Python loop.

An array is laid over the whole buffer whose offsets are start, end, start, end, ...: every other
element is a wanted piece, and what lies between is never looked at. Taking the even elements is one
call, in which Arrow copies the pieces side by side. `pyarrow.compute` takes 30 ms to import, so
that is done where it is used: the planner of a query, a new process, does without it.
"""

# ruff: noqa: PLC0415 - see above

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]


def gather(data: pa.Buffer, starts: Int64s, ends: Int64s, kind: pa.DataType) -> pa.Array:
    """Return the pieces of a buffer as an array without nulls.

    Args:
        data: `pyarrow.Buffer` of at most 2 GiB.
        starts: int64, where each piece begins; in any order.
        ends: int64, where each piece ends; not before its start.
        kind: `pyarrow.binary()` or `pyarrow.string()`; strings are not validated.

    Returns:
        An array of `kind`, one element a piece, with a buffer of its own.
    """
    import pyarrow.compute as pc

    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = ends
    if count:
        # Arrow reserves room for as many bytes as elements have on average, by the first and the
        # last offset. So the last one, which belongs to no piece, is set to what will be taken; it
        # must not lie behind the data.
        wanted = 2 * int((ends - starts).sum())
        offsets[-1] = min(int(offsets[0]) + wanted, data.size)
    else:
        offsets[-1] = 0
    pieces = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(offsets), data])
    return pc.take(pieces, pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)), boundscheck=False)


def gathered_bytes(pieces: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Return the bytes of a gathered array, and where its elements begin and the last ends."""
    _, offsets, values = pieces.buffers()
    places = np.frombuffer(offsets, np.int32, len(pieces) + 1)
    data = np.frombuffer(values, np.uint8, places[-1]) if places[-1] else np.empty(0, np.uint8)
    return data, places


def repeated(raw: bytes, count: int, kind: pa.DataType) -> pa.Array:
    """Return an array of one string, given as UTF-8, `count` times."""
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(
        kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(raw * count)]
    )


def is_utf8(pieces: pa.Array) -> bool:
    """Whether every element of a gathered array is UTF-8."""
    data, _ = gathered_bytes(pieces)
    if not len(data) or data.max() < 0x80:
        return True
    try:
        pieces.cast(pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def not_utf8(pieces: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which elements are not UTF-8, one bool an element, looking at each."""
    bad = np.zeros(len(pieces), np.bool_)
    for row, piece in enumerate(pieces):
        try:
            str(piece.as_buffer(), "utf-8")
        except UnicodeDecodeError:
            bad[row] = True
    return bad
