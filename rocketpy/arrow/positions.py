"""Where records begin in a buffer in which they lie back to back."""

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
_WORTH_IT: Final = 32
"""Records of one size in a row, below which searching is quicker."""
assert (_MAGICS[1][:3] == _SHARED).all()


def record_positions(data: ReadBuffer) -> Int64s:
    """Return where each record begins, from the first byte on.

    Args:
        data: anything with the buffer protocol: the body of a pull response, or a piece of a log,
            which may end with a blank or with zeros.

    Returns:
        int64, shape (records,), ascending.

    Raises:
        CorruptRecordError: a magic or a size that no record has; its `phy_offset` is the position.
    """
    view = memoryview(data)
    raw = np.frombuffer(view, np.uint8)
    positions, stop = follow(raw, 0, len(raw))
    if stop == len(raw):
        return positions
    # What is left is a blank, zeros, or an error that the walk knows how to tell.
    walked = iter_records(view, stop, len(view))
    rest = [at for at, _, kind in walked if kind is RecordKind.MESSAGE]
    return np.concatenate((positions, np.array(rest, np.int64)))


def whole_record_positions(data: ReadBuffer) -> Int64s:
    """Return where whole records begin, whatever lies between them; slower than following them.

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
    """Follow records from one to the next as far as each begins where the one before it ends.

    Records of one size are found by it. From the first that differs, the bytes of the magic are
    searched for, all at once; what is found is believed where the sizes lead from one to the next,
    so that the same bytes within a body mislead nobody.

    Args:
        raw: the bytes; records may reach beyond `end`, not beyond these.
        start: where the first record begins.
        end: records that begin before it.

    Returns:
        Positions (int64, ascending), and where the last record ends; `start` without one.
    """
    followed: list[Int64s] = []
    position = start
    while position < end:
        run = _of_one_size(raw, position, end)
        if len(run) >= _WORTH_IT:
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
    """Return where records begin that are as long as the first one, up to some thousands."""
    if end - start < MIN_RECORD_BYTES * _WORTH_IT or end > len(raw):
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
    """Return where records may begin from `start` to before `end`, and where each would end."""
    found = _magics(raw, start, end)
    if not len(found):
        return found, found
    sizes = np.lib.stride_tricks.sliding_window_view(raw, 4)[found].view(_SIZE)[:, 0]
    ends = found + sizes.astype(np.int64)
    whole = (sizes >= MIN_RECORD_BYTES) & (ends <= len(raw))
    return found[whole], ends[whole]


def chain(found: Int64s, ends: Int64s, start: int) -> tuple[Int64s, int]:
    """Return those candidates that follow one another from `start` on, and where the last ends."""
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
    """Return every position from `start` to before `end` at which a magic would be in place."""
    end = min(end, len(raw) - MIN_RECORD_BYTES + 1)
    if end <= start:
        return np.empty(0, np.int64)
    found: Int64s = np.flatnonzero(raw[start + MAGIC_AT : end + MAGIC_AT] == _SHARED[0]) + start
    for number in (1, 2):
        found = found[raw[found + MAGIC_AT + number] == _SHARED[number]]
    last = raw[found + MAGIC_AT + 3]
    kept: Int64s = found[(last == _MAGICS[0][3]) | (last == _MAGICS[1][3])]
    return kept
