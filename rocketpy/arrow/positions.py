"""Finds the first byte of each record in a buffer of consecutive records."""

from typing import Final

import numpy as np

from rocketpy.arrow.gather import Int64s
from rocketpy.arrow.record_headers import Bytes
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.record import (
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    ReadBuffer,
    RecordKind,
    iter_records,
)

_MAGICS: Final = [
    np.frombuffer(magic.to_bytes(4, "big", signed=True), np.uint8) for magic in (MAGIC_V1, MAGIC_V2)
]
_SHARED: Final = _MAGICS[0][:3]
_SIZE: Final = np.dtype(">i4")
_AT_ONCE: Final = 4096
_SEARCHED_AT_ONCE: Final = 1 << 20
_MIN_SAME_SIZE: Final = 32
"""With fewer records of one size in a row, searching for the magic is faster."""
assert (_MAGICS[1][:3] == _SHARED).all()


def record_positions(data: ReadBuffer) -> Int64s:
    """Return where each record begins, from the first byte on.

    Args:
        data: anything with the buffer protocol: the body of a pull response, or a part of a log,
            which may end with a blank or with zeros.

    Returns:
        int64, shape (records,), ascending.

    Raises:
        CorruptRecordError: a magic or a size is invalid; its `phy_offset` is the position.
    """
    view = memoryview(data)
    raw = np.frombuffer(view, np.uint8)
    positions, stop = follow(raw, 0, len(raw))
    if stop == len(raw):
        return positions
    # The rest is a blank, zeros, or damage; `iter_records` raises the precise error.
    walked = iter_records(view, stop, len(view))
    rest = [at for at, _, kind in walked if kind is RecordKind.MESSAGE]
    return np.concatenate((positions, np.array(rest, np.int64)))


def whole_record_positions(data: ReadBuffer) -> Int64s:
    """Return the position of each intact record in damaged data; slower than `follow`.

    Args:
        data: as for `record_positions`, damaged.

    Returns:
        int64, shape (records,), ascending.
    """
    view = memoryview(data)
    raw = np.frombuffer(view, np.uint8)
    whole: list[int] = []
    end = 0
    for at in _magics(raw, 0, len(raw)).tolist():
        if at < end:
            continue
        try:
            end = at + decode_message(view, at, inflate=False).store_size_bytes
        except CorruptRecordError:
            continue
        whole.append(at)
    return np.array(whole, np.int64)


def follow(raw: Bytes, start: int, end: int) -> tuple[Int64s, int]:
    """Follow records from one to the next while each begins where the previous one ends.

    A group of records of one size is found by that size. From the first record that differs, the
    magic is searched for in the whole range at once. A match counts only where the sizes lead from
    one record to the next, so the same bytes inside a body do no harm.

    Args:
        raw: the bytes; records may extend beyond `end`, not beyond these.
        start: where the first record begins.
        end: records that begin before it.

    Returns:
        Positions (int64, ascending), and where the last record ends; `start` without one.
    """
    followed: list[Int64s] = []
    position = start
    while position < end:
        run = _of_one_size(raw, position, end)
        if len(run) >= _MIN_SAME_SIZE:
            followed.append(run)
            position = int(2 * run[-1] - run[-2])
            continue
        until = min(end, position + _SEARCHED_AT_ONCE)
        found, position = chain(*candidates(raw, position, until), position)
        followed.append(found)
        if position < until:
            break
    return (np.concatenate(followed) if followed else np.empty(0, np.int64)), position


def _of_one_size(raw: Bytes, start: int, end: int) -> Int64s:
    """Return positions of records as long as the first one, at most `_AT_ONCE`."""
    if end - start < MIN_RECORD_BYTES * _MIN_SAME_SIZE or end > len(raw):
        return np.empty(0, np.int64)
    size = int(raw[start : start + 4].view(_SIZE)[0])
    if size < MIN_RECORD_BYTES:
        return np.empty(0, np.int64)
    count = min(_AT_ONCE, (end - start) // size)
    sizes, magics = (np.ndarray((count,), _SIZE, raw, start + at, (size,)) for at in (0, MAGIC_AT))
    differs = (sizes != size) | (magics != MAGIC_V1)
    first = int(differs.argmax()) if differs.any() else count
    return start + np.arange(first, dtype=np.int64) * size


def candidates(raw: Bytes, start: int, end: int) -> tuple[Int64s, Int64s]:
    """Return positions in [start, end) where a record may begin, and where each would end."""
    found = _magics(raw, start, end)
    if not len(found):
        return found, found
    sizes = np.lib.stride_tricks.sliding_window_view(raw, 4)[found].view(_SIZE)[:, 0]
    ends = found + sizes.astype(np.int64)
    whole = (sizes >= MIN_RECORD_BYTES) & (ends <= len(raw))
    return found[whole], ends[whole]


def chain(found: Int64s, ends: Int64s, start: int) -> tuple[Int64s, int]:
    """Return the candidates that follow one another from `start`, and where the last ends."""
    followed: list[Int64s] = []
    position = start
    while True:
        first = int(np.searchsorted(found, position))
        if first == len(found) or found[first] != position:
            break
        breaks = np.flatnonzero(ends[first:-1] != found[first + 1 :])
        last = first + int(breaks[0]) if len(breaks) else len(found) - 1
        followed.append(found[first : last + 1])
        position = int(ends[last])
    return (np.concatenate(followed) if followed else np.empty(0, np.int64)), position


def _magics(raw: Bytes, start: int, end: int) -> Int64s:
    """Return every position in [start, end) that has a magic where a record has it."""
    end = min(end, len(raw) - MIN_RECORD_BYTES + 1)
    if end <= start:
        return np.empty(0, np.int64)
    found: Int64s = np.flatnonzero(raw[start + MAGIC_AT : end + MAGIC_AT] == _SHARED[0]) + start
    for number in (1, 2):
        found = found[raw[found + MAGIC_AT + number] == _SHARED[number]]
    last = raw[found + MAGIC_AT + 3]
    kept: Int64s = found[(last == _MAGICS[0][3]) | (last == _MAGICS[1][3])]
    return kept
